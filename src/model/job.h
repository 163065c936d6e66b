// What users submit, and the states that it goes through.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "model/enums.h"

namespace tranche {

#define TRANCHE_JOB_CLASS(X) X(training) X(inference) X(interactive)
TRANCHE_ENUM(JobClass, TRANCHE_JOB_CLASS)

// Design section 13. `preempted` is pending with a reason. The states from `completed` on are final.
// Version 14 never comes to rest on this list.
// clang-format off
#define TRANCHE_JOB_STATE(X)                                                                 \
  X(pending) X(held) X(starting) X(running) X(suspended) X(stopping) X(completed) X(failed) \
  X(cancelled) X(timed_out) X(out_of_memory) X(node_failed) X(unknown)
// clang-format on
TRANCHE_ENUM(JobState, TRANCHE_JOB_STATE)

constexpr bool is_final(JobState state) { return state >= JobState::completed; }

// What a slice is of its GPU. `mig` is reserved: no code produces it yet (docs/journal.md).
#define TRANCHE_SLICE_KIND(X) X(whole) X(fraction) X(mig)
TRANCHE_ENUM(SliceKind, TRANCHE_SLICE_KIND)

// What a task holds of one GPU.
struct Slice {
  GpuId gpu;
  SliceKind kind = SliceKind::whole;
  MilliGpu compute = kWholeGpu;
  MiB memory;
  bool operator==(const Slice&) const = default;
};

// How the GPUs of one task have to be joined. nvlink: each with each other. numa_node: next to the same
// processors.
#define TRANCHE_GPU_TOPOLOGY(X) X(any) X(numa_node) X(nvlink)
TRANCHE_ENUM(GpuTopology, TRANCHE_GPU_TOPOLOGY)

// The GPU part of a request, for each task. count == 0: no GPU at all.
// whole:    `count` whole GPUs, and up to `count_max` if as many are free when it starts; compute and memory
//           are ignored.
// fraction: `count` slices on different GPUs, each of `compute` milli-GPU and `memory`; of the two, the one
//           that is zero is taken in proportion to the other at placement (design section 2).
struct GpuRequest {
  uint32_t count = 0;
  SliceKind kind = SliceKind::whole;
  MilliGpu compute;
  MiB memory;
  MiB memory_limit;  // up to this may be borrowed beyond `memory`, while nobody needs it; zero: `memory`
  std::string type;  // "" is any; "a100-80|h100-80": either of them
  uint32_t count_max = 0;  // whole only, of a job of one task; 0: `count`
  GpuTopology topology = GpuTopology::any;
  bool is_moldable() const { return count_max > count; }
  bool operator==(const GpuRequest&) const = default;
};

// Whether a GPU of `type` will do for a request of `wanted`.
constexpr bool accepts_type(std::string_view wanted, std::string_view type) {
  if (wanted.empty()) return true;
  for (size_t begin = 0; begin <= wanted.size();) {
    const size_t end = std::min(wanted.find('|', begin), wanted.size());
    if (wanted.substr(begin, end - begin) == type) return true;
    begin = end + 1;
  }
  return false;
}

// What one task needs. Equal requests have the same shape.
struct TaskRequest {
  GpuRequest gpu;
  MilliCpu cpu;  // zero: not counted, the task shares what is left
  MiB memory;    // zero: not limited, and not counted
  bool operator==(const TaskRequest&) const = default;
};

// Tasks that should be near each other: all on nodes that agree in a label (Policy::topology_levels).
// required: or they do not start. preferred: if that is possible now.
struct TopologyRequest {
  std::string required;
  std::string preferred;
  bool is_set() const { return !required.empty() || !preferred.empty(); }
  bool operator==(const TopologyRequest&) const = default;
};

// A part of a job: tasks that are alike, or a group of other parts. Ranks are given out in the order of the
// list, `tasks_max` to each group of tasks.
struct TaskGroup {
  uint32_t parent = 0;      // position + 1 of the group that it is part of, which comes before it; 0: the job
  uint32_t tasks_min = 0;   // of a group of tasks: it runs with at least so many or not at all
  uint32_t tasks_max = 0;   // 0: a group of groups
  uint32_t groups_min = 0;  // of a group of groups: how many of its parts must run; 0: all
  TaskRequest task;         // of each task
  TopologyRequest topology;
  std::vector<std::string> nodes;  // names of the nodes where its tasks may go; empty: any
  bool operator==(const TaskGroup&) const = default;
};

#define TRANCHE_DEPENDENCY_KIND(X) X(after_ok) X(after_not_ok) X(after_any) X(after_start)
TRANCHE_ENUM(DependencyKind, TRANCHE_DEPENDENCY_KIND)

struct Dependency {
  DependencyKind kind = DependencyKind::after_ok;
  JobId job;
  bool operator==(const Dependency&) const = default;
};

// How often a job that failed by itself is tried again, by what ended it. `delay` is the pause before the
// first retry of each kind; it doubles with each further one, up to kRetryDelayMax.
struct RetryPolicy {
  uint32_t error = 0;           // an exit code other than 0, or a signal
  uint32_t out_of_memory = 0;   // at its limit of host memory
  uint32_t infrastructure = 0;  // its GPU or machine failed
  Duration delay;
  bool operator==(const RetryPolicy&) const = default;
};
inline constexpr Duration kRetryDelayMax = kHour;

// A signal that a job gets `before` its time limit, to save its work; number 0: none.
struct LimitSignal {
  int32_t number = 0;
  Duration before;
  bool operator==(const LimitSignal&) const = default;
};

// Who submitted, as the kernel said; `user` is the name at that time.
struct Owner {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::string user;
  bool operator==(const Owner&) const = default;
};

// A job as accepted: complete, with all defaults filled in from the policy of that moment. What the job
// runs (argv, environment, script, directory, name) is not here but in the owner-only store, under
// `payload_hash`, so that a log can be shared (design section 5).
struct JobSpec {
  Owner owner;
  std::string queue;  // leaf path "department/project/user"
  JobClass job_class = JobClass::training;
  int32_t priority = 0;  // higher runs first within the queue
  bool preemptible = true;
  bool requeue = false;      // a task that may have run is tried again after its node failed
  bool interactive = false;  // somebody waits at the other end of a socket
  TaskRequest task;
  uint32_t tasks_min = 1;  // a gang starts with at least this many tasks or not at all
  uint32_t tasks_max = 1;  // > tasks_min: as many as fit when it starts, unless it is elastic
  bool elastic = false;    // starts with what it needs at least; tasks come and go while it runs
  // Tasks that differ, or belong together in parts (task_groups.h); empty: all are `task`. With groups,
  // `task` is not used, tasks_max is the sum of theirs and tasks_min the least that they can start with.
  std::vector<TaskGroup> groups;
  uint32_t groups_min = 0;         // how many of the job's own parts must run; 0: all
  TopologyRequest topology;        // of all tasks
  std::vector<std::string> nodes;  // names of the nodes where its tasks may go; empty: any
  Duration time_limit;             // from its start; never zero
  Duration grace;                  // between TERM and KILL
  // A gang that has lost a member beyond its minimum goes on for this long; kDurationMax: as long as it
  // likes.
  Duration gang_grace;
  Duration preemption_delay;  // younger than this it starts where there is room, and nobody is stopped for it
  RetryPolicy retry;
  LimitSignal signal;
  Time begin;     // not before, if set
  Time deadline;  // reserved
  std::vector<Dependency> dependencies;
  ReservationId reservation;  // reserved: runs inside this booking
  std::string node_pool;      // "" is any
  bool held = false;          // submitted on hold
  std::string payload_hash;   // SHA-256, hex
  std::string name_hash;      // SHA-256 of the job's name, hex
  bool operator==(const JobSpec&) const = default;
};

// An array submits `indices.size()` equal jobs in one event; element i has the id first + i and is shown
// as "<first>_<indices[i]>".
struct ArraySpec {
  std::vector<uint32_t> indices;  // ascending, distinct; empty: not an array
  uint32_t running_max = 0;       // at most this many at a time; 0: no limit
  bool operator==(const ArraySpec&) const = default;
};

// One task of one attempt: the unit that is started, holds slices and exits.
struct TaskKey {
  JobId job;
  uint32_t rank = 0;
  uint32_t attempt = 1;  // from 1; a task runs at most once per attempt
  auto operator<=>(const TaskKey&) const = default;
};

}  // namespace tranche
