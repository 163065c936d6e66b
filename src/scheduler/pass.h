// One walk over the waiting jobs that may start: start what fits, make room where somebody is entitled to it,
// around what is promised.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "scheduler/backfill.h"
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

class Pass {
 public:
  // `state` must outlive this. Facts change only through `commit`; what is known about room is kept in the
  // state as the walk finds it out.
  Pass(State& state, Commit& commit);
  void run();

  // When a job may be able to take room that is protected for now; unset: none is waiting for that.
  Time wake() const { return wake_; }

 private:
  // Of a trial: started, fits but for a reservation, fits but for a bound, does not fit.
  enum class Outcome { started, kept_out, bound, no_room };

  void recall();
  void reopen(const std::vector<Offer>& offers);
  void retry_held_back(const std::vector<Offer>& offers, const std::vector<NodeIndex>& eased);
  void hold_back_what_is_promised(ShapeId id, const std::vector<NodeIndex>& nodes);
  bool has_room_again(ShapeId id, const std::vector<Offer>& offers) const;
  void forget_what_claims_kept();
  void close_what_is_full();
  void serve_claims();
  void find_takers(Order& order);
  bool may_claim(QueueIndex index) const;
  bool all_protected();
  void try_group(Order& order, const Turn& turn);
  bool try_next(GroupId id, const Job& job);
  void park(GroupId id, Parked why, QueueIndex bound);
  bool may_evict(const Job& job);
  bool may_start(const Job& job) const;
  Outcome trial_only(const Job& job, GroupId group);
  Outcome try_job(const Job& job, GroupId group, bool passes_reservations);
  std::optional<GangPlacement> place_more_gpus(const Job& job, const ShapeRecord& record,
                                               const Layers& layers);
  std::optional<GangPlacement> place(const Job& job, const ShapeRecord& record, uint32_t tasks,
                                     const Layers& layers);
  void start(const Job& job, const GangPlacement& plan);
  bool consolidate(const Job& job, GroupId id);
  bool make_room(const Job& job, GroupId group);

  State& state_;
  Commit& commit_;
  Promises promises_;
  std::set<QueueIndex> takers_;    // whose jobs others may have to make room for
  std::vector<NodeIndex> gained_;  // where room has appeared since the last walk
  std::vector<ShapeId> reopened_;  // for that alone, and had no room before
  std::vector<ShapeId> retried_;   // for that alone, and were held back before
  HostPool hosts_;
  bool bound_keeps_ = false;  // the last place() found room that passes a bound
  Time wake_;
};

}  // namespace tranche::scheduler
