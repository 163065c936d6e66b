// What happened: the scheduler's only input, and with its decisions the system of record.
//
// This is the most lasting schema of the project. The JSON spelling, the reserved kinds and the rules of
// change are in docs/journal.md. Kinds are `input` (a what-if replays them) or `outcome` (a what-if makes
// its own).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"
#include "base/units.h"
#include "model/gpu.h"
#include "model/job.h"
#include "model/policy.h"

namespace tranche {

// --- input: the world and its policy ---------------------------------------------------------------
struct PolicyChanged {
  Policy policy;
  bool operator==(const PolicyChanged&) const = default;
};
struct NodeAdded {
  Node node;
  bool operator==(const NodeAdded&) const = default;
};
struct NodeRemoved {
  NodeId node;
  bool operator==(const NodeRemoved&) const = default;
};
struct GpuAdded {
  Gpu gpu;
  std::string
      drained{};  // why nothing may start on it from the first moment on; empty: it takes work at once
  bool operator==(const GpuAdded&) const = default;
};
struct GpuRemoved {
  GpuId gpu;
  bool operator==(const GpuRemoved&) const = default;
};
// An edge of telemetry, never a sample. `reason` is one sentence for people.
struct HealthChanged {
  GpuId gpu;
  Health health = Health::ok;
  std::string reason;
  bool operator==(const HealthChanged&) const = default;
};
// The driver has reported an error of the GPU or of a program on it. Told for people: what follows of it for
// the GPU is a HealthChanged, and for the job its end.
struct GpuFaulted {
  GpuId gpu;
  uint32_t xid = 0;         // NVIDIA's number of the error
  std::vector<JobId> jobs;  // that held the GPU then
  bool operator==(const GpuFaulted&) const = default;
};
// Nothing new is started on a drained GPU; what runs goes on.
struct GpuDrained {
  GpuId gpu;
  std::string by;  // user name, or "tranche"
  std::string reason;
  bool operator==(const GpuDrained&) const = default;
};
struct GpuUndrained {
  GpuId gpu;
  std::string by;
  bool operator==(const GpuUndrained&) const = default;
};
// A timer that a WakeAt decision asked for.
struct Tick {
  bool operator==(const Tick&) const = default;
};
// The wall clock was stepped by `by`: moves calendars and display, never limits, quanta or decay.
struct WallClockStepped {
  Duration by;
  bool operator==(const WallClockStepped&) const = default;
};

// --- input: what users ask ---------------------------------------------------------------------------
struct JobSubmitted {
  JobId job;  // the first one of an array
  JobSpec spec;
  ArraySpec array;
  bool operator==(const JobSubmitted&) const = default;
};
// By the owner or an operator; `by` is the name of whoever asked. `more`: as many jobs behind it are meant
// too, which is how a whole array is one event. Those that have ended are passed over; by a hold of several,
// those that run too.
struct JobCancelled {
  JobId job;
  std::string by;
  uint32_t more = 0;
  std::string reason{};  // one sentence, when Tranche itself did it; else ""
  bool operator==(const JobCancelled&) const = default;
};
struct JobHeld {
  JobId job;
  std::string by;
  uint32_t more = 0;
  bool operator==(const JobHeld&) const = default;
};
struct JobReleased {
  JobId job;
  std::string by;
  uint32_t more = 0;
  bool operator==(const JobReleased&) const = default;
};
// What differs from now on; what is unset stays. `first`: before all others of its queue that wait.
struct JobUpdated {
  JobId job;
  std::string by;
  std::optional<Duration> time_limit;
  std::optional<Duration> grace;
  std::optional<int32_t> priority;
  std::optional<Time> begin;
  std::optional<std::vector<Dependency>> dependencies;
  bool first = false;
  MiB gpu_memory;            // of each of its GPUs, which it shares; zero: as before
  MiB gpu_memory_limit;      // with it: up to this while it is free; zero: not beyond
  std::string payload_hash;  // "": as before
  std::string name_hash;     // "": as before
  bool operator==(const JobUpdated&) const = default;
};
// A job that runs is stopped and waits again, as its next attempt.
struct JobRequeued {
  JobId job;
  std::string by;
  std::string reason{};  // as of JobCancelled
  bool operator==(const JobRequeued&) const = default;
};

// --- outcome: what became of decisions ------------------------------------------------------------------
struct TaskStarted {
  TaskKey task;
  bool operator==(const TaskStarted&) const = default;
};
// The task provably never executed. `retry`: the fault was not the job's, try again.
struct TaskStartFailed {
  TaskKey task;
  bool retry = false;
  int32_t code = 0;    // what a shell would have returned: 127 not found, 126 not executable; 0: nothing
  std::string reason;  // one sentence without paths or arguments
  bool operator==(const TaskStartFailed&) const = default;
};

// killed: ended by a Stop decision. lost: the supervisor is gone and nobody knows (state `unknown`).
#define TRANCHE_EXIT_CAUSE(X) \
  X(exited) X(signalled) X(time_limit) X(killed) X(out_of_memory) X(node_failed) X(lost)
TRANCHE_ENUM(ExitCause, TRANCHE_EXIT_CAUSE)

// All processes of the task are gone; its GPUs may still hold memory until SliceReleased.
struct TaskExited {
  TaskKey task;
  ExitCause cause = ExitCause::exited;
  int32_t code = 0;    // exit code, if exited
  int32_t signal = 0;  // signal number, if ended by one
  bool operator==(const TaskExited&) const = default;
};
// The GPU holds no memory of the task any more: its slice is free.
struct SliceReleased {
  TaskKey task;
  GpuId gpu;
  bool operator==(const SliceReleased&) const = default;
};

// X(payload type, name in JSON, category)
#define TRANCHE_EVENT_KINDS(X)                   \
  X(PolicyChanged, policy_changed, input)        \
  X(NodeAdded, node_added, input)                \
  X(NodeRemoved, node_removed, input)            \
  X(GpuAdded, gpu_added, input)                  \
  X(GpuRemoved, gpu_removed, input)              \
  X(HealthChanged, health_changed, input)        \
  X(GpuFaulted, gpu_faulted, input)              \
  X(GpuDrained, gpu_drained, input)              \
  X(GpuUndrained, gpu_undrained, input)          \
  X(Tick, tick, input)                           \
  X(WallClockStepped, wall_clock_stepped, input) \
  X(JobSubmitted, job_submitted, input)          \
  X(JobCancelled, job_cancelled, input)          \
  X(JobHeld, job_held, input)                    \
  X(JobReleased, job_released, input)            \
  X(JobUpdated, job_updated, input)              \
  X(JobRequeued, job_requeued, input)            \
  X(TaskStarted, task_started, outcome)          \
  X(TaskStartFailed, task_start_failed, outcome) \
  X(TaskExited, task_exited, outcome)            \
  X(SliceReleased, slice_released, outcome)

using EventPayload = std::variant<PolicyChanged, NodeAdded, NodeRemoved, GpuAdded, GpuRemoved, HealthChanged,
                                  GpuFaulted, GpuDrained, GpuUndrained, Tick, WallClockStepped, JobSubmitted,
                                  JobCancelled, JobHeld, JobReleased, JobUpdated, JobRequeued, TaskStarted,
                                  TaskStartFailed, TaskExited, SliceReleased>;

struct Event {
  EventSeq seq;  // from 1, without gaps
  Time time;     // strictly increasing
  EventPayload payload;
  bool operator==(const Event&) const = default;
};

// The kind's name as it stands in JSON, and whether it is an outcome.
std::string_view event_kind(const EventPayload& payload);
bool is_outcome(const EventPayload& payload);

}  // namespace tranche
