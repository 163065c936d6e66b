// Taking from others: reclaim from queues that are over their share, preemption of lower priority in the
// same queue. Victims are whole jobs, as few as can be found, and only if the job that they make room for
// is then placed.
//
// Why it cannot loop. Where the two queues' paths part, the claimant's side is `a`, the victim's side `b`.
// - Reclaim of quota: `a` stays within its quota with the job, and every queue above the victim up to `b`
// that
//   has a quota uses more than it. What lies above quotas falls with every one, and only a start on free room
//   can raise it.
// - Reclaim of fair share: `a` stays within what it is entitled to, and `b` keeps what it is entitled to
//   after the victim. So the sum of shortfalls strictly falls; entitlements do not move with time. And `b`
//   must be over by a whole GPU: what rounding leaves is no reason to end anybody's work.
// - Preemption: the job has strictly higher priority than each victim.
// The first two are asserted on the chosen set.
//
// The search goes by node: for each node the fewest victims that make room for one, two, ... tasks, then the
// cheapest nodes. In a large cluster it stops at enough nodes to choose from, those that need least first.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/backfill.h"

namespace tranche::scheduler {

struct Eviction {
  std::vector<Stop> stops;
  GangPlacement plan;
};

// What a waiting job may claim, at each of the queues above it.
class Entitlement {
 public:
  Entitlement(const State& state, const Promises& promises, const Group& group);

  // Above the queue on its path where it parts from a victim's.
  bool quota_at(QueueIndex a) const;
  bool share_at(QueueIndex a) const;
  // Whether any other queue has what it may claim, or its own has lower priority running: cheap, and false
  // for nearly every waiting job.
  bool any() const;
  bool has_lower_priority() const;
  // Whether it lies within the quota of some queue above it, whoever holds the room.
  bool quota_anywhere() const;
  MilliGpu charge() const { return charge_; }

 private:
  MilliGpu used(QueueIndex at) const;

  const State& state_;
  const Promises& promises_;
  const Group& group_;
  MilliGpu charge_;
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
