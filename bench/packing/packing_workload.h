// The inflation experiment of FGD (ATC'23): pods only arrive, until what they ask for is 1.3 times what there
// is. Order of pods and nodes depend on a seed, so that ten seeds are ten samples of the same experiment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "replay/openb.h"

namespace tranche::bench {

// Pods that ask for the same are of one class.
struct PodClass {
  int64_t cpu_milli = 0;
  int64_t memory_mib = 0;
  int64_t gpus = 0;
  int64_t gpu_milli = 0;
  std::vector<std::string> models;  // sorted; empty: any
  auto operator<=>(const PodClass&) const = default;
  int64_t total_milli() const { return gpus * gpu_milli; }
  bool is_shared() const { return gpus == 1 && gpu_milli < 1000; }
};

// What FGD measures fragmentation against: the most frequent (CPU, GPUs, models) classes that cover 95 % of
// pods.
struct TypicalClass {
  PodClass pod;
  double probability = 0;
};

struct PackingWorkload {
  std::vector<replay::OpenbNode> nodes;
  std::vector<replay::OpenbPod> pods;
  std::vector<PodClass> classes;
  std::vector<size_t> class_of;  // by pod
  std::vector<TypicalClass> typical;
  int64_t capacity_milli = 0;
};

// One seed's experiment: nodes in the order in which ties are broken, pods in order of arrival.
struct PackingOrder {
  std::vector<size_t> nodes;
  std::vector<size_t> pods;
};

Result<PackingWorkload> read_packing_workload(const std::string& folder, const std::string& name);
PackingOrder packing_order(const PackingWorkload& workload, uint64_t seed);

// Allocated GPU milli in percent of all, averaged over the arrivals whose sum of requests rounds to each
// percent.
class AllocationCurve {
 public:
  explicit AllocationCurve(int64_t capacity_milli)
      : capacity_(capacity_milli), sum_(kPercentMax + 1), count_(kPercentMax + 1) {}
  void arrived(int64_t arrived_milli, int64_t allocated_milli);
  // NaN-free: the nearest percent below that was seen.
  double at(int percent) const;

 private:
  static constexpr int kPercentMax = 131;
  int64_t capacity_;
  std::vector<double> sum_;
  std::vector<int64_t> count_;
};

}  // namespace tranche::bench
