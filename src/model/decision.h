// What to do: the scheduler's only output. A journal row holds an event and the decisions taken on it.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "model/job.h"

namespace tranche {

// Start one task. The tasks of a gang are started by decisions on one and the same event.
struct Start {
  TaskKey task;
  NodeId node;
  std::vector<Slice> slices;  // ascending by GPU; memory and compute as charged
  bool operator==(const Start&) const = default;
};

// requeued: its owner or an operator asked for another attempt. retried: it failed, and may try again.
// consolidated: it starts again elsewhere, so that another job finds room. stale: it ran with fewer tasks
// than it needs for longer than its grace.
// clang-format off
#define TRANCHE_STOP_REASON(X) \
  X(cancelled) X(preempted) X(reclaimed) X(gang) X(node_failed) X(requeued) X(retried) \
  X(consolidated) X(stale)
// clang-format on
TRANCHE_ENUM(StopReason, TRANCHE_STOP_REASON)

// End one task: TERM, its grace, then KILL. `beneficiary` is the job that the room is made for, if any.
// preempted, reclaimed and consolidated jobs go back to pending; an
// elastic job that can go on without the task stays and only loses that one.
struct Stop {
  TaskKey task;
  StopReason reason = StopReason::cancelled;
  JobId beneficiary;
  bool operator==(const Stop&) const = default;
};

// The job has reached a final state.
struct End {
  JobId job;
  JobState state = JobState::completed;
  bool operator==(const End&) const = default;
};

// The job was running or starting and waits again, as attempt `attempt`.
struct Requeue {
  JobId job;
  uint32_t attempt = 2;
  StopReason reason = StopReason::preempted;
  Time begin;  // not before, if set: the pause before a retry
  bool operator==(const Requeue&) const = default;
};

// Send a Tick at `time` (event time). A later WakeAt replaces an earlier one.
struct WakeAt {
  Time time;
  bool operator==(const WakeAt&) const = default;
};

#define TRANCHE_DECISION_KINDS(X) \
  X(Start, start) X(Stop, stop) X(End, end) X(Requeue, requeue) X(WakeAt, wake_at)

using Decision = std::variant<Start, Stop, End, Requeue, WakeAt>;

std::string_view decision_kind(const Decision& decision);

}  // namespace tranche
