// Taking from others: reclaim from queues that are over their share, preemption of lower priority in the
// same queue. Victims are whole jobs, as few as can be found, and only if the job that they make room for
// is then placed.
//
// Why it cannot loop. Where the two queues' paths part, the claimant's side is `a`, the victim's side `b`.
// - Reclaim of quota: `a` stays within its quota with the job, and every queue above the victim up to `b`
// that
//   has a quota uses more than it. What lies above quotas falls with every one, and only a start on free room
//   can raise it.
// - Reclaim of fair share: `a` stays within what it is entitled to, and each `b` is over its own by the
//   policy's surplus (a whole GPU: what rounding leaves is no reason to end anybody's work) before each
//   victim. A victim may be larger than what its side is over by, but all that the sides fall short of
//   afterwards is less than what the claimant gains. So the sum of shortfalls strictly falls; entitlements do
//   not move with time.
// - Preemption: the job has strictly higher priority than each victim.
// The first two are asserted on the chosen set. Victims below the claimant's own side count as gone when the
// queues above them are looked at, so that a claim may take from its neighbours first and from others then.
//
// Only a job without GPUs claims by quotas of processors and memory: whoever holds GPUs within their quota is
// not ended because of processors.
//
// The search goes by node: for each node the fewest victims that make room for one, two, ... tasks, then the
// cheapest nodes. In a large cluster it stops at enough nodes to choose from, those that need least first.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/backfill.h"

namespace tranche::scheduler {

struct Eviction {
  std::vector<Stop> stops;
  GangPlacement plan;
};

// Charge of victims that are chosen, by queue and all above it.
class Removed {
 public:
  MilliGpu at(QueueIndex queue) const {
    const auto found = charge_.find(queue);
    return found == charge_.end() ? MilliGpu() : found->second.first;
  }
  HostAmount host_at(QueueIndex queue) const {
    const auto found = charge_.find(queue);
    return found == charge_.end() ? HostAmount() : found->second.second;
  }
  void add(const State& state, QueueIndex queue, MilliGpu charge, const HostAmount& host) {
    for (const QueueIndex above : state.queues.path_to_root(queue)) {
      charge_[above].first += charge;
      charge_[above].second += host;
    }
  }
  void clear() { charge_.clear(); }

 private:
  std::map<QueueIndex, std::pair<MilliGpu, HostAmount>> charge_;
};

// Whether a queue has to give something to a claim, or will once its jobs are not protected any more.
struct Giving {
  bool now = false;
  Time later;  // unset: never
};

// What a waiting job may claim, at each of the queues above it.
class Entitlement {
 public:
  Entitlement(const State& state, const Promises& promises, const Group& group);

  // Above the queue on its path where it parts from a victim's, once what is removed has gone.
  bool quota_at(QueueIndex a, const Removed& removed = {}) const;
  bool share_at(QueueIndex a, const Removed& removed = {}) const;
  // At each queue of the path whose siblings may have to give: whether the job lies within its quota or its
  // share there if all that may be taken below has been, and what the siblings may lose.
  struct Level {
    QueueIndex queue = kRootQueue;
    bool quota = false;
    bool share = false;
  };
  std::vector<Level> levels() const;
  // Whether the sibling on the level has a job that might be taken, the minimum runtime apart: necessary for
  // any victim, and what it costs does not depend on the number of jobs.
  bool has_to_give(const Level& level, QueueIndex b) const;
  // Calls `visit(b)` for each such sibling until it returns false; whether it never did.
  template <class Visit>
  bool visit_givers(Visit visit) const {
    return visit_siblings(
        [&](const Level& level, QueueIndex b) { return !has_to_give(level, b) || visit(b); });
  }
  // By reclaim.
  Giving giving() const;
  // Whether any other queue has what it may claim, or its own has lower priority running: cheap, and false
  // for nearly every waiting job.
  bool any() const;
  bool has_lower_priority() const;
  // Whether it lies within the quota of some queue above it, whoever holds the room.
  bool quota_anywhere() const;
  MilliGpu charge() const { return charge_; }
  const HostAmount& host() const { return host_; }
  bool claims_host() const { return charge_.count() == 0; }

 private:
  MilliGpu used(QueueIndex at) const;
  bool may_give(const Level& level, QueueIndex b) const;
  template <class Visit>
  bool visit_siblings(Visit visit) const {
    for (const Level& level : levels()) {
      if (!level.share && !level.quota) continue;
      for (const QueueIndex b : state_.queues.at(state_.queues.at(level.queue).parent).children) {
        if (b != level.queue && !visit(level, b)) return false;
      }
    }
    return true;
  }
  int64_t may_lose(QueueIndex side, bool quota, bool share) const;
  bool passes_host_quota(QueueIndex at, const Removed& removed) const;

  const State& state_;
  const Promises& promises_;
  const Group& group_;
  MilliGpu charge_;
  HostAmount host_;
};

// Nodes that a search has found worth taking from and did not need: where the next job of the same group, of
// one task, is looked after first. Good for one walk.
struct HostPool {
  GroupId group = 0;
  StopReason reason = StopReason::reclaimed;
  TypeIndex type = 0;
  std::vector<NodeIndex> nodes;  // best last
};

// `wake` is moved forward to the time at which a victim that is protected by the minimum runtime loses that
// protection.
std::optional<Eviction> find_victims(const State& state, const Promises& promises, const Job& job,
                                     const Group& group, Time& wake, HostPool& pool);

// Jobs of the queue (and below) whose use lies within its quota: non-preemptible ones first, then by start.
// For answers: what is not among them is the first to be taken.
std::vector<JobId> jobs_inside_quota(const State& state, QueueIndex queue);

}  // namespace tranche::scheduler
