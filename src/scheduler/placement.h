// Where a task goes: whole GPUs on the node that they fill best, fractions on the GPU that they fill best,
// lowest index on ties. Pure functions of a request and of what is free.
//
// A request is placed against several layers at once (what is free now, what is left when promised room is
// set aside, what a reservation leaves at its time): a GPU will do only if it does in every layer.
// Preferences are judged on the first layer.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/capacity.h"

namespace tranche::scheduler {

// What placement sees of a job; equal shapes are placed alike.
struct Shape {
  uint32_t gpu_count = 0;  // of each task
  SliceKind kind = SliceKind::whole;
  int64_t compute = 0;  // of each fraction; zero: in proportion to memory
  int64_t memory = 0;   // of each fraction; zero: in proportion to compute
  int64_t cpu = 0;      // of each task
  int64_t host_memory = 0;
  uint32_t tasks_min = 1;
  uint32_t tasks_max = 1;
  uint32_t uid = 0;  // of fractions, whose neighbours matter; zero for whole GPUs
  bool share_with_others = false;
  std::string type;  // "" is any
  std::string pool;  // "" is any
  auto operator<=>(const Shape&) const = default;
};

Shape shape_of(const JobSpec& spec, bool users_share_gpu);

using Layers = std::vector<const Capacity*>;

// What a fraction takes of one GPU, or nothing if it is larger than the GPU.
std::optional<Slice> slice_on(const Shape& shape, const GpuRoom& room);

// GPU types that the request may use, best first: the smallest memory that fits, then the most plentiful.
// For a request without GPUs, one empty name.
std::vector<std::string> types_for(const Shape& shape, const Capacity& installed);

// As many tasks as fit on one node, at most `most`. `uid` is the owner of what is placed.
std::vector<TaskPlacement> place_on_node(const Shape& shape, const std::string& type, size_t node_position,
                                         const Layers& layers, uint32_t most);

// Quick and never wrong when it says no: whether some node could host one task. Most waiting jobs fail here.
bool may_host_one(const Shape& shape, const Layers& layers);

// The least that the job may be charged, whatever GPUs it gets.
MilliGpu charge_at_least(const Shape& shape, const Capacity& installed, uint32_t tasks);

}  // namespace tranche::scheduler
