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

bool Entitlement::any() const {
  if (has_lower_priority()) return true;
  for (const Level& level : levels()) {
    if (!level.share && !level.quota) continue;
    for (const QueueIndex b : state_.queues.at(state_.queues.at(level.queue).parent).children) {
      if (b == level.queue) continue;
      const Queue& side = state_.queues.at(b);
      if (level.quota && side.staying > side.quota.value_or(MilliGpu())) return true;
      if (level.share && side.staying - side.entitled >= state_.queues.surplus_needed()) return true;
      if (claims_host() && exceeds(side.host_staying, side.host_quota)) return true;
    }
  }
  return false;
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
