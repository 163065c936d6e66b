// Plays a scenario on the scheduler, through the same step() as the daemon, and keeps what became of it.
//
// The scheduler decides at once and has no rounds; a round here is all decisions on what the previous round
// brought about: starts begin to run, what was stopped exits and lets its GPUs go. It ends when nothing is
// decided any more, at the latest after kRoundsMax.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "replay/scenario_cluster.h"
#include "scheduler/scheduler.h"

namespace tranche::replay {

inline constexpr int kRoundsMax = 40;

// What became of one task of the table.
struct TaskOutcome {
  ScenarioStatus status =
      ScenarioStatus::pending;  // running, pending, releasing, stuckinreleasing, failed, succeeded
  NodeId node;
  std::vector<Slice> slices;
  bool was_started = false;  // in this run
  bool was_stopped = false;
};

struct RoundCounts {
  int64_t starts = 0;
  int64_t stops = 0;
  auto operator<=>(const RoundCounts&) const = default;
};

struct ScenarioResult {
  std::map<std::string, TaskOutcome> tasks;  // by the table's id
  std::vector<RoundCounts> rounds;
  bool quiescent = false;
  RoundCounts after_match;              // what still happened in the rounds after the match
  std::vector<std::string> violations;  // of the invariants
};

ScenarioResult run_scenario(const Scenario& scenario, const ScenarioCluster& cluster);

}  // namespace tranche::replay
