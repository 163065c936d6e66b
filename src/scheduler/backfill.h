// Promised room. Two kinds of promise stand at any moment, and both follow from the state alone:
//
// - a *claim*: others are being stopped for a job, and its place is set aside until they have gone;
// - a *reservation*: for each GPU type, the waiting job that has come furthest (it has waited longest, an
//   hour more for each step of priority) and does not fit gets the time and the place at which it will fit if
//   everything runs to its limit. Others start only around it (EASY backfill, on exact placements).
//
// Since a plan is a placement and not a count, "around" is exact: a job that may run past the reservation's
// start must fit next to the planned placement. A plan that is feasible stays so, whatever ends early, so
// recomputing it at every step can only bring it forward (property P13). And since the job that has come
// furthest is not overtaken by later ones of its queue and priority, each of those is the next to be promised
// room after finitely many others (property P9). It does not hold across priorities: while the job fits it is
// promised nothing, and whoever is higher in the order may take the room at that moment, again and again.
#pragma once

#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "model/answer.h"
#include "scheduler/gang.h"
#include "scheduler/order.h"
#include "scheduler/reservation_memory.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

// A reservation of a task without GPUs.
inline constexpr TypeIndex kNoType = UINT16_MAX;

// A bound of a queue that a job would pass.
struct Bound {
  QueueIndex queue = kRootQueue;
  bool is_quota = false;
  int64_t used = 0;  // milli-GPU, milli-CPU or MiB
  int64_t bound = 0;
  BoundResource resource = BoundResource::gpu;
  int64_t needed = 0;
};

// Whether one of the record's tasks wants the type; kNoType: whether one of them asks for no GPU.
bool wants_type(const ShapeRecord& record, TypeIndex type);

// What a placement of the job takes, task by task, and what it would be charged.
Footprint footprint_of(const JobSpec& spec, const TaskPlacement& task);
MilliGpu charge_of_plan(const GangPlacement& plan, const Capacity& capacity);
HostAmount host_of_plan(const JobSpec& spec, const GangPlacement& plan);

class Promises {
 public:
  // Nothing is promised yet. `state` must outlive this; it may change only as taken() and hold() are told.
  explicit Promises(const State& state);
  Promises(const Promises&) = delete;
  Promises& operator=(const Promises&) = delete;
  // Sets aside the room of all claims, in their order.
  void hold_claims();

  const std::vector<std::pair<JobId, GangPlacement>>& claims() const { return claims_; }
  const Planned& planned() const { return planned_; }
  bool is_claimant(JobId job) const;
  // Free room, and free room less what is promised to claims.
  const View& now() const { return now_; }
  const View& unpromised() const { return promises_anything_ ? *when_left_ : now_; }
  Layers layers() const;

  // A view in which everything that is leaving has left, less what is promised. Good until the next hold().
  const View& when_left() const;
  void hold_move(const Claim& claim, const Job& job);
  // A placement of the claim's job in that view, if it has one.
  std::optional<GangPlacement> plan_of(const Job& job) const;
  // Promises the plan; `victims` are going to leave for it.
  void hold(const Job& job, const GangPlacement& plan, const std::vector<TaskKey>& victims = {});
  // The job has been started there.
  void taken(const JobSpec& spec, const GangPlacement& plan);

  // The first bound above the queue that `charge` more would pass.
  std::optional<Bound> bound_passed(QueueIndex queue, MilliGpu charge, const HostAmount& host,
                                    bool preemptible) const;
  // Whether one more element of the group's array may run.
  bool array_has_room(const GroupKey& key) const;

  // Of the type (kNoType: for tasks without GPUs); null: none. All are worked out when one is first asked
  // for.
  const Reservation* reservation(TypeIndex type);
  // Works them out if they are not: before a start, so that they are those of the moment before it.
  void know_reservations();
  // Works out all of them in `memory` from now on, unless what stands there still holds. Returns the nodes on
  // which somebody may find room that was promised to others before: none if it holds; unset if nothing was
  // known. To be asked before anything is started; not where something is promised to claims.
  std::optional<std::vector<NodeIndex>> recall_reservations(ReservationMemory& memory, Waiting& waiting);
  // Of all types.
  std::vector<const Reservation*> reservations();
  // What a job that ends at `end` at the latest has to fit around: the reservations of those that have come
  // further than it.
  void add_reservations(const ShapeRecord& record, const Job& job, Time end, Layers& layers);
  // Without backfill nobody passes a waiting job that could use the same kind of GPU.
  bool is_kept_out(const ShapeRecord& record, const Job& job);
  // A job of the shape that holds what it gets for `duration` has been kept out, or would be if it had come
  // after all others: every one that comes after this is kept out for the same reason, if it holds it for as
  // long or longer. `mine`: what it had to fit around hangs on who it is.
  AgeKey keeps_out_behind(const ShapeRecord& record, const AgeKey& mine, int64_t duration);
  // Whether one task would fit on one of the nodes around the reservations of those that come before `mine`.
  bool fits_around(const ShapeRecord& record, const AgeKey& mine, int64_t duration,
                   const std::vector<NodeIndex>& nodes);
  // Whether a reservation stands on one of the nodes.
  bool stand_on(const std::vector<NodeIndex>& nodes);

 private:
  std::optional<Reservation>& slot(TypeIndex type);
  template <class Action>
  void for_reservations(const ShapeRecord& record, Action action);
  void add_reservations(const ShapeRecord& record, const std::pair<int64_t, JobId>& mine, Time end,
                        Layers& layers);
  Time ends_after(int64_t duration) const;
  void work_out();
  bool still_holds(const Waiting& waiting);
  bool nodes_still_hold() const;
  bool look_again(const std::vector<ShapeId>& touched);
  struct Line {
    ShapeId shape = 0;
    std::set<AgeKey>::const_iterator next;
    bool operator>(const Line& other) const { return *next > *other.next; }
  };
  using Lines = std::priority_queue<Line, std::vector<Line>, std::greater<>>;
  bool walk(Lines& lines, const std::optional<AgeKey>& no_plan_before);
  bool is_wanted(const ShapeRecord& record);
  bool waits_for_room(const Group& group, JobId job) const;
  bool is_blocked(ShapeId shape) const;
  std::optional<Reservation> plan(const Job& job, ShapeId shape);
  std::optional<Reservation> plan_step(const Job& job, const ShapeRecord& record, const Layers& others);

  const State& state_;
  View now_;
  mutable std::optional<View> when_left_;
  bool promises_anything_ = false;  // when_left_ is less what is promised
  Planned planned_;
  std::vector<std::pair<JobId, GangPlacement>> claims_;
  FlatIndex<JobId, IdHash<JobId>> claimants_;
  ReservationMemory own_;
  ReservationMemory* memory_ = &own_;
};

}  // namespace tranche::scheduler
