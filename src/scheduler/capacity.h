// What is free: host processors and memory of every node, compute and memory of every GPU. A plain value
// that can be copied, so that "what if these ended" is a copy with some tasks given back.
//
// Integers of one unit each (milli-GPU, MiB, milli-CPU). Free counts never go below zero unless somebody
// shrank a node under its tasks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/gpu.h"
#include "model/job.h"

namespace tranche::scheduler {

struct GpuRoom {
  GpuId id;
  uint32_t index = 0;
  std::string type;
  MiB memory_usable;
  bool open = true;       // takes new work: healthy enough and not drained
  bool installed = true;  // counts as what the machine has: false once lost or removed
  bool degraded = false;
  MilliGpu compute_free = kWholeGpu;
  MiB memory_free;
  bool whole = false;                                 // held as a whole
  std::vector<std::pair<uint32_t, uint32_t>> owners;  // uid, slices; sorted

  bool is_idle() const { return owners.empty(); }
};

struct NodeRoom {
  NodeId id;
  std::string pool;
  bool present = true;
  MilliCpu cpu;
  MiB memory;
  MilliCpu cpu_free;
  MiB memory_free;
  std::vector<GpuRoom> gpus;  // by index
};

// Where one task goes.
struct TaskPlacement {
  NodeId node;
  std::vector<Slice> slices;  // ascending by GPU
};

// What one task holds, as taken and given back.
struct Footprint {
  uint32_t uid = 0;
  NodeId node;
  std::span<const Slice> slices;
  MilliCpu cpu;
  MiB memory;
};

class Capacity {
 public:
  void add_node(const Node& node);
  void add_gpu(const Gpu& gpu);
  void remove_gpu(GpuId gpu);  // nothing holds it
  GpuRoom* gpu(GpuId id);
  const GpuRoom* gpu(GpuId id) const;
  NodeRoom* node(NodeId id);
  const NodeRoom* node(NodeId id) const;
  const std::vector<NodeRoom>& nodes() const { return nodes_; }

  void take(const Footprint& footprint);
  void give(const Footprint& footprint);
  void give_host(NodeId node, MilliCpu cpu, MiB memory);
  void give_slice(uint32_t uid, const Slice& slice);

  // GPUs that the shares are divided over: those that take work, and those that hold some.
  MilliGpu total_compute() const;

 private:
  std::vector<NodeRoom> nodes_;                                          // by id
  std::vector<std::pair<GpuId, std::pair<uint32_t, uint32_t>>> places_;  // by GPU: node's and GPU's position
  void rebuild_places();
};

// Charge of a slice: the larger of its two fractions, rounded up.
MilliGpu charge_of(const Slice& slice, MiB memory_usable);

}  // namespace tranche::scheduler
