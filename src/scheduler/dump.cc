// What stands, as plain facts for whoever checks a proof.
#include <algorithm>

#include "model/state_dump.h"
#include "scheduler/implementation.h"

namespace tranche::scheduler {
namespace {

std::vector<PlacementFact> placements(const GangPlacement& plan) {
  std::vector<PlacementFact> facts;
  for (const TaskPlacement& task : plan.tasks) facts.push_back({task.node, task.slices, task.rank});
  return facts;
}

JobFact fact_of(const State& state, const Job& job) {
  JobFact fact;
  fact.job = job.id;
  fact.array = job.array;
  fact.spec = job.spec;
  fact.state = job.state;
  fact.held = job.held || job.state == JobState::held;
  fact.submitted = job.submitted;
  fact.started = job.started;
  if (!job.begin_passed) fact.not_before = job.not_before;
  for (const Dependency& dependency : job.spec->dependencies) {
    if (status_of(dependency, state) == DependencyStatus::waiting) fact.unmet.push_back(dependency.job);
  }
  std::sort(fact.unmet.begin(), fact.unmet.end());
  fact.unmet.erase(std::unique(fact.unmet.begin(), fact.unmet.end()), fact.unmet.end());
  return fact;
}

void add_holdings(const State& state, StateDump& dump) {
  for (const TaskKey& key : state.holdings.keys()) {
    const Holding& holding = *state.holdings.find(key);
    dump.holdings.push_back({key, holding.uid, state.queues.at(holding.queue).path, holding.preemptible,
                             holding.node, holding.cpu, holding.memory, holding.slices, holding.latest_end,
                             holding.exited, state.leaving.contains(key)});
  }
}

void add_promises(const State& state, Promises& promises, StateDump& dump) {
  for (const Claim& claim : state.claims) {
    ClaimFact fact{claim.beneficiary, {}, {}};
    std::vector<JobId> all;
    for (const auto& [key, number] : state.leaving) {
      if (std::find(claim.victims.begin(), claim.victims.end(), key) != claim.victims.end())
        fact.leaving.push_back(key.job);
      if (number <= claim.waits_for) all.push_back(key.job);
    }
    if (fact.leaving.empty()) fact.leaving = all;
    fact.leaving.erase(std::unique(fact.leaving.begin(), fact.leaving.end()), fact.leaving.end());
    for (const auto& [job, plan] : promises.claims()) {
      if (job == claim.beneficiary) fact.plan = placements(plan);
    }
    dump.claims.push_back(std::move(fact));
  }
  for (const Reservation* reservation : promises.reservations())
    dump.reservations.push_back({reservation->job, reservation->start, placements(reservation->plan)});
  std::sort(dump.reservations.begin(), dump.reservations.end(),
            [](const auto& a, const auto& b) { return a.job < b.job; });
}

}  // namespace

StateDump Scheduler::dump() const {
  const State& state = *state_;
  StateDump dump;
  dump.now = state.now;
  dump.policy = state.policy;
  dump.nodes = nodes();
  for (const auto& [id, record] : state.gpus) {
    if (!record.removed) dump.gpus.push_back({record.gpu, record.health, record.drained});
  }
  for (QueueIndex index = 1; index < state.queues.size(); ++index) {
    const Queue& queue = state.queues.at(index);
    dump.queues.push_back({queue.path, queue.quota, queue.limit, queue.host_quota.cpu, queue.host_limit.cpu,
                           queue.host_quota.memory, queue.host_limit.memory});
  }
  std::sort(dump.queues.begin(), dump.queues.end(),
            [](const QueueFact& a, const QueueFact& b) { return a.path < b.path; });
  for (const JobId id : live_jobs()) dump.jobs.push_back(fact_of(state, *state.find(id)));
  for (const auto& [id, array] : state.arrays) dump.arrays.push_back({id, array.running_max});
  add_holdings(state, dump);
  add_promises(state, state_->analysis(), dump);
  return dump;
}

}  // namespace tranche::scheduler
