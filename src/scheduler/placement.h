// Where a task goes: of the GPU types that would do, of the nodes with room, of their GPUs.
//
// A single task goes where it breaks up least of what the usual mix of jobs could use (scores.h); on equal
// scores to the type with the least memory that will do, then to the fullest node, then to the one that came
// first. On a node, healthy GPUs before throttled ones and shared ones before idle ones (a fraction must not
// open a GPU that somebody may want whole).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/policy.h"
#include "scheduler/view.h"

namespace tranche::scheduler {

// What placement sees of a job; equal shapes are placed alike.
struct Shape {
  uint32_t gpu_count = 0;                   // of each task
  uint32_t gpu_count_max = 0;               // > gpu_count: up to so many of those that are free
  GpuTopology topology = GpuTopology::any;  // of whole GPUs
  SliceKind kind = SliceKind::whole;
  int64_t compute = 0;  // of each fraction; zero: in proportion to memory
  int64_t memory = 0;   // of each fraction; zero: in proportion to compute
  int64_t cpu = 0;      // of each task
  int64_t host_memory = 0;
  uint32_t tasks_min = 1;
  uint32_t tasks_max = 1;
  uint32_t uid = 0;  // of fractions whose neighbours matter, else zero
  bool share_with_others = false;
  bool some_gpus_for_all = false;  // it may share some GPUs with others: GpuRoom::for_all
  bool spread_nodes = false;       // to the emptiest node rather than to the fullest
  bool spread_gpus = false;        // fractions: to the emptiest GPU of the node
  std::string type;                // as GpuRequest::type
  std::string pool;                // "" is any
  uint64_t structure = 0;          // not zero: of one job alone, which is placed by its step (task_step.h)
  auto operator<=>(const Shape&) const = default;
  bool looks_at_shared() const { return share_with_others || some_gpus_for_all; }
  uint64_t hash() const;
};

Shape shape_of(const JobSpec& spec, const Policy& policy);

// A GPU type that the shape may use, with its kinds (one for each pool).
struct TypeChoice {
  TypeIndex type = 0;
  uint32_t rank = 0;  // by memory, the least first; types with as much have the same
  std::vector<KindIndex> kinds;
};

// Types, best first: the smallest memory that fits, then the most plentiful. Without GPUs: one choice
// without kinds.
std::vector<TypeChoice> choices_for(const Shape& shape, const Capacity& capacity);

// What a fraction takes of one GPU, or nothing if it is larger than the GPU.
std::optional<Slice> slice_on(const Shape& shape, const GpuRoom& room);

// As many tasks as fit on one node, at most `most`. Of equally healthy GPUs a fraction takes the one with the
// most `points` (by place on the node), if there are any.
std::vector<TaskPlacement> place_on_node(const Shape& shape, const TypeChoice& choice, NodeIndex node,
                                         const Layers& layers, uint32_t most,
                                         const std::vector<int>& points = {});
// Whether one task fits there, and how many do, at most `most`.
bool fits_on_node(const Shape& shape, const TypeChoice& choice, NodeIndex node, const Layers& layers);
uint32_t count_on_node(const Shape& shape, const TypeChoice& choice, NodeIndex node, const Layers& layers,
                       uint32_t most);

// The least that the job may be charged, whatever GPUs it gets.
MilliGpu charge_at_least(const Shape& shape, const Capacity& installed, uint32_t tasks);

}  // namespace tranche::scheduler
