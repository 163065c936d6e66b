// How the GPUs of a machine are joined, and sets of them that a task may ask for: all joined by NVLink with
// each other, or all next to the same processors.
//
// What is not known joins nothing. A set of one is always good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "model/gpu.h"
#include "model/job.h"

namespace tranche::scheduler {

class JoinedGpus {
 public:
  void add(const Gpu& gpu);
  void remove(GpuId gpu) { gpus_.erase(gpu); }

  bool knows_any() const { return !gpus_.empty(); }
  bool are_joined(GpuId a, GpuId b, GpuTopology how) const;

 private:
  struct Joins {
    int32_t numa_node = -1;
    std::vector<GpuId> nvlink;  // peers, in the order of the inventory
  };
  std::map<GpuId, Joins> gpus_;  // those of which anything is known
};

// Takes `count` of `from` that are joined as `wanted`, the first such set in the order of the list, and
// appends them to `taken`. With `any`: joined by NVLink if that is possible, else on one NUMA node, else the
// first ones. False, and nothing is changed: there is no such set.
bool take_joined(std::vector<GpuId>& from, uint32_t count, GpuTopology wanted, const JoinedGpus& joined,
                 std::vector<GpuId>& taken);

}  // namespace tranche::scheduler
