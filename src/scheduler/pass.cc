#include "scheduler/pass.h"

#include <algorithm>

#include "base/assert.h"

namespace tranche::scheduler {

MilliGpu charge_of_plan(const GangPlacement& plan, const Capacity& capacity) {
  MilliGpu sum;
  for (const TaskPlacement& task : plan.tasks) {
    for (const Slice& slice : task.slices) sum += charge_of(slice, capacity.gpu(slice.gpu)->memory_usable);
  }
  return sum;
}

Pass::Pass(const State& state, Commit* commit)
    : state_(state), commit_(commit), planned_(state.queues.size()) {}

void Pass::run() {
  if (state_.groups.empty() && commit_ != nullptr) return;
  compute_shares_once();
  plan_claims();
  Order order(state_, shares_, planned_);
  while (const auto next = order.next()) {
    const auto& [queue, head] = *next;
    const size_t promised = claim_plans_.size();
    const Outcome outcome = try_group(queue, head);
    if (outcome != Outcome::started) order.pass_over(queue, head);
    if (outcome == Outcome::started || claim_plans_.size() != promised) order.choose_anew();
  }
}

void Pass::compute_shares_once() {
  std::vector<MilliGpu> waiting(state_.queues.size());
  for (const auto& [id, group] : state_.groups) {
    const MilliGpu each = charge_at_least(group.key.shape, state_.capacity, group.key.shape.tasks_min);
    waiting[group.key.queue] += each * static_cast<int64_t>(group.jobs.size());
  }
  shares_ = compute_shares(state_.queues, waiting, state_.capacity.total_compute(), state_.now);
}

// Room that is being freed comes first: a beneficiary starts as soon as it can, and until then its place is
// set aside, together with the free room that it needs beside it.
void Pass::plan_claims() {
  const bool any = std::any_of(state_.claims.begin(), state_.claims.end(), [&](const Claim& claim) {
    const Job* job = state_.find(claim.beneficiary);
    return job != nullptr && job->group != 0;
  });
  if (!any) return;
  promised_ = state_.capacity;
  for (const auto& [key, holding] : state_.holdings) {
    if (!state_.is_leaving(key, holding)) continue;
    promised_->give({holding.uid, holding.node, holding.slices, holding.cpu, holding.memory});
  }
  const std::vector<Claim> claims = state_.claims;
  for (const Claim& claim : claims) {
    const Job* job = state_.find(claim.beneficiary);
    if (job == nullptr || job->group == 0) continue;
    const GroupKey key = state_.groups.at(job->group).key;
    if (!array_has_room(key)) continue;
    if (const auto placed = place_exactly(*job, key, key.shape.tasks_min); placed && commit_ != nullptr) {
      start(*job, *placed);
    } else if (const auto plan = place_gang(key.shape, key.shape.tasks_min, {&*promised_})) {
      hold(*job, *plan);
    }
  }
}

void Pass::hold(const Job& job, const GangPlacement& plan) {
  for (const TaskPlacement& task : plan.tasks) promised_->take(footprint_of(*job.spec, task));
  const MilliGpu charge = charge_of_plan(plan, state_.capacity);
  for (const QueueIndex above : state_.queues.path_to_root(job.queue)) planned_[above] += charge;
  claim_plans_.push_back({job.id, plan});
}

Pass::Outcome Pass::try_group(QueueIndex queue, const Head& head) {
  const Group& group = state_.groups.at(head.group);
  TRANCHE_ASSERT(group.key.queue == queue);
  const auto is_claimant = [&](JobId id) {
    return std::any_of(claim_plans_.begin(), claim_plans_.end(),
                       [&](const auto& c) { return c.first == id; });
  };
  const auto next = std::find_if_not(group.jobs.begin(), group.jobs.end(), is_claimant);
  if (next == group.jobs.end()) return Outcome::blocked;
  if (!array_has_room(group.key)) return Outcome::blocked;
  const GroupKey key = group.key;
  // A claim takes one job of the group; the next one is tried at once.
  while (true) {
    const Outcome outcome = try_job(*state_.find(*next), key);
    if (outcome != Outcome::claimed) return outcome;
    return try_group(queue, head);
  }
}

Pass::Outcome Pass::try_job(const Job& job, const GroupKey& key) {
  const MilliGpu charge = charge_at_least(key.shape, state_.capacity, key.shape.tasks_min);
  if (bound_passed(key.queue, charge, key.preemptible)) {
    return make_room(job, key) ? Outcome::claimed : Outcome::blocked;
  }
  if (!failed_.contains(key.shape)) {
    if (const auto plan = place(job, key)) {
      if (commit_ == nullptr) return Outcome::blocked;
      start(job, *plan);
      return Outcome::started;
    }
  }
  // Only what does not fit may take from others; what fits but for a reservation waits for its turn.
  if (!failed_.contains(key.shape)) return Outcome::blocked;
  if (make_room(job, key)) return Outcome::claimed;
  reserve(job, key);
  return Outcome::blocked;
}

// As many tasks as an elastic job may have, or as few as it can live with.
std::optional<GangPlacement> Pass::place(const Job& job, const GroupKey& key) {
  if (key.shape.tasks_max > key.shape.tasks_min) {
    if (auto plan = place_exactly(job, key, key.shape.tasks_max)) return plan;
  }
  auto plan = place_exactly(job, key, key.shape.tasks_min);
  if (!plan && !place_gang(key.shape, key.shape.tasks_min, base_layers())) failed_.insert(key.shape);
  return plan;
}

std::optional<GangPlacement> Pass::place_exactly(const Job& job, const GroupKey& key, uint32_t tasks) {
  Layers layers = base_layers();
  const Time end = State::latest_end(*job.spec, state_.now);
  for (const Reservation& reservation : reservations_) {
    if (end > reservation.start) layers.push_back(&reservation.after);
  }
  if (kept_out(key.shape)) return std::nullopt;
  if (!may_host_one(key.shape, layers)) return std::nullopt;
  // What a fraction is charged depends on the GPU: one type may pass a bound where another does not.
  for (const std::string& type : types_for(key.shape, state_.capacity)) {
    auto plan = place_gang_on_type(key.shape, tasks, type, layers);
    if (plan && !bound_passed(key.queue, charge_of_plan(*plan, state_.capacity), key.preemptible))
      return plan;
  }
  return std::nullopt;
}

// Elements that room is being made for count as if they ran.
bool Pass::array_has_room(const GroupKey& key) const {
  if (!key.capped_array.is_set()) return true;
  const ArrayRecord& array = state_.arrays.at(key.capped_array);
  const auto promised = std::count_if(claim_plans_.begin(), claim_plans_.end(), [&](const auto& claim) {
    const Job* job = state_.find(claim.first);
    return job != nullptr && job->array == key.capped_array;
  });
  return array.running + static_cast<uint64_t>(promised) < array.running_max;
}

// Without backfill nobody passes a waiting job that could use the same kind of GPU.
bool Pass::kept_out(const Shape& shape) const {
  if (state_.policy.backfill || reservations_.empty()) return false;
  const auto types = types_for(shape, state_.capacity);
  return std::any_of(reservations_.begin(), reservations_.end(), [&](const Reservation& reservation) {
    return std::find(types.begin(), types.end(), reservation.plan.type) != types.end();
  });
}

void Pass::start(const Job& job, const GangPlacement& plan) {
  const JobId id = job.id;
  const auto spec = job.spec;
  const uint32_t attempt = job.attempt;
  const Time end = State::latest_end(*spec, state_.now);
  running_.reset();
  uint32_t rank = 0;
  for (const TaskPlacement& task : plan.tasks) {
    const Footprint footprint = footprint_of(*spec, task);
    if (promised_) promised_->take(footprint);
    for (Reservation& reservation : reservations_) {
      if (end > reservation.start) reservation.after.take(footprint);
    }
    commit_->decide(Start{{id, rank++, attempt}, task.node, task.slices});
  }
}

bool Pass::make_room(const Job& job, const GroupKey& key) {
  if (commit_ == nullptr) return false;
  if (!running_) running_.emplace(state_);
  if (!may_claim(state_, *running_, key, shares_, planned_)) return false;
  const bool is_first = !promised_.has_value();
  Capacity base = unpromised();
  if (is_first) {
    for (const auto& [task, holding] : state_.holdings) {
      if (!state_.is_leaving(task, holding)) continue;
      base.give({holding.uid, holding.node, holding.slices, holding.cpu, holding.memory});
    }
  }
  const auto eviction = find_victims(state_, *running_, job, key, base, shares_, planned_, wake_);
  if (!eviction) return false;
  for (const Stop& stop : eviction->stops) {
    const Holding& holding = state_.holdings.at(stop.task);
    base.give({holding.uid, holding.node, holding.slices, holding.cpu, holding.memory});
  }
  promised_ = std::move(base);
  hold(job, eviction->plan);
  for (const Stop& stop : eviction->stops) commit_->decide(stop);
  running_.reset();
  return true;
}

void Pass::reserve(const Job& job, const GroupKey& key) {
  // One reservation for each type of GPU; a shape is tried once in a walk.
  if (!reserve_tried_.insert(key.shape).second) return;
  const auto types = types_for(key.shape, state_.capacity);
  const auto is_reserved = [&](const std::string& type) {
    return std::any_of(reservations_.begin(), reservations_.end(),
                       [&](const Reservation& r) { return r.plan.type == type; });
  };
  if (std::all_of(types.begin(), types.end(), is_reserved)) return;
  std::vector<Release> releases = releases_of(state_, [&](const TaskKey& task, const Holding& holding) {
    return promised_.has_value() && state_.is_leaving(task, holding);
  });
  for (const auto& [id, plan] : claim_plans_) {
    const JobSpec& spec = *state_.find(id)->spec;
    uint32_t rank = 0;
    for (const TaskPlacement& task : plan.tasks) {
      releases.push_back({State::latest_end(spec, state_.now),
                          {id, rank++, 0},
                          spec.owner.uid,
                          task.node,
                          task.slices,
                          spec.task.cpu,
                          spec.task.memory});
    }
  }
  auto planned =
      plan_reservation(job, key.shape, unpromised(), std::move(releases), reservations_, state_.now);
  if (planned && !is_reserved(planned->plan.type)) reservations_.push_back(std::move(*planned));
}

Layers Pass::base_layers() const {
  Layers layers{&state_.capacity};
  if (promised_) layers.push_back(&*promised_);
  return layers;
}

std::optional<Bound> Pass::bound_passed(QueueIndex queue, MilliGpu charge, bool preemptible) const {
  for (const QueueIndex above : state_.queues.path_to_root(queue)) {
    const Queue& at = state_.queues.at(above);
    const MilliGpu used = at.used + planned_[above];
    if (at.limit && used + charge > *at.limit) return Bound{above, false, used, *at.limit};
    if (!preemptible && at.quota && at.used_not_preemptible + charge > *at.quota) {
      return Bound{above, true, at.used_not_preemptible, *at.quota};
    }
  }
  return std::nullopt;
}

}  // namespace tranche::scheduler
