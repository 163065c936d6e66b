#include "scheduler/reclaim.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/assert.h"
#include "scheduler/backfill.h"

namespace tranche::scheduler {
namespace {

struct Candidate {
  const Job* job = nullptr;
  MilliGpu charge;
  QueueIndex side = kRootQueue;  // `b` of the header
  bool by_quota = false;         // a reclaim of quota may take it
  bool by_share = false;         // a reclaim of fair share may, as long as `b` keeps its share
};

// What a waiting job may claim, at each of the queues above it.
class Claims {
 public:
  Claims(const State& state, const Running& running, const GroupKey& key, const std::vector<Share>& shares,
         const std::vector<MilliGpu>& planned)
      : state_(state),
        running_(running),
        shares_(shares),
        planned_(planned),
        charge_(charge_at_least(key.shape, state.capacity, key.shape.tasks_min)),
        path_(state.queues.path_to_root(key.queue)) {}

  bool quota_at(QueueIndex a) const {
    bool within = state_.queues.at(a).guaranteed.has_value();
    for (const QueueIndex at : path_) {
      const auto guaranteed = state_.queues.at(at).guaranteed;
      if (guaranteed && used(at) + charge_ > *guaranteed) within = false;
      if (at == a) break;
    }
    return within;
  }
  bool share_at(QueueIndex a) const {
    for (const QueueIndex at : path_) {
      if (used(at) + charge_ > shares_[at].entitled) return false;
      if (at == a) break;
    }
    return true;
  }
  const std::vector<QueueIndex>& path() const { return path_; }
  MilliGpu charge() const { return charge_; }

 private:
  MilliGpu used(QueueIndex at) const { return running_.charge[at] + planned_[at]; }

  const State& state_;
  const Running& running_;
  const std::vector<Share>& shares_;
  const std::vector<MilliGpu>& planned_;
  MilliGpu charge_;
  const std::vector<QueueIndex>& path_;
};

class Search {
 public:
  Search(const State& state, const Running& running, const Job& job, const GroupKey& key,
         const Capacity& base, const std::vector<Share>& shares, const std::vector<MilliGpu>& planned,
         Time& wake)
      : state_(state),
        job_(job),
        key_(key),
        base_(base),
        shares_(shares),
        planned_(planned),
        wake_(wake),
        running_(running.jobs),
        staying_(running.charge),
        removed_(state.queues.size()),
        claims_(state, running, key, shares, planned),
        path_(claims_.path()),
        charge_(claims_.charge()) {}

  // When it fits once everything that leaves has left, patience is enough.
  bool is_coming() const { return fits(base_).has_value(); }

  std::optional<Eviction> reclaim() {
    std::vector<Candidate> candidates = reclaim_candidates();
    std::sort(candidates.begin(), candidates.end(),
              [&](const Candidate& a, const Candidate& b) { return reclaim_rank(a) < reclaim_rank(b); });
    return choose(candidates, StopReason::reclaimed);
  }

  std::optional<Eviction> preempt() {
    std::vector<Candidate> candidates;
    for (const RunningJob& running : running_) {
      const JobSpec& spec = *running.job->spec;
      if (running.job->queue != job_.queue || !spec.preemptible || spec.priority >= key_.priority) continue;
      candidates.push_back({running.job, running.charge, job_.queue, true, false});
    }
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return preempt_rank(a) < preempt_rank(b); });
    return choose(candidates, StopReason::preempted);
  }

 private:
  // Furthest over its share first, then low priority, then the shortest time lost.
  std::tuple<int64_t, int32_t, int64_t, JobId> reclaim_rank(const Candidate& c) const {
    const MilliGpu excess = staying_[c.side] - shares_[c.side].entitled;
    return {-excess.count(), c.job->spec->priority, -c.job->started.nanoseconds(), c.job->id};
  }
  static std::tuple<int32_t, int64_t, JobId> preempt_rank(const Candidate& c) {
    return {c.job->spec->priority, -c.job->started.nanoseconds(), c.job->id};
  }

  // The children of the lowest queue that both are below: claimant's side and victim's side.
  std::optional<std::pair<QueueIndex, QueueIndex>> sides(QueueIndex victim) const {
    const auto& other = state_.queues.path_to_root(victim);
    size_t mine = path_.size();
    size_t theirs = other.size();
    while (mine > 0 && theirs > 0 && path_[mine - 1] == other[theirs - 1]) {
      --mine;
      --theirs;
    }
    if (mine == 0 || theirs == 0) return std::nullopt;
    return std::pair(path_[mine - 1], other[theirs - 1]);
  }

  bool is_inside_quota(const Job& job, QueueIndex up_to) {
    for (const QueueIndex at : state_.queues.path_to_root(job.queue)) {
      const Queue& queue = state_.queues.at(at);
      if (queue.quota) {
        if (staying_[at] <= *queue.quota) return true;
        auto [entry, is_new] = inside_.try_emplace(at);
        if (is_new) entry->second = jobs_inside_quota(state_, at);
        if (std::find(entry->second.begin(), entry->second.end(), job.id) != entry->second.end()) return true;
      }
      if (at == up_to) break;
    }
    return false;
  }

  std::vector<Candidate> reclaim_candidates() {
    std::vector<Candidate> candidates;
    for (const RunningJob& running : running_) {
      if (!running.job->spec->preemptible || running.job->queue == job_.queue) continue;
      const auto parted = sides(running.job->queue);
      if (!parted) continue;
      const auto [a, b] = *parted;
      Candidate candidate{running.job, running.charge, b, claims_.quota_at(a), false};
      candidate.by_share = claims_.share_at(a) && staying_[b] - running.charge >= shares_[b].entitled;
      if (!candidate.by_quota && !candidate.by_share) continue;
      if (is_inside_quota(*running.job, b)) continue;
      const Time unprotected = running.job->started + state_.policy.minimum_runtime;
      if (unprotected > state_.now) {
        protected_until_.push_back(unprotected);
        continue;
      }
      candidates.push_back(candidate);
    }
    for (const Time until : protected_until_) {
      if (!wake_.is_set() || until < wake_) wake_ = until;
    }
    return candidates;
  }

  bool may_take(const Candidate& candidate) const {
    if (candidate.by_quota) return true;
    const MilliGpu left = staying_[candidate.side] - removed_[candidate.side] - candidate.charge;
    return left >= shares_[candidate.side].entitled;
  }

  void remove(const Candidate& candidate, Capacity& room) {
    for_each_holding(candidate, [&](const Footprint& footprint) { room.give(footprint); });
    for (const QueueIndex at : state_.queues.path_to_root(candidate.job->queue))
      removed_[at] += candidate.charge;
  }
  void put_back(const Candidate& candidate, Capacity& room) {
    for_each_holding(candidate, [&](const Footprint& footprint) { room.take(footprint); });
    for (const QueueIndex at : state_.queues.path_to_root(candidate.job->queue))
      removed_[at] -= candidate.charge;
  }
  template <class Action>
  void for_each_holding(const Candidate& candidate, Action action) const {
    for (const Task& task : candidate.job->tasks) {
      const auto holding = state_.holdings.find(task.start.task);
      if (holding == state_.holdings.end() || holding->second.exited) continue;
      const Holding& h = holding->second;
      action(Footprint{h.uid, h.node, h.slices, h.cpu, h.memory});
    }
  }

  bool keeps_bounds() const {
    for (const QueueIndex at : path_) {
      const Queue& queue = state_.queues.at(at);
      const MilliGpu after = staying_[at] + planned_[at] - removed_[at] + charge_;
      if (queue.limit && after > *queue.limit) return false;
      if (!key_.preemptible && queue.quota && queue.used_not_preemptible + charge_ > *queue.quota)
        return false;
    }
    return true;
  }

  std::optional<GangPlacement> fits(const Capacity& room) const {
    if (!keeps_bounds()) return std::nullopt;
    return place_gang(key_.shape, key_.shape.tasks_min, {&room});
  }

  // Greedy until it fits, then each victim that turns out not to be needed is left alone: removing any one
  // of the rest would leave the job without a place (property P19).
  std::optional<Eviction> choose(const std::vector<Candidate>& candidates, StopReason reason) {
    Capacity room = base_;
    std::vector<Candidate> chosen;
    std::optional<GangPlacement> plan;
    for (const Candidate& candidate : candidates) {
      if (!may_take(candidate)) continue;
      remove(candidate, room);
      chosen.push_back(candidate);
      plan = fits(room);
      if (plan) break;
    }
    if (!plan) {
      std::fill(removed_.begin(), removed_.end(), MilliGpu());
      return std::nullopt;
    }
    for (size_t i = chosen.size() - 1; i-- > 0;) {
      put_back(chosen[i], room);
      if (auto smaller = fits(room)) {
        plan = std::move(smaller);
        chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        remove(chosen[i], room);
      }
    }
    if (reason == StopReason::reclaimed) assert_progress(chosen);
    return eviction(chosen, std::move(*plan), reason);
  }

  // What the header promises: nobody who loses by a claim of fair share falls below what it is entitled to.
  void assert_progress(const std::vector<Candidate>& chosen) const {
    for (const Candidate& victim : chosen) {
      TRANCHE_ASSERT(victim.by_quota ||
                     staying_[victim.side] - removed_[victim.side] >= shares_[victim.side].entitled);
    }
  }

  Eviction eviction(const std::vector<Candidate>& chosen, GangPlacement plan, StopReason reason) const {
    Eviction result{.stops = {}, .plan = std::move(plan)};
    for (const Candidate& victim : chosen) {
      for (const Task& task : victim.job->tasks) {
        if (task.phase != TaskPhase::exited) result.stops.push_back(Stop{task.start.task, reason, job_.id});
      }
    }
    return result;
  }

  const State& state_;
  const Job& job_;
  const GroupKey& key_;
  const Capacity& base_;
  const std::vector<Share>& shares_;
  const std::vector<MilliGpu>& planned_;
  Time& wake_;
  const std::vector<RunningJob>& running_;
  const std::vector<MilliGpu>& staying_;  // charge of jobs that go on, by queue
  std::vector<MilliGpu> removed_;         // charge of victims chosen so far, by queue
  Claims claims_;
  const std::vector<QueueIndex>& path_;
  MilliGpu charge_;
  std::map<QueueIndex, std::vector<JobId>> inside_;
  std::vector<Time> protected_until_;
};

}  // namespace

Running::Running(const State& state) : charge(state.queues.size()) {
  for (const auto& [key, holding] : state.holdings) {
    const Job* job = state.find(key.job);
    if (job == nullptr || job->attempt != key.attempt || job->stop_reason || holding.exited) continue;
    if (job->state != JobState::starting && job->state != JobState::running) continue;
    if (jobs.empty() || jobs.back().job != job) jobs.push_back({job, MilliGpu()});
    jobs.back().charge += holding.charge();
  }
  for (const RunningJob& running : jobs) {
    for (const QueueIndex above : state.queues.path_to_root(running.job->queue))
      charge[above] += running.charge;
  }
}

std::vector<JobId> jobs_inside_quota(const State& state, QueueIndex queue) {
  std::vector<RunningJob> jobs;
  for (const RunningJob& running : Running(state).jobs) {
    const auto& path = state.queues.path_to_root(running.job->queue);
    if (std::find(path.begin(), path.end(), queue) != path.end()) jobs.push_back(running);
  }
  std::sort(jobs.begin(), jobs.end(), [](const RunningJob& a, const RunningJob& b) {
    return std::tuple(a.job->spec->preemptible, a.job->started, a.job->id) <
           std::tuple(b.job->spec->preemptible, b.job->started, b.job->id);
  });
  std::vector<JobId> inside;
  MilliGpu sum;
  for (const RunningJob& running : jobs) {
    sum += running.charge;
    if (sum <= state.queues.at(queue).quota.value_or(MilliGpu())) inside.push_back(running.job->id);
  }
  return inside;
}

bool may_claim(const State& state, const Running& running, const GroupKey& key,
               const std::vector<Share>& shares, const std::vector<MilliGpu>& planned) {
  const Claims claims(state, running, key, shares, planned);
  for (const QueueIndex at : claims.path()) {
    if (at != kRootQueue && (claims.quota_at(at) || claims.share_at(at))) return true;
  }
  return std::any_of(running.jobs.begin(), running.jobs.end(), [&](const RunningJob& candidate) {
    return candidate.job->queue == key.queue && candidate.job->spec->priority < key.priority;
  });
}

std::optional<Eviction> find_victims(const State& state, const Running& running, const Job& job,
                                     const GroupKey& key, const Capacity& base,
                                     const std::vector<Share>& shares, const std::vector<MilliGpu>& planned,
                                     Time& wake) {
  Search search(state, running, job, key, base, shares, planned, wake);
  if (search.is_coming()) return std::nullopt;
  if (auto eviction = search.reclaim()) return eviction;
  return search.preempt();
}

}  // namespace tranche::scheduler
