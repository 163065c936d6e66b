// The tasks of one job that start together, where they are not all alike and free to go anywhere: parts of a
// job with minimums of their own, domains of the topology, allowed nodes, and what an elastic job adds while
// it runs. Jobs without any of that are placed by their shape alone (gang.h).
//
// A group that wants one domain gets the tightest that holds it (least idle room first, then the one that
// came first): first where what it prefers is met too, then without. The parts of a group are placed in the
// order of the list, each on what the ones before have left; none is placed again because a later one finds
// no room, so that a search stays short.
//
// Units: ranks of the job; nodes by position. Ownership: shares the job's specification.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "model/decision.h"
#include "model/policy.h"
#include "model/task_groups.h"
#include "scheduler/gang.h"
#include "scheduler/host_amount.h"

namespace tranche::scheduler {

struct State;
struct Job;

// Whether the job needs steps at all.
bool is_structured(const JobSpec& spec);

class TaskStep {
 public:
  using Domains = std::vector<uint32_t>;  // by node: the number of its domain, kNoDomain: in none
  static constexpr uint32_t kNoDomain = UINT32_MAX;

  // `held`: where tasks of it run already. `capacity`: what is installed, or all of it idle.
  TaskStep(std::shared_ptr<const JobSpec> spec, const Policy& policy, const std::map<NodeId, Node>& nodes,
           const Capacity& capacity, TaskGroups::Ranks ranks, std::map<uint32_t, Start> held);

  const TaskGroups& groups() const { return groups_; }
  const TaskGroups::Ranks& ranks() const { return ranks_; }
  bool grows() const { return !held_.empty(); }
  // The least that the step is charged, and the same for all that the job may still start.
  MilliGpu charge() const { return charge_; }
  MilliGpu demand() const { return demand_; }
  const HostAmount& host() const { return host_; }
  // Of all tasks of the step that ask for GPUs, and whether there are others.
  const std::vector<TypeChoice>& choices() const { return choices_; }
  bool has_tasks_without_gpus() const { return has_tasks_without_gpus_; }
  const Shape& first_shape() const { return first_shape_; }

  std::optional<GangPlacement> place(const Layers& layers, const Scores* scores = nullptr) const;

 private:
  struct Part {
    Shape shape;                      // of a part with tasks
    std::vector<TypeChoice> choices;  // of it
    TaskGroups::Ranks ranks;          // of it, to be started
    bool is_empty = true;             // nothing of it or below it is to be started
    std::vector<bool> allowed;        // by node; empty: all
    Domains required;
    Domains preferred;
    std::vector<uint32_t> required_held;  // domains of what runs already
    std::vector<uint32_t> preferred_held;
  };
  class Placer;

  Domains domains_of(const std::string& level, const Policy& policy, const std::map<NodeId, Node>& nodes,
                     const Capacity& capacity) const;
  void measure(const Capacity& capacity);

  std::shared_ptr<const JobSpec> spec_;
  TaskGroups groups_;
  TaskGroups::Ranks ranks_;
  std::map<uint32_t, Start> held_;  // by rank
  std::vector<Part> parts_;         // as groups().parts()
  MilliGpu charge_;
  MilliGpu demand_;
  HostAmount host_;
  std::vector<TypeChoice> choices_;
  bool has_tasks_without_gpus_ = false;
  Shape first_shape_;
};

// What the job would start next, as things stand; null: it is not structured, or has all that it may have.
std::shared_ptr<const TaskStep> next_step_of(const State& state, const Job& job);
// What an idle machine would have to have room for.
TaskStep first_step_of(const State& state, std::shared_ptr<const JobSpec> spec, const Capacity& idle);
// All that runs of the job, to be placed anew.
std::optional<GangPlacement> place_again(const State& state, const Job& job, const Layers& layers);

// Whether a job of the record has room, structured or not.
struct ShapeRecord;
std::optional<GangPlacement> place_record(const ShapeRecord& record, const Layers& layers,
                                          const Scores* scores = nullptr);

}  // namespace tranche::scheduler
