#include "scheduler/pass.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "scheduler/consolidate.h"
#include "scheduler/task_step.h"

namespace tranche::scheduler {

Pass::Pass(State& state, Commit& commit) : state_(state), commit_(commit), promises_(state) {
  state_.givers.begin_walk();
}

void Pass::run() {
  recall();
  if (state_.waiting.empty()) return;
  // Room that is being freed comes first: a beneficiary starts as soon as it can, and until then its place
  // is set aside, together with the free room that it needs beside it.
  if (!state_.claims.empty()) serve_claims();
  Order order(state_, promises_.planned());
  find_takers(order);
  while (const auto turn = order.next()) try_group(order, *turn);
  // Good for this walk alone.
  state_.waiting.unpark_passing(state_.queues);
  if (!promises_.claims().empty()) state_.was_promised = true;
}

// What is known from the walk before, less what room that has appeared since makes doubtful.
void Pass::recall() {
  Waiting& waiting = state_.waiting;
  std::vector<Offer> offers;
  if (state_.know_nothing) {
    state_.know_nothing = state_.was_promised = false;
    state_.full_beside_claims.clear();
    waiting.open_all();
    waiting.unpark_all(state_.queues);
    state_.capacity.forget_gains();
  } else {
    if (state_.was_promised || !state_.claims.empty()) forget_what_claims_kept();
    gained_ = state_.capacity.gains();
    state_.capacity.forget_gains();
    std::sort(gained_.begin(), gained_.end());
    gained_.erase(std::unique(gained_.begin(), gained_.end()), gained_.end());
    for (const NodeIndex node : gained_) offers.push_back(offer_of(state_.capacity, node));
    reopen(offers);
  }
  if (!state_.claims.empty() || waiting.empty()) return;
  // Nobody will ask where nothing is open and nothing held back.
  if (waiting.held_back().empty() && waiting.open().empty()) return;
  const auto eased = promises_.recall_reservations(state_.reservations, waiting);
  if (!eased) return waiting.open_held_back();
  for (const ShapeId id : reopened_) hold_back_what_is_promised(id, gained_);
  retry_held_back(offers, *eased);
}

// What was found beside a claim is not known without it, nor beside another. What had no room at all has none
// beside any.
void Pass::forget_what_claims_kept() {
  Waiting& waiting = state_.waiting;
  state_.was_promised = false;
  for (const ShapeId id : std::exchange(state_.full_beside_claims, {})) {
    if (waiting.shape(id).groups > 0) waiting.open_shape(id);
  }
  waiting.unpark_all(state_.queues);
  waiting.open_held_back();
}

// Who was held back is tried again where room has appeared, and where reservations stood that are not what
// they were.
void Pass::retry_held_back(const std::vector<Offer>& offers, const std::vector<NodeIndex>& eased) {
  Waiting& waiting = state_.waiting;
  if (offers.empty() && eased.empty()) return;
  if (!state_.policy.backfill && !eased.empty()) return waiting.open_held_back();
  std::vector<NodeIndex> nodes = gained_;
  nodes.insert(nodes.end(), eased.begin(), eased.end());
  std::vector<Offer> eased_offers;
  for (const NodeIndex node : eased) eased_offers.push_back(offer_of(state_.capacity, node));
  const BitSet& held_back = waiting.held_back();
  for (uint32_t id = held_back.next(0); id != BitSet::kNone; id = held_back.next(id + 1)) {
    if (waiting.is_closed(id)) continue;
    // Most of what was promised is not free yet, and then it is nothing to those that wait now.
    if (has_room_again(id, eased_offers)) {
      const auto least = waiting.least_held(id);
      if (!least || promises_.fits_around(waiting.shape(id), least->first, least->duration, eased)) {
        waiting.open_shape(id);
        hold_back_what_is_promised(id, nodes);
        continue;
      }
    }
    if (!has_room_again(id, offers)) continue;
    waiting.try_held_back(id);
    hold_back_what_is_promised(id, gained_);
    retried_.push_back(id);
  }
}

// The shape has been opened for what it may find on the nodes, and finds nothing elsewhere: what it cannot
// have there because it is promised needs no trial.
void Pass::hold_back_what_is_promised(ShapeId id, const std::vector<NodeIndex>& nodes) {
  Waiting& waiting = state_.waiting;
  const ShapeRecord& record = waiting.shape(id);
  if (!state_.policy.backfill || record.step != nullptr || !promises_.stand_on(nodes)) return;
  std::vector<int64_t> durations;
  for (const ClassId each : record.classes) durations.push_back(waiting.duration_class(each).duration);
  std::sort(durations.begin(), durations.end());
  for (const int64_t duration : durations) {
    if (promises_.fits_around(record, kBehindAll, duration, nodes)) continue;
    waiting.close_longer(id, duration, promises_.keeps_out_behind(record, kBehindAll, duration));
    return;
  }
}

// Opens the shapes that may have found room; what they find, others cannot have.
void Pass::reopen(const std::vector<Offer>& offers) {
  Waiting& waiting = state_.waiting;
  if (offers.empty()) return;
  const BitSet& closed = waiting.closed();
  for (uint32_t id = closed.next(0); id != BitSet::kNone; id = closed.next(id + 1)) {
    if (!has_room_again(id, offers)) continue;
    waiting.open_shape(id);
    reopened_.push_back(id);
  }
}

bool Pass::has_room_again(ShapeId id, const std::vector<Offer>& offers) const {
  const Gate& gate = state_.waiting.gate(id);
  const auto first =
      std::find_if(offers.begin(), offers.end(), [&](const Offer& offer) { return offer.passes(gate); });
  if (first == offers.end()) return false;
  const ShapeRecord& record = state_.waiting.shape(id);
  const View view(state_.capacity);
  const Layers layers{&view};
  const bool on_one = std::any_of(first, offers.end(), [&](const Offer& offer) {
    return offer.passes(gate) &&
           std::any_of(record.choices.begin(), record.choices.end(), [&](const TypeChoice& choice) {
             return fits_on_node(record.shape, choice, offer.node, layers);
           });
  });
  if (!on_one || record.shape.tasks_min == 1) return on_one;
  return !has_surely_no_room(Search{record.shape, record.choices, layers}, record.shape.tasks_min);
}

// After a start: shapes that were opened for the room that it took do not have to be tried to know that.
void Pass::close_what_is_full() {
  if (reopened_.empty() && retried_.empty()) return;
  Waiting& waiting = state_.waiting;
  std::vector<Offer> offers;
  for (const NodeIndex node : gained_) offers.push_back(offer_of(state_.capacity, node));
  const auto is_full = [&](ShapeId id) {
    return waiting.shape(id).groups == 0 || !has_room_again(id, offers);
  };
  std::erase_if(reopened_, [&](ShapeId id) {
    if (!is_full(id)) return false;
    if (waiting.shape(id).groups > 0) waiting.close_shape(id);
    return true;
  });
  std::erase_if(retried_, [&](ShapeId id) {
    if (!is_full(id)) return false;
    if (waiting.shape(id).groups > 0) waiting.hold_back_again(id);
    return true;
  });
}

void Pass::serve_claims() {
  const std::vector<Claim> claims = state_.claims;
  for (const Claim& claim : claims) {
    const Job* job = state_.find(claim.beneficiary);
    if (job == nullptr) continue;
    if (job->group == 0) {
      promises_.hold_move(claim, *job);
      continue;
    }
    const Group& group = state_.waiting.group(job->group);
    if (!promises_.array_has_room(group.key)) continue;
    const ShapeRecord& record = state_.waiting.shape(group.key.shape);
    // The bound was kept when the room was planned, and is looked at again: the queue may have grown.
    if (const auto plan = place(*job, record, record.shape.tasks_min, promises_.layers())) {
      start(*job, *plan);
    } else if (const auto later = promises_.plan_of(*job)) {
      promises_.hold(*job, *later);
    }
  }
}

// Queues with a job that others may have to make room for.
void Pass::find_takers(Order& order) {
  QueueTree& queues = state_.queues;
  const auto look = [&](QueueIndex index) {
    const Queue& queue = queues.at(index);
    bool finds_any = false;
    std::vector<MilliGpu> seen;  // claims of as many GPUs have the same answer
    for (const auto& [key, group] : queue.heads) {
      const Entitlement claim(state_, promises_, state_.waiting.group(group));
      const bool is_lower = claim.has_lower_priority();
      if (!is_lower && std::find(seen.begin(), seen.end(), claim.charge()) != seen.end()) continue;
      if (!claim.claims_host()) seen.push_back(claim.charge());
      if (!claim.any()) continue;
      const Giving giving = claim.giving();
      finds_any = is_lower || giving.now || giving.later.is_set();
      if (finds_any) break;
    }
    if (!finds_any) return;
    takers_.insert(index);
    order.visit_all(index);
  };
  const BitSet& inverted = queues.inverted();
  for (uint32_t at = inverted.next(0); at != BitSet::kNone; at = inverted.next(at + 1)) look(at);
  const BitSet& uneven = queues.uneven();
  if (uneven.empty() || all_protected()) return;
  for (QueueIndex index = 0; index < queues.size(); ++index) {
    if (queues.at(index).heads.empty() || !may_claim(index)) continue;
    const auto& path = queues.path_to_root(index);
    if (std::any_of(path.begin() + 1, path.end(), [&](QueueIndex at) { return uneven.contains(at); }))
      look(index);
  }
}

// Whether something is left of the queue's share, or of a quota above it: nearly all that wait have neither.
bool Pass::may_claim(QueueIndex index) const {
  const auto used = [&](QueueIndex at) { return state_.queues.at(at).staying + promises_.planned().at(at); };
  if (used(index) < state_.queues.at(index).entitled) return true;
  const auto& path = state_.queues.path_to_root(index);
  return std::any_of(path.begin(), path.end(), [&](QueueIndex at) {
    const auto guaranteed = state_.queues.at(at).guaranteed;
    return guaranteed && used(at) < *guaranteed;
  });
}

// Whether the minimum runtime protects everything that could be reclaimed; wake() is when that first changes.
bool Pass::all_protected() {
  const auto longest = state_.longest_running();
  if (!longest) return true;
  const Time until = *longest + state_.policy.minimum_runtime;
  if (until <= state_.now) return false;
  if (!wake_.is_set() || until < wake_) wake_ = until;
  return true;
}

void Pass::try_group(Order& order, const Turn& turn) {
  const Group& group = state_.waiting.group(turn.group);
  if (!turn.by_arrival) order.visited(turn.queue, head_key(group.key, group.jobs.front()));
  // A claim takes one job of the group; the next one is tried at once.
  size_t passed = 0;
  while (true) {
    while (passed < group.jobs.size() &&
           promises_.is_claimant(*(group.jobs.begin() + static_cast<std::ptrdiff_t>(passed))))
      ++passed;
    if (passed == group.jobs.size()) return park(turn.group, Parked::claimed, kRootQueue);
    const JobId next = *(group.jobs.begin() + static_cast<std::ptrdiff_t>(passed));
    if (!try_next(turn.group, *state_.find(next))) return;
  }
}

void Pass::park(GroupId id, Parked why, QueueIndex bound) {
  if (state_.waiting.group(id).parked == Parked::no) state_.waiting.park(id, why, bound, state_.queues);
}

// Whether room is being made for the job, so that the next one of the group may be tried.
bool Pass::try_next(GroupId id, const Job& job) {
  Waiting& waiting = state_.waiting;
  const Group& group = waiting.group(id);
  const ShapeId shape = group.key.shape;
  if (!promises_.array_has_room(group.key)) {
    park(id, Parked::array, kRootQueue);
    return false;
  }
  const Entitlement entitlement(state_, promises_, group);
  const bool may_take = takers_.contains(group.key.queue) && entitlement.any() && may_evict(job);
  const auto bound = promises_.bound_passed(group.key.queue, entitlement.charge(), entitlement.host(),
                                            group.key.preemptible);
  if (bound) {
    park(id, Parked::bound, bound->queue);
    return may_take && make_room(job, id);
  }
  if (!waiting.is_closed(shape)) {
    const int64_t duration = waiting.duration_class(group.job_class).duration;
    switch (!may_start(job) ? trial_only(job, id)
                            : try_job(job, id, may_take && entitlement.quota_anywhere())) {
      case Outcome::started:
        return false;
      case Outcome::kept_out:
        // Only what does not fit may take from others; what fits but for a reservation waits for its turn.
        if (waiting.shape(shape).step != nullptr) {
          park(id, Parked::kept_out, kRootQueue);
        } else {
          const AgeKey mine{state_.aged(job), job.id, id};
          waiting.close_longer(shape, duration,
                               promises_.keeps_out_behind(waiting.shape(shape), mine, duration));
        }
        return false;
      case Outcome::bound:
        // On another type of GPU it may lie within the bound, so nothing is sure for the next walk.
        park(id, Parked::bound, kRootQueue);
        state_.know_nothing = true;
        return false;
      case Outcome::no_room:
        if (consolidate(job, id)) return true;
        // Where the tasks of a step may go is not known from the room of single nodes, so it is tried again
        // in the next walk.
        if (waiting.shape(shape).step != nullptr) {
          park(id, Parked::kept_out, kRootQueue);
        } else {
          if (!promises_.claims().empty() && place_record(waiting.shape(shape), {&promises_.now()}))
            state_.full_beside_claims.push_back(shape);
          waiting.close_shape(shape);
        }
        break;
    }
  }
  return may_take && make_room(job, id);
}

// A job that is younger than its preemption delay waits for room that nobody has to make.
bool Pass::may_evict(const Job& job) {
  const Duration delay = job.spec->preemption_delay;
  if (delay <= Duration{}) return true;
  const Time from = job.submitted + delay;
  if (from <= state_.now) return true;
  if (!wake_.is_set() || from < wake_) wake_ = from;
  return false;
}

// With a single action that is not the plain start, only what was stopped for it starts by itself.
bool Pass::may_start(const Job& job) const {
  const SchedulerAction only = state_.policy.only_action;
  return only == SchedulerAction::all || only == SchedulerAction::allocate ||
         (only != SchedulerAction::stale_gang && job.attempt > 1);
}

// As many tasks as an elastic job may have, or as few as it can live with.
Pass::Outcome Pass::try_job(const Job& job, GroupId group, bool passes_reservations) {
  const ShapeRecord& record = state_.waiting.shape(state_.waiting.group(group).key.shape);
  const Layers base = promises_.layers();
  Layers layers = base;
  bool is_kept_out = false;
  bound_keeps_ = false;
  // Also for whoever passes them: otherwise it would hang on who else was tried before, and so on what is
  // known about room, whether they are worked out with the job among those that wait or among those that run.
  promises_.know_reservations();
  if (!passes_reservations) {
    const Time end = State::latest_end(*job.spec, state_.now);
    promises_.add_reservations(record, job, end, layers);
    is_kept_out = promises_.is_kept_out(record, job);
  }
  std::optional<GangPlacement> plan;
  if (!is_kept_out && record.shape.tasks_max > record.shape.tasks_min && record.step == nullptr)
    plan = place(job, record, record.shape.tasks_max, layers);
  if (!is_kept_out && record.shape.gpu_count_max > 0) plan = place_more_gpus(job, record, layers);
  if (!is_kept_out && !plan) plan = place(job, record, record.shape.tasks_min, layers);
  if (plan) {
    start(job, *plan);
    return Outcome::started;
  }
  if (bound_keeps_) return Outcome::bound;
  if (!is_kept_out && layers.size() == base.size()) return Outcome::no_room;
  return place_record(record, base) ? Outcome::kept_out : Outcome::no_room;
}

// What a fraction is charged depends on the GPU: one type may pass a bound where another does not.
std::optional<GangPlacement> Pass::place(const Job& job, const ShapeRecord& record, uint32_t tasks,
                                         const Layers& layers) {
  bound_keeps_ = false;
  const Search search{record.shape, record.choices, layers, &state_.scores, &record.cache};
  auto plan = record.step != nullptr ? record.step->place(layers, &state_.scores) : place_gang(search, tasks);
  const auto keeps = [&](const GangPlacement& found) {
    return !promises_.bound_passed(job.queue, charge_of_plan(found, state_.capacity),
                                   host_of_plan(*job.spec, found), job.spec->preemptible);
  };
  if (!plan || keeps(*plan)) return plan;
  bound_keeps_ = true;
  if (record.step != nullptr) return std::nullopt;
  for (const TypeChoice& choice : record.choices) {
    plan = place_gang_on_type(search, choice, tasks);
    if (plan && keeps(*plan)) return plan;
  }
  return std::nullopt;
}

// The one task of a moldable job with as many GPUs more than it needs as there are, and as its queues may
// use.
std::optional<GangPlacement> Pass::place_more_gpus(const Job& job, const ShapeRecord& record,
                                                   const Layers& layers) {
  if (record.step != nullptr) return std::nullopt;
  Shape shape = record.shape;
  for (shape.gpu_count = shape.gpu_count_max; shape.gpu_count > record.shape.gpu_count; --shape.gpu_count) {
    shape.topology = job.spec->task.gpu.topology;  // also where one GPU would have been enough
    auto plan = place_gang(Search{shape, record.choices, layers, &state_.scores}, 1);
    if (!plan) continue;
    const bool keeps = !promises_.bound_passed(job.queue, charge_of_plan(*plan, state_.capacity),
                                               host_of_plan(*job.spec, *plan), job.spec->preemptible);
    if (keeps) return plan;
  }
  return std::nullopt;
}

void Pass::start(const Job& job, const GangPlacement& plan) {
  const JobId id = job.id;
  const auto spec = job.spec;
  const uint32_t attempt = job.attempt;
  promises_.taken(*spec, plan);
  uint32_t next = 0;
  const bool by_rank = is_structured(*spec);
  for (const TaskPlacement& task : plan.tasks) {
    const uint32_t rank = by_rank ? task.rank : next++;
    // A task runs at most once per attempt: one that was taken away comes back as another.
    const auto& left = state_.find(id)->left;
    const bool again = std::find(left.begin(), left.end(), rank) != left.end();
    commit_.decide(Start{{id, rank, again ? attempt + 1 : std::max(attempt, state_.find(id)->attempt)},
                         task.node,
                         task.slices});
  }
  close_what_is_full();
}

// Whether it would fit, without starting it.
Pass::Outcome Pass::trial_only(const Job& job, GroupId group) {
  const ShapeRecord& record = state_.waiting.shape(state_.waiting.group(group).key.shape);
  return place(job, record, record.shape.tasks_min, promises_.layers()) ? Outcome::bound : Outcome::no_room;
}

// Whether running jobs are being moved so that it fits.
bool Pass::consolidate(const Job& job, GroupId id) {
  const SchedulerAction only = state_.policy.only_action;
  if (only != SchedulerAction::all && only != SchedulerAction::consolidate) return false;
  const Group& group = state_.waiting.group(id);
  if (state_.policy.consolidation_moves == 0 || group.key.grows || !may_evict(job)) return false;
  const auto found = find_moves(state_, promises_, job, group, wake_);
  if (!found) return false;
  std::vector<TaskKey> victims;
  for (const Stop& stop : found->stops) victims.push_back(stop.task);
  promises_.hold(job, found->plan, victims);
  for (const auto& [moved, plan] : found->moved) promises_.hold(*state_.find(moved), plan);
  for (const Stop& stop : found->stops) commit_.decide(stop);
  state_.know_nothing = true;
  return true;
}

bool Pass::make_room(const Job& job, GroupId group) {
  const auto eviction = find_victims(state_, promises_, job, state_.waiting.group(group), wake_, hosts_);
  if (!eviction) return false;
  std::vector<TaskKey> victims;
  for (const Stop& stop : eviction->stops) victims.push_back(stop.task);
  promises_.hold(job, eviction->plan, victims);
  for (const Stop& stop : eviction->stops) commit_.decide(stop);
  state_.was_promised = true;
  return true;
}

}  // namespace tranche::scheduler
