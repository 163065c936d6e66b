// Promised room: the head job that cannot start gets a reservation at the time at which enough will have
// ended by its limits; other jobs may start only around it (EASY backfill, on exact placements).
//
// Since a plan is a placement and not a count, "around" is exact: a job that may run past the
// reservation's start must fit next to the planned placement. A plan that is feasible stays so, whatever
// ends early, so recomputing it at every step can only bring it forward (property P13).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scheduler/gang.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

struct Reservation {
  JobId job;
  Time start;
  GangPlacement plan;
  Capacity after;  // free at `start` once the plan has its place
};

// Something that will be given back, at the latest at `end`.
struct Release {
  Time end;
  TaskKey task;
  uint32_t uid = 0;
  NodeId node;
  std::vector<Slice> slices;
  MilliCpu cpu;
  MiB memory;
  Footprint footprint() const { return {uid, node, slices, cpu, memory}; }
};

// What tasks hold now, as releases, by end; those for which `skip` says so are left out.
template <class Skip>
std::vector<Release> releases_of(const State& state, Skip skip) {
  std::vector<Release> releases;
  for (const auto& [key, holding] : state.holdings) {
    if (skip(key, holding)) continue;
    releases.push_back({std::max(holding.latest_end, state.now), key, holding.uid, holding.node,
                        holding.slices, holding.cpu, holding.memory});
  }
  return releases;
}

// The earliest time at which `tasks` tasks of the shape fit beside `others`, or nothing if they do not even
// fit when all has ended. `releases` in any order.
std::optional<Reservation> plan_reservation(const Job& job, const Shape& shape, const Capacity& base,
                                            std::vector<Release> releases,
                                            const std::vector<Reservation>& others, Time now);

// What a placement of the job takes, task by task.
Footprint footprint_of(const JobSpec& spec, const TaskPlacement& task);

}  // namespace tranche::scheduler
