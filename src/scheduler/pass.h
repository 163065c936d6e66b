// One walk over all waiting jobs: start what fits, make room where somebody is entitled to it, promise room
// to the first that must wait.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "scheduler/backfill.h"
#include "scheduler/fairness.h"
#include "scheduler/order.h"
#include "scheduler/reclaim.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

// Takes a decision: records it and applies it to the state at once, so that what follows sees it.
class Commit {
 public:
  virtual ~Commit() = default;
  virtual void decide(Decision decision) = 0;
};

// A bound of a queue that a job would pass.
struct Bound {
  QueueIndex queue = kRootQueue;
  bool is_quota = false;
  MilliGpu used;
  MilliGpu bound;
};

// What a placement would be charged.
MilliGpu charge_of_plan(const GangPlacement& plan, const Capacity& capacity);

class Pass {
 public:
  // `commit` null: read only; nothing is started or stopped, but reservations and claims are worked out
  // as they stand. `state` must outlive this and changes only through `commit`.
  Pass(const State& state, Commit* commit);
  void run();

  // When a job may be able to take room that is protected for now; unset: none is waiting for that.
  Time wake() const { return wake_; }

  // --- what the walk found, for answers ---
  const std::vector<Reservation>& reservations() const { return reservations_; }
  const std::vector<Share>& shares() const { return shares_; }
  // Free room less what is promised to claims; the state's own capacity when there are none.
  const Capacity& unpromised() const { return promised_ ? *promised_ : state_.capacity; }
  const std::vector<std::pair<JobId, GangPlacement>>& claims() const { return claim_plans_; }
  // Charge promised to claimants on top of what their queues use.
  const std::vector<MilliGpu>& planned() const { return planned_; }
  // The first bound above the queue that `charge` more would pass.
  std::optional<Bound> bound_passed(QueueIndex queue, MilliGpu charge, bool preemptible) const;
  // Whether one more element of the group's array may run.
  bool array_has_room(const GroupKey& key) const;

 private:
  enum class Outcome { started, claimed, blocked };

  void compute_shares_once();
  void plan_claims();
  void hold(const Job& job, const GangPlacement& plan);
  Outcome try_group(QueueIndex queue, const Head& head);
  Outcome try_job(const Job& job, const GroupKey& key);
  std::optional<GangPlacement> place(const Job& job, const GroupKey& key);
  std::optional<GangPlacement> place_exactly(const Job& job, const GroupKey& key, uint32_t tasks);
  void start(const Job& job, const GangPlacement& plan);
  bool make_room(const Job& job, const GroupKey& key);
  void reserve(const Job& job, const GroupKey& key);
  Layers base_layers() const;
  bool kept_out(const Shape& shape) const;

  const State& state_;
  Commit* commit_;
  std::vector<Share> shares_;
  std::vector<MilliGpu> planned_;
  std::optional<Capacity> promised_;
  std::vector<std::pair<JobId, GangPlacement>> claim_plans_;
  std::vector<Reservation> reservations_;
  std::set<Shape> failed_;  // shapes that do not fit what is free and not promised
  std::set<Shape> reserve_tried_;
  std::optional<Running> running_;  // worked out when first asked for; reset by a start or a claim
  Time wake_;
};

}  // namespace tranche::scheduler
