// Making room by moving: running jobs start again elsewhere, so that one that waits finds a place that the
// free room has in pieces only. Nobody loses a place by it: every job that is moved is promised its new one
// together with the one that waits, and what one job may have moved is bounded by the policy.
//
// It ends: each time one waiting job more runs, and nobody less. Only preemptible jobs are moved, for
// preemptible ones, and none before its minimum runtime.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/backfill.h"

namespace tranche::scheduler {

struct Consolidation {
  std::vector<Stop> stops;
  GangPlacement plan;  // of the job that waits
  std::vector<std::pair<JobId, GangPlacement>> moved;
};

// The job does not fit, passes no bound, and nothing that is leaving makes room for it. `wake` is moved
// forward to the time at which a job that is protected by the minimum runtime loses that protection.
std::optional<Consolidation> find_moves(const State& state, const Promises& promises, const Job& job,
                                        const Group& group, Time& wake);

}  // namespace tranche::scheduler
