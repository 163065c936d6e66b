#include "scheduler/proof.h"

#include <algorithm>
#include <set>

#include "scheduler/check.h"
#include "scheduler/task_step.h"

namespace tranche::scheduler {
namespace {

bool job_fits(const State& state, const Job& job, const Layers& layers) {
  if (const auto step = next_step_of(state, job)) return step->place(layers).has_value();
  const Shape shape = shape_of(*job.spec, state.policy);
  return place_gang(shape, shape.tasks_min, layers).has_value();
}

// What the first part of the job asks for, where one shape has to stand for all.
Shape telling_shape(const State& state, const Job& job) {
  const auto step = next_step_of(state, job);
  return step != nullptr ? step->first_shape() : shape_of(*job.spec, state.policy);
}

void add_blockers(Proof& proof, const std::set<JobId>& jobs) {
  proof.blockers.assign(jobs.begin(), jobs.end());
}

// Nothing of the job's own and none of its bounds keeps it: what is taken or promised does.
class Room {
 public:
  Room(const State& state, Promises& promises, const Job& job)
      : state_(state), promises_(promises), job_(job), shape_(telling_shape(state, job)) {}

  bool prove_drained(Proof& proof) const {
    // With all that takes work idle: if that is not enough, what is drained or failed is missing.
    View idle(state_.capacity);
    for (const TaskKey& key : state_.holdings.keys()) idle.give(state_.holdings.find(key)->footprint());
    if (fits({&idle})) return false;
    proof.kind = ProofKind::drained;
    for (const GpuRoom* room : usable_gpus(state_, job_)) {
      if (!room->open) proof.gpus.push_back(room->id);
    }
    return true;
  }

  // It would fit what is free now, but that is promised.
  bool prove_reserved(Proof& proof) const {
    if (!fits({&promises_.now()})) return false;
    std::set<JobId> holders;
    if (!fits({&promises_.now(), &promises_.unpromised()})) {
      for (const auto& [id, plan] : promises_.claims()) holders.insert(id);
    }
    const Time end = State::latest_end(*job_.spec, state_.now);
    for (const Reservation* reservation : promises_.reservations()) {
      if (!goes_first(*reservation) || !is_kept_out_by(*reservation, end)) continue;
      holders.insert(reservation->job);
      if (!proof.until.is_set() || reservation->start < proof.until) proof.until = reservation->start;
    }
    if (holders.empty()) holders = holders_together(end, proof);
    if (holders.empty()) return false;
    proof.kind = ProofKind::reserved;
    add_blockers(proof, holders);
    return true;
  }

  // Each promise alone leaves a place, all of them together do not.
  std::set<JobId> holders_together(Time end, Proof& proof) const {
    std::set<JobId> holders;
    Layers layers{&promises_.now(), &promises_.unpromised()};
    for (const auto& [id, plan] : promises_.claims()) holders.insert(id);
    for (const Reservation* reservation : promises_.reservations()) {
      if (!goes_first(*reservation) || end <= reservation->start) continue;
      layers.push_back(&reservation->after);
      holders.insert(reservation->job);
      if (!proof.until.is_set() || reservation->start < proof.until) proof.until = reservation->start;
    }
    if (!fits(layers)) return holders;
    proof.until = Time();
    return {};
  }

  bool goes_first(const Reservation& reservation) const {
    return std::pair(reservation.aged, reservation.job) < std::pair(state_.aged(job_), job_.id);
  }

  // As the walk does: without backfill nobody passes a waiting job that could use the same kind of GPU.
  bool is_kept_out_by(const Reservation& reservation, Time end) const {
    const ShapeRecord& record = state_.waiting.shape(state_.waiting.group(job_.group).key.shape);
    if (!state_.policy.backfill && wants_type(record, reservation.type)) return true;
    return end > reservation.start && !fits({&promises_.now(), &reservation.after});
  }

  bool prove_gang(Proof& proof) const {
    if (shape_.tasks_min < 2 || is_structured(*job_.spec)) return false;
    const uint32_t fitting = tasks_that_fit(shape_, shape_.tasks_min, {&promises_.now()});
    if (fitting == 0 || fitting >= shape_.tasks_min) return false;
    proof.kind = ProofKind::gang;
    proof.needed = shape_.tasks_min;
    proof.available = fitting;
    add_blockers(proof, holders_of_usable());
    return true;
  }

  void prove_busy(Proof& proof) const {
    proof.kind = ProofKind::busy;
    add_blockers(proof, holders_of_usable());
    if (shape_.gpu_count == 0) {
      proof.needed = shape_.cpu;
      for (const NodeRoom& home : state_.capacity.nodes()) {
        proof.available = std::max(proof.available, home.cpu_free.count());
      }
      return;
    }
    const bool whole = shape_.kind == SliceKind::whole;
    proof.needed = whole ? int64_t{shape_.gpu_count} : std::max<int64_t>(shape_.compute, 1);
    std::map<NodeId, int64_t> idle;
    for (const GpuRoom* room : usable_gpus(state_, job_)) {
      if (!room->open) continue;
      if (whole && room->is_idle()) ++idle[state_.gpus.at(room->id).gpu.node];
      if (!whole && !room->whole && may_join(*room))
        proof.available = std::max(proof.available, room->compute_free.count());
    }
    for (const auto& [node, count] : idle) proof.available = std::max(proof.available, count);
  }

 private:
  bool fits(const Layers& layers) const { return job_fits(state_, job_, layers); }

  // Fractions of different users do not meet on a GPU unless the policy says so.
  bool may_join(const GpuRoom& room) const {
    return shape_.share_with_others || room.for_all || room.is_idle() || room.owners.is_only(shape_.uid);
  }

  std::set<JobId> holders_of_usable() const {
    std::set<JobId> holders;
    std::set<NodeId> nodes;
    for (const GpuRoom* room : usable_gpus(state_, job_)) {
      nodes.insert(state_.gpus.at(room->id).gpu.node);
      for (const TaskKey& key : state_.tasks_on(room->id)) holders.insert(key.job);
    }
    if (shape_.gpu_count > 0) return holders;
    for (const TaskKey& key : state_.holdings.keys()) {
      if (!state_.holdings.find(key)->exited) holders.insert(key.job);
    }
    return holders;
  }

  const State& state_;
  Promises& promises_;
  const Job& job_;
  Shape shape_;
};

bool prove_own_reasons(const State& state, const Job& job, Proof& proof) {
  if (job.state == JobState::held || job.held) {
    proof.kind = ProofKind::held;
    return true;
  }
  if (!job.begin_passed) {
    proof.kind = ProofKind::held;
    proof.until = job.not_before;
    return true;
  }
  if (job.unmet_dependencies == 0) return false;
  proof.kind = ProofKind::dependency;
  std::set<JobId> targets;
  for (const Dependency& dependency : job.spec->dependencies) {
    if (status_of(dependency, state) == DependencyStatus::waiting) targets.insert(dependency.job);
  }
  add_blockers(proof, targets);
  return true;
}

// How many tasks of the job fit together when all is idle; of one whose tasks differ this is not said.
uint32_t fitting_when_idle(const State& state, const JobSpec& spec) {
  const Capacity& capacity = everything_idle(state);
  const View idle(capacity);
  const Shape shape = shape_of(spec, state.policy);
  if (!is_structured(spec)) return tasks_that_fit(shape, shape.tasks_min, {&idle});
  if (!spec.groups.empty()) return 0;
  JobSpec fewer = spec;
  uint32_t good = 0;
  for (uint32_t bad = spec.tasks_min; good + 1 < bad;) {
    fewer.tasks_min = fewer.tasks_max = good + (bad - good) / 2;
    const bool fits =
        first_step_of(state, std::make_shared<const JobSpec>(fewer), capacity).place({&idle}).has_value();
    (fits ? good : bad) = fewer.tasks_min;
  }
  return good;
}

bool prove_never_fits(const State& state, const Job& job, Proof& proof) {
  if (check_fits(state, *job.spec)) return false;
  proof.kind = ProofKind::never_fits;
  proof.needed = job.spec->tasks_min;
  proof.available = fitting_when_idle(state, *job.spec);
  return true;
}

bool prove_bounds(const State& state, Promises& promises, const Job& job, Proof& proof) {
  const GroupKey& key = state.waiting.group(job.group).key;
  if (key.capped_array.is_set()) {
    const ArrayRecord& array = state.arrays.at(key.capped_array);
    if (!promises.array_has_room(key)) {
      proof.kind = ProofKind::limit;
      proof.used = array.running;
      proof.bound = array.running_max;
      return true;
    }
  }
  const ShapeRecord& record = state.waiting.shape(key.shape);
  MilliGpu charge = record.charge;
  // Where it would go now, a fraction may be charged more than elsewhere.
  if (const auto plan = place_record(record, {&promises.now()})) {
    charge = std::max(charge, charge_of_plan(*plan, state.capacity));
  }
  const auto bound = promises.bound_passed(job.queue, charge, record.host, key.preemptible);
  if (!bound) return false;
  proof.kind = bound->is_quota ? ProofKind::quota : ProofKind::limit;
  proof.queue = state.queues.at(bound->queue).path;
  proof.resource = bound->resource;
  proof.needed = bound->needed;
  proof.used = bound->used;
  proof.bound = bound->bound;
  return true;
}

bool prove_claim(const State& state, const Promises& promises, const Job& job, Proof& proof) {
  const Claim* claim = state.claim_of(job.id);
  if (claim == nullptr) return false;
  std::set<JobId> victims;
  const bool is_first = state.claims.front().beneficiary == job.id;
  if (!is_first && job_fits(state, job, {&promises.now()})) {
    // It would fit already, but on room that is kept for those who were promised theirs before.
    proof.kind = ProofKind::reserved;
    for (const Claim& other : state.claims) {
      if (other.beneficiary == job.id) break;
      victims.insert(other.beneficiary);
    }
    add_blockers(proof, victims);
    return true;
  }
  // The first one may fit too, and wait for those who have to go for a bound of its queue.
  proof.kind = ProofKind::busy;
  for (const TaskKey& victim : claim->victims) {
    if (state.leaving.contains(victim)) victims.insert(victim.job);
  }
  // All that was stopped for it has gone, but it counts on others that were leaving then.
  if (victims.empty()) {
    for (const auto& [key, number] : state.leaving) {
      if (number <= claim->waits_for) victims.insert(key.job);
    }
  }
  add_blockers(proof, victims);
  return true;
}

bool may_go_to(const State& state, const JobSpec& spec, NodeId node) {
  if (spec.nodes.empty()) return true;
  const auto found = state.nodes.find(node);
  return found != state.nodes.end() &&
         std::find(spec.nodes.begin(), spec.nodes.end(), found->second.name) != spec.nodes.end();
}

}  // namespace

std::vector<const GpuRoom*> usable_gpus(const State& state, const Job& job) {
  const Shape shape = telling_shape(state, job);
  std::vector<const GpuRoom*> rooms;
  if (shape.gpu_count == 0) return rooms;
  for (const NodeRoom& home : state.capacity.nodes()) {
    if (!home.present || (!shape.pool.empty() && home.pool != shape.pool)) continue;
    if (!may_go_to(state, *job.spec, home.id)) continue;
    for (const GpuRoom& room : home.gpus) {
      if (room.installed && accepts_type(shape.type, state.capacity.type_name(room.type)) &&
          slice_on(shape, room)) {
        rooms.push_back(&room);
      }
    }
  }
  std::sort(rooms.begin(), rooms.end(), [](const GpuRoom* a, const GpuRoom* b) { return a->id < b->id; });
  return rooms;
}

Proof prove(const State& state, Promises& promises, const Job& job) {
  Proof proof;
  proof.job = job.id;
  if (!job.is_waiting()) return proof;
  if (prove_own_reasons(state, job, proof) || job.group == 0) return proof;
  if (prove_never_fits(state, job, proof)) return proof;
  if (prove_claim(state, promises, job, proof)) return proof;
  if (prove_bounds(state, promises, job, proof)) return proof;
  const Room room(state, promises, job);
  if (room.prove_drained(proof)) return proof;
  if (room.prove_reserved(proof)) return proof;
  if (room.prove_gang(proof)) return proof;
  // Fits and nothing is promised: the next step would start it.
  if (job_fits(state, job, {&promises.now()})) return proof;
  room.prove_busy(proof);
  return proof;
}

}  // namespace tranche::scheduler
