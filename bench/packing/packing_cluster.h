// The state of a cluster while a baseline packs it: what is free of each node, and which node may host a
// class.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "packing/packing_workload.h"

namespace tranche::bench {

struct PackedNode {
  int64_t cpu_free = 0;
  int64_t memory_free = 0;
  std::vector<int64_t> gpu_free;  // milli
  int32_t model = 0;
  int32_t pods_left = 1001;
  std::map<int64_t, int32_t> holds;  // pods by number of GPUs (0 for a share of one)
  uint32_t version = 1;

  int64_t gpu_free_sum() const {
    int64_t sum = 0;
    for (const int64_t free : gpu_free) sum += free;
    return sum;
  }
  int64_t idle_gpus() const {
    int64_t idle = 0;
    for (const int64_t free : gpu_free) idle += free == 1000 ? 1 : 0;
    return idle;
  }
};

// A class with its models as a set of bits.
struct PackedClass {
  PodClass pod;
  uint32_t models = ~uint32_t{0};
  bool accepts(const PackedNode& node) const { return (models >> node.model & 1U) != 0; }
};

class PackedCluster {
 public:
  PackedCluster(const PackingWorkload& workload, const PackingOrder& order);
  PackedClass packed(const PodClass& pod) const;

  static bool fits(const PackedNode& node, const PackedClass& wanted);
  // Whole GPUs: the lowest idle ones. A share: `gpu`.
  void place(PackedNode& node, const PackedClass& wanted, size_t gpu);

  std::vector<PackedNode> nodes;
  int64_t allocated_milli = 0;

 private:
  std::vector<std::string> models_;
};

// The GPU with the least room that a share fits into, the lowest of equals.
size_t best_fitting_gpu(const PackedNode& node, int64_t milli);

// F of FGD: what of a node's free GPU milli the typical classes cannot use.
double fragmentation(const PackedNode& node, const std::vector<PackedClass>& typical,
                     const std::vector<double>& probabilities);

}  // namespace tranche::bench
