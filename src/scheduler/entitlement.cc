// What a waiting job may claim, and what of a queue lies within its quota: the rules of reclaim.h without the
// search.
#include <algorithm>
#include <tuple>

#include "scheduler/reclaim.h"

namespace tranche::scheduler {

Entitlement::Entitlement(const State& state, const Promises& promises, const Group& group)
    : state_(state),
      promises_(promises),
      group_(group),
      charge_(state.waiting.shape(group.key.shape).charge),
      host_(state.waiting.shape(group.key.shape).host) {}

MilliGpu Entitlement::used(QueueIndex at) const {
  return state_.queues.at(at).staying + promises_.planned().at(at);
}

bool Entitlement::quota_at(QueueIndex a, const Removed& removed) const {
  bool within = state_.queues.at(a).guaranteed.has_value();
  for (const QueueIndex at : state_.queues.path_to_root(group_.key.queue)) {
    const auto guaranteed = state_.queues.at(at).guaranteed;
    if (guaranteed && used(at) - removed.at(at) + charge_ > *guaranteed) within = false;
    if (claims_host() && passes_host_quota(at, removed)) within = false;
    if (at == a) break;
  }
  return within;
}

bool Entitlement::share_at(QueueIndex a, const Removed& removed) const {
  for (const QueueIndex at : state_.queues.path_to_root(group_.key.queue)) {
    if (used(at) - removed.at(at) + charge_ > state_.queues.at(at).entitled) return false;
    if (claims_host() && passes_host_quota(at, removed)) return false;
    if (at == a) break;
  }
  return true;
}

bool Entitlement::passes_host_quota(QueueIndex at, const Removed& removed) const {
  const Queue& queue = state_.queues.at(at);
  if (!queue.host_quota.is_set()) return false;
  HostAmount host = queue.host_staying;
  host += promises_.planned().host_at(at);
  host += -removed.host_at(at);
  host += host_;
  return exceeds(host, queue.host_quota);
}

int64_t Entitlement::may_lose(QueueIndex side, bool quota, bool share) const {
  const Queue& queue = state_.queues.at(side);
  int64_t over = 0;
  if (quota) over = (queue.staying - queue.quota.value_or(MilliGpu())).count();
  if (share) over = std::max(over, (queue.staying - queue.entitled).count());
  return std::max<int64_t>(over, 0);
}

std::vector<Entitlement::Level> Entitlement::levels() const {
  std::vector<Level> levels;
  const auto& path = state_.queues.path_to_root(group_.key.queue);
  bool share = true;
  bool within = true;
  int64_t freed = 0;  // below the queue that is looked at
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const Queue& queue = state_.queues.at(path[i]);
    const int64_t after = (used(path[i]) + charge_).count() - freed;
    share = share && after <= queue.entitled.count();
    within = within && (!queue.guaranteed || after <= queue.guaranteed->count());
    const Level level{path[i], within && queue.guaranteed.has_value(), share};
    levels.push_back(level);
    for (const QueueIndex b : state_.queues.at(path[i + 1]).children) {
      if (b != path[i] && (level.quota || level.share)) freed += may_lose(b, level.quota, level.share);
    }
  }
  return levels;
}

bool Entitlement::has_lower_priority() const {
  const auto& running = state_.queues.at(group_.key.queue).running_priorities;
  return !running.empty() && running.begin()->first < group_.key.priority;
}

bool Entitlement::quota_anywhere() const {
  const auto& path = state_.queues.path_to_root(group_.key.queue);
  return std::any_of(path.begin(), path.end(), [&](QueueIndex at) { return quota_at(at); });
}

bool Entitlement::may_give(const Level& level, QueueIndex b) const {
  const Queue& side = state_.queues.at(b);
  if (level.quota && side.staying > side.quota.value_or(MilliGpu())) return true;
  if (level.share && side.staying - side.entitled >= state_.queues.surplus_needed()) return true;
  return claims_host() && exceeds(side.host_staying, side.host_quota);
}

bool Entitlement::has_to_give(const Level& level, QueueIndex b) const {
  if (!may_give(level, b)) return false;
  if (claims_host()) return true;
  const Queue& side = state_.queues.at(b);
  // Within its quota it gives nothing, whatever its share is.
  if (side.quota && side.staying <= *side.quota) return false;
  const Giver& giver = state_.givers.of(state_, b);
  if (!giver.first_start.is_set()) return false;
  const MilliGpu over = side.staying - side.entitled;
  return (level.quota && side.staying > side.quota.value_or(MilliGpu())) ||
         giver.cheapest - over.count() < std::max<int64_t>(charge_.count(), 1);
}

bool Entitlement::any() const {
  return has_lower_priority() ||
         !visit_siblings([&](const Level& level, QueueIndex b) { return !may_give(level, b); });
}

Giving Entitlement::giving() const {
  Giving giving;
  if (claims_host()) return {true, Time()};
  visit_givers([&](QueueIndex b) {
    const Time until = state_.givers.of(state_, b).first_start + state_.policy.minimum_runtime;
    if (until <= state_.now) {
      giving.now = true;
    } else if (!giving.later.is_set() || until < giving.later) {
      giving.later = until;
    }
    return true;
  });
  return giving;
}

const Giver& GiverMemory::of(const State& state, QueueIndex queue) {
  if (givers_.size() < state.queues.size()) givers_.resize(state.queues.size());
  const Queue& at = state.queues.at(queue);
  Giver& known = givers_[queue];
  if (known.changes == at.staying_changes) return known;
  if (known.walk == walk_) {
    // Good enough until the next walk: those that have gone only make it look easier than it is.
    if (known.added == at.staying_added) return known;
    known.added = at.staying_added;
    known.cheapest = 0;
    if (!known.first_start.is_set() || state.now < known.first_start) known.first_start = state.now;
    return known;
  }
  Giver giver{walk_, at.staying_changes, at.staying_added, INT64_MAX, Time()};
  const auto add = [&](int64_t charge, Time start) {
    giver.cheapest = std::min(giver.cheapest, charge);
    if (!giver.first_start.is_set() || start < giver.first_start) giver.first_start = start;
  };
  for (const JobId id : at.running) {
    const Job& job = *state.find(id);
    if (!job.spec->preemptible || job.stop_reason) continue;
    bool any_stays = false;
    MilliGpu charge;
    for (const Task& task : job.tasks) {
      const Holding* holding = state.holdings.find(task.start.task);
      if (holding == nullptr || !holding->stays) continue;
      any_stays = true;
      charge += holding->charge();
    }
    if (any_stays) add(job.spec->elastic ? 0 : charge.count(), job.started);
  }
  for (const QueueIndex child : at.children) {
    const Giver& below = of(state, child);
    if (below.first_start.is_set()) add(below.cheapest, below.first_start);
    // What is not exact below is not exact here.
    if (below.changes != state.queues.at(child).staying_changes) giver.changes = Giver::kInexact;
  }
  return givers_[queue] = giver;
}

std::vector<JobId> jobs_inside_quota(const State& state, QueueIndex queue) {
  struct Running {
    const Job* job;
    MilliGpu charge;
  };
  std::vector<Running> jobs;
  std::vector<QueueIndex> below{queue};
  for (size_t next = 0; next < below.size(); ++next) {
    const Queue& at = state.queues.at(below[next]);
    below.insert(below.end(), at.children.begin(), at.children.end());
    for (const JobId id : at.running) {
      const Job* job = state.find(id);
      MilliGpu charge;
      for (const Task& task : job->tasks) {
        const Holding* holding = state.holdings.find(task.start.task);
        if (holding != nullptr && holding->stays) charge += holding->charge();
      }
      jobs.push_back({job, charge});
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const Running& a, const Running& b) {
    return std::tuple(a.job->spec->preemptible, a.job->started, a.job->id) <
           std::tuple(b.job->spec->preemptible, b.job->started, b.job->id);
  });
  std::vector<JobId> inside;
  MilliGpu sum;
  for (const Running& running : jobs) {
    sum += running.charge;
    if (sum <= state.queues.at(queue).quota.value_or(MilliGpu())) inside.push_back(running.job->id);
  }
  return inside;
}

}  // namespace tranche::scheduler
