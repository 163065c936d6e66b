#include "scheduler/backfill.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "model/task_groups.h"
#include "scheduler/task_step.h"

namespace tranche::scheduler {
namespace {

// Jobs that are looked at for the reservation of one type: those before them may find theirs on another.
constexpr size_t kPlansMost = 8;

// Something that will be given back at `end`.
struct Release {
  Time end;
  Footprint footprint;
};

// The search for the earliest time at which a gang fits on nodes of one type.
class Earliest {
 public:
  Earliest(const State& state, const Promises& promises, const Layers& others, ShapeId shape,
           const TypeChoice& choice)
      : state_(state),
        promises_(promises),
        others_(others),
        id_(shape),
        shape_(state.waiting.shape(shape).shape),
        choice_(choice) {}

  // Unset: never. The nodes that have room then are in hosts().
  Time find(uint32_t tasks, ReleaseTimes& times) {
    std::priority_queue<Time, std::vector<Time>, std::greater<>> ahead;
    uint32_t count = 0;
    Time found;
    const auto pass = [&](Time frontier) {
      while (!found.is_set() && !ahead.empty() && ahead.top() <= frontier) {
        if (++count == tasks) found = ahead.top();
        ahead.pop();
      }
    };
    times.visit(state_, id_, choice_, [&](NodeIndex node, Time time) {
      pass(std::max(time, state_.now) - kNanosecond);
      if (found.is_set()) return false;
      if (time == kNever) return false;
      seen_.push_back(node);
      const auto first = tasks_by_time(node, tasks);
      if (!first.empty()) hosts_.push_back(node);
      for (const Time each : first) ahead.push(each);
      return true;
    });
    pass(kNever - kNanosecond);
    return found;
  }
  const std::vector<NodeIndex>& hosts() const { return hosts_; }
  const std::vector<NodeIndex>& seen() const { return seen_; }

  // The node in the view, and in those of the other reservations that stand on it: elsewhere they say nothing
  // of a later time.
  Layers around(const View& view, NodeIndex node) const {
    Layers layers{&view};
    for (const View* other : others_) {
      if (other->is_changed(node)) layers.push_back(other);
    }
    return layers;
  }

  // The node as it will be at `at`.
  void give_back(View& view, NodeIndex node, Time at) const {
    for (const Release& release : releases(node)) {
      if (release.end <= at) view.change(node).give(release.footprint);
    }
  }

 private:
  // By end. What is leaving has left already where room is promised.
  std::vector<Release> releases(NodeIndex node) const {
    std::vector<Release> releases;
    const bool is_promised = &promises_.unpromised() != &promises_.now();
    for (const uint32_t position : state_.holdings_on[node]) {
      const Holding& holding = state_.holdings.at(position);
      if (is_promised && state_.leaving.contains(holding.task)) continue;
      releases.push_back({std::max(holding.latest_end, state_.now), holding.footprint()});
    }
    const NodeId id = state_.capacity.at(node).id;
    for (const auto& [job, plan] : promises_.claims()) {
      const JobSpec& spec = *state_.find(job)->spec;
      for (const TaskPlacement& task : plan.tasks) {
        if (task.node == id)
          releases.push_back({State::latest_end(spec, state_.now), footprint_of(spec, task)});
      }
    }
    std::stable_sort(releases.begin(), releases.end(),
                     [](const Release& a, const Release& b) { return a.end < b.end; });
    return releases;
  }

  // When the first, the second, ... task of the gang would fit there.
  std::vector<Time> tasks_by_time(NodeIndex node, uint32_t most) const {
    View view(&promises_.unpromised());
    view.change(node);
    const Layers layers = around(view, node);
    std::vector<Time> times(count_on_node(shape_, choice_, node, layers, most), state_.now);
    const std::vector<Release> all = releases(node);
    for (size_t i = 0; i < all.size() && times.size() < most; ++i) {
      view.change(node).give(all[i].footprint);
      if (i + 1 < all.size() && all[i + 1].end == all[i].end) continue;
      const uint32_t fitting = count_on_node(shape_, choice_, node, layers, most);
      if (fitting > times.size()) times.resize(fitting, all[i].end);
    }
    return times;
  }

  const State& state_;
  const Promises& promises_;
  const Layers& others_;
  ShapeId id_;
  const Shape& shape_;
  const TypeChoice& choice_;
  std::vector<NodeIndex> hosts_;
  std::vector<NodeIndex> seen_;
};

}  // namespace

bool wants_type(const ShapeRecord& record, TypeIndex type) {
  const bool without_gpus =
      record.step != nullptr ? record.step->has_tasks_without_gpus() : record.shape.gpu_count == 0;
  if (type == kNoType) return without_gpus;
  if (record.step == nullptr && without_gpus) return false;  // its one choice stands for no type
  return std::any_of(record.choices.begin(), record.choices.end(),
                     [&](const TypeChoice& choice) { return choice.type == type; });
}

Footprint footprint_of(const JobSpec& spec, const TaskPlacement& task) {
  const TaskRequest& request = request_of(spec, task.rank);
  return {spec.owner.uid, task.node, task.slices, request.cpu, request.memory};
}

MilliGpu charge_of_plan(const GangPlacement& plan, const Capacity& capacity) {
  MilliGpu sum;
  for (const TaskPlacement& task : plan.tasks) {
    for (const Slice& slice : task.slices) {
      sum += slice.kind == SliceKind::whole ? kWholeGpu
                                            : charge_of(slice, capacity.gpu(slice.gpu)->memory_usable);
    }
  }
  return sum;
}

HostAmount host_of_plan(const JobSpec& spec, const GangPlacement& plan) {
  HostAmount sum;
  for (const TaskPlacement& task : plan.tasks) {
    const TaskRequest& request = request_of(spec, task.rank);
    sum += {request.cpu, request.memory};
  }
  return sum;
}

Promises::Promises(const State& state) : state_(state), now_(state.capacity) {}

bool Promises::is_claimant(JobId job) const { return claimants_.find(job).has_value(); }

Layers Promises::layers() const {
  Layers layers{&now_};
  if (promises_anything_) layers.push_back(&*when_left_);
  return layers;
}

const View& Promises::when_left() const {
  if (when_left_) return *when_left_;
  when_left_.emplace(state_.capacity);
  when_left_->keep_buckets();
  when_left_->give_all([&](auto give) {
    for (const auto& [key, number] : state_.leaving) give(state_.holdings.find(key)->footprint());
  });
  return *when_left_;
}

void Promises::hold_claims() {
  for (const Claim& claim : state_.claims) {
    const Job* job = state_.find(claim.beneficiary);
    if (job == nullptr) continue;
    if (job->group == 0) {
      hold_move(claim, *job);
      continue;
    }
    if (!array_has_room(state_.waiting.group(job->group).key)) continue;
    if (const auto plan = plan_of(*job)) hold(*job, *plan);
  }
}

// A job that is being moved and has not left yet.
void Promises::hold_move(const Claim& claim, const Job& job) {
  if (!claim.moved_for.is_set() || job.is_waiting()) return;
  if (const auto plan = place_again(state_, job, {&when_left()})) hold(job, *plan);
}

std::optional<GangPlacement> Promises::plan_of(const Job& job) const {
  const ShapeRecord& record = state_.waiting.shape(state_.waiting.group(job.group).key.shape);
  const Layers layers{&when_left()};
  // Some place is enough: where it goes in the end is judged when it has room.
  return place_record(record, layers);
}

void Promises::hold(const Job& job, const GangPlacement& plan, const std::vector<TaskKey>& victims) {
  when_left();
  promises_anything_ = true;
  when_left_->give_all([&](auto give) {
    for (const TaskKey& victim : victims) give(state_.holdings.find(victim)->footprint());
  });
  for (const TaskPlacement& task : plan.tasks) when_left_->take(footprint_of(*job.spec, task));
  planned_.add(state_, job.queue, charge_of_plan(plan, state_.capacity), host_of_plan(*job.spec, plan));
  claims_.push_back({job.id, plan});
  claimants_.insert(job.id, 0);
  memory_->is_worked_out = false;
  memory_ = &own_;
  own_.is_worked_out = false;
}

void Promises::taken(const JobSpec& spec, const GangPlacement& plan) {
  const Time end = State::latest_end(spec, state_.now);
  for (const TaskPlacement& task : plan.tasks) {
    const NodeIndex node = *state_.capacity.index_of(task.node);
    const Footprint footprint = footprint_of(spec, task);
    // A node that no promise changes follows the capacity by itself.
    if (when_left_ && when_left_->is_changed(node)) when_left_->take(footprint);
    if (!memory_->is_worked_out) continue;
    for (auto& reservation : memory_->slots) {
      if (reservation && end > reservation->start && reservation->after.is_changed(node))
        reservation->after.take(footprint);
    }
  }
}

namespace {

// The bound of processors or host memory that `more` would pass.
std::optional<Bound> host_bound_passed(QueueIndex queue, const HostAmount& used, const HostAmount& more,
                                       const HostBound& bound, bool is_quota) {
  if (bound.cpu && more.cpu.count() > 0 && used.cpu + more.cpu > *bound.cpu)
    return Bound{queue, is_quota, used.cpu.count(), bound.cpu->count(), BoundResource::cpu, more.cpu.count()};
  if (bound.memory && more.memory.count() > 0 && used.memory + more.memory > *bound.memory) {
    return Bound{queue,
                 is_quota,
                 used.memory.count(),
                 bound.memory->count(),
                 BoundResource::memory,
                 more.memory.count()};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Bound> Promises::bound_passed(QueueIndex queue, MilliGpu charge, const HostAmount& host,
                                            bool preemptible) const {
  for (const QueueIndex above : state_.queues.path_to_root(queue)) {
    const Queue& at = state_.queues.at(above);
    const MilliGpu used = at.used + planned_.at(above);
    if (at.limit && used + charge > *at.limit)
      return Bound{above, false, used.count(), at.limit->count(), BoundResource::gpu, charge.count()};
    if (!preemptible && at.quota && at.used_not_preemptible + charge > *at.quota) {
      return Bound{
          above,         true, at.used_not_preemptible.count(), at.quota->count(), BoundResource::gpu,
          charge.count()};
    }
    HostAmount host_used = at.host_used;
    host_used += planned_.host_at(above);
    if (const auto bound = host_bound_passed(above, host_used, host, at.host_limit, false)) return bound;
    if (preemptible) continue;
    const auto bound = host_bound_passed(above, at.host_used_not_preemptible, host, at.host_quota, true);
    if (bound) return bound;
  }
  return std::nullopt;
}

// Elements that room is being made for count as if they ran.
bool Promises::array_has_room(const GroupKey& key) const {
  if (!key.capped_array.is_set()) return true;
  const ArrayRecord& array = state_.arrays.at(key.capped_array);
  const auto promised = std::count_if(claims_.begin(), claims_.end(), [&](const auto& claim) {
    const Job* job = state_.find(claim.first);
    return job != nullptr && job->array == key.capped_array;
  });
  return array.running + static_cast<uint64_t>(promised) < array.running_max;
}

std::optional<Reservation>& Promises::slot(TypeIndex type) {
  return type == kNoType ? memory_->slots.back() : memory_->slots[type];
}

void Promises::know_reservations() {
  if (!memory_->is_worked_out) work_out();
}

// All types at once, in one order: what one finds depends on what those before it have found, and who has
// come further finds first.
const Reservation* Promises::reservation(TypeIndex type) {
  know_reservations();
  const auto& found = slot(type);
  return found ? &*found : nullptr;
}

namespace {

// Nothing finds room in the node as it is now that did not find it before.
bool is_no_roomier(const NodeRoom& now, const NodeRoom& before) {
  if (now.cpu_free > before.cpu_free || now.memory_free > before.memory_free) return false;
  if (now.gpus.size() != before.gpus.size()) return false;
  for (size_t g = 0; g < now.gpus.size(); ++g) {
    const GpuRoom& gpu = now.gpus[g];
    const GpuRoom& was = before.gpus[g];
    if (gpu.id != was.id || gpu.compute_free > was.compute_free || gpu.memory_free > was.memory_free)
      return false;
    if (gpu.takes_work() != was.takes_work() || gpu.whole != was.whole || gpu.for_all != was.for_all)
      return false;
    if (!std::equal(gpu.owners.begin(), gpu.owners.end(), was.owners.begin(), was.owners.end())) return false;
  }
  return true;
}

// Whoever had to fit around the one has to fit around the other, and finds no more room beside it.
bool is_as_tight(const Reservation& now, const Reservation& before) {
  if (now.job != before.job || now.aged > before.aged || now.start > before.start) return false;
  return before.after.visit_changed([&](NodeIndex node) {
    return now.after.is_changed(node) && is_no_roomier(now.after.at(node), before.after.at(node));
  });
}

}  // namespace

std::optional<std::vector<NodeIndex>> Promises::recall_reservations(ReservationMemory& memory,
                                                                    Waiting& waiting) {
  memory_ = &memory;
  std::optional<std::vector<NodeIndex>> eased;
  const bool is_known = memory.is_worked_out && memory.machine_version == state_.capacity.machine_version();
  if (is_known) eased.emplace();
  if (!is_known || !still_holds(waiting)) {
    const std::vector<std::optional<Reservation>> before = std::exchange(memory.slots, {});
    work_out();
    for (size_t type = 0; is_known && type < before.size(); ++type) {
      if (!before[type]) continue;
      // Nearly always it is worked out as it was.
      if (memory.slots[type] && is_as_tight(*memory.slots[type], *before[type])) continue;
      for (const TaskPlacement& task : before[type]->plan.tasks)
        eased->push_back(*state_.capacity.index_of(task.node));
    }
  }
  memory.read_to = state_.capacity.log_end();
  AgeKey furthest{INT64_MIN, JobId(), 0};
  for (const ReservationMemory::Look& look : memory.looks) furthest = std::max(furthest, look.age);
  waiting.watch_ages(furthest);
  return eased;
}

// Whether working them out again would give the same; those that are new among the waiting are looked at, and
// may get a reservation that nobody had.
bool Promises::still_holds(const Waiting& waiting) {
  const ReservationMemory& memory = *memory_;
  if (!memory.may_be_recalled || memory.machine_version != state_.capacity.machine_version()) return false;
  const auto touched = waiting.shapes_touched();
  if (!touched || !nodes_still_hold()) return false;
  const bool looks_hold =
      std::all_of(memory.looks.begin(), memory.looks.end(), [&](const ReservationMemory::Look& look) {
        if (!look.is_blocked && std::binary_search(touched->begin(), touched->end(), look.shape)) return true;
        const auto& [aged, job, group] = look.age;
        if (!waiting.shape(look.shape).by_age.contains(look.age)) return false;
        return waits_for_room(waiting.group(group), job) == look.waits_for_room &&
               (!look.waits_for_room || is_blocked(look.shape) == look.is_blocked);
      });
  return looks_hold && look_again(*touched);
}

bool Promises::nodes_still_hold() const {
  const ReservationMemory& memory = *memory_;
  const Capacity& capacity = state_.capacity;
  if (memory.read_to < capacity.log_begin()) return false;
  // With a time that has come, or was never found, others count than before.
  for (const ReservationMemory::Search& search : memory.searches) {
    if (search.found <= state_.now) return false;
  }
  for (uint64_t at = memory.read_to; at < capacity.log_end(); ++at) {
    const NodeIndex node = capacity.changed_at(at);
    if (memory.nodes.contains(node)) return false;
    if (at + 1 < capacity.log_end() && capacity.changed_at(at + 1) == node) continue;
    for (const ReservationMemory::Search& search : memory.searches) {
      const Shape& shape = state_.waiting.shape(search.shape).shape;
      if (earliest_on_node(state_, shape, search.choice, node) <= search.found) return false;
    }
  }
  return true;
}

// Walks again over the shapes that were touched; false where that might change what others have been
// promised.
bool Promises::look_again(const std::vector<ShapeId>& touched) {
  ReservationMemory& memory = *memory_;
  Lines lines;
  for (const ShapeId shape : touched) {
    const auto& by_age = state_.waiting.shape(shape).by_age;
    const auto blocked = std::find_if(memory.looks.begin(), memory.looks.end(), [&](const auto& look) {
      return look.shape == shape && look.is_blocked;
    });
    if (blocked != memory.looks.end()) {
      // It is the first of its shape as it was, and those that came stand behind it.
      if (*by_age.begin() != blocked->age) return false;
      continue;
    }
    std::erase_if(memory.looks, [&](const auto& look) { return look.shape == shape; });
    if (!by_age.empty()) lines.push({shape, by_age.begin()});
  }
  std::optional<AgeKey> last;
  for (const auto& reservation : memory.slots) {
    if (reservation)
      last = std::max(last.value_or(AgeKey{INT64_MIN, JobId(), 0}),
                      AgeKey{reservation->aged, reservation->job, UINT32_MAX});
  }
  return walk(lines, last);
}

std::vector<const Reservation*> Promises::reservations() {
  std::vector<const Reservation*> all;
  for (TypeIndex type = 0; type < state_.capacity.types(); ++type) {
    if (const Reservation* found = reservation(type)) all.push_back(found);
  }
  if (const Reservation* found = reservation(kNoType)) all.push_back(found);
  return all;
}

bool Promises::is_blocked(ShapeId shape) const {
  if (!state_.know_nothing && state_.waiting.is_closed(shape)) return true;
  const ShapeRecord& record = state_.waiting.shape(shape);
  const Layers base = layers();
  return !place_record(record, base);
}

void Promises::work_out() {
  ReservationMemory& memory = *memory_;
  memory = ReservationMemory();
  memory.is_worked_out = memory.may_be_recalled = true;
  memory.machine_version = state_.capacity.machine_version();
  memory.slots.resize(state_.capacity.types() + 1);
  Lines lines;
  const BitSet& live = state_.waiting.live_shapes();
  for (uint32_t id = live.next(0); id != BitSet::kNone; id = live.next(id + 1)) {
    const ShapeRecord& record = state_.waiting.shape(id);
    if (!record.by_age.empty()) lines.push({id, record.by_age.begin()});
  }
  walk(lines, std::nullopt);
}

// Gives reservations to those that come first and have to wait. False: somebody who stands before
// `no_plan_before` would need one.
bool Promises::walk(Lines& lines, const std::optional<AgeKey>& no_plan_before) {
  if (state_.policy.no_head_reservation) return true;
  ReservationMemory& memory = *memory_;
  size_t plans = 0;
  while (!lines.empty()) {
    Line line = lines.top();
    lines.pop();
    const AgeKey age = *line.next;
    const auto [aged, id, group_id] = age;
    const bool comes_between = no_plan_before && age < *no_plan_before;
    if (!comes_between && !is_wanted(state_.waiting.shape(line.shape))) continue;
    if (plans == kPlansMost * memory.slots.size()) {
      memory.may_be_recalled = false;
      return true;
    }
    const bool waits = waits_for_room(state_.waiting.group(group_id), id);
    memory.looks.push_back({line.shape, age, waits, false});
    if (!waits) {
      if (++line.next != state_.waiting.shape(line.shape).by_age.end()) lines.push(line);
      continue;
    }
    // All jobs of the shape wait alike: one plan is enough.
    memory.looks.back().is_blocked = is_blocked(line.shape);
    if (!memory.looks.back().is_blocked) continue;
    if (comes_between) return false;
    ++plans;
    // The type of a step's first task may have been promised to somebody who has come further.
    auto planned = plan(*state_.find(id), line.shape);
    if (planned && !slot(planned->type)) slot(planned->type).emplace(std::move(*planned));
  }
  return true;
}

bool Promises::waits_for_room(const Group& group, JobId job) const {
  return !is_claimant(job) && array_has_room(group.key) && !group.key.grows &&
         !bound_passed(group.key.queue, state_.waiting.shape(group.key.shape).charge,
                       state_.waiting.shape(group.key.shape).host, group.key.preemptible)
              .has_value();
}

// Whether some type that the shape may use has no reservation yet.
bool Promises::is_wanted(const ShapeRecord& record) {
  if (wants_type(record, kNoType) && !memory_->slots.back()) return true;
  return std::any_of(record.choices.begin(), record.choices.end(), [&](const TypeChoice& choice) {
    return !slot(choice.type) && wants_type(record, choice.type);
  });
}

std::optional<Reservation> Promises::plan(const Job& job, ShapeId shape) {
  const ShapeRecord& record = state_.waiting.shape(shape);
  Layers others;
  for (const auto& reservation : memory_->slots) {
    if (reservation) others.push_back(&reservation->after);
  }
  if (record.step != nullptr) {
    memory_->may_be_recalled = false;  // it may stand on any node
    return plan_step(job, record, others);
  }
  ReleaseTimes& times = state_.release_times;
  std::optional<Reservation> best;
  for (const TypeChoice& choice : record.choices) {
    // A type whose room has been promised to somebody who has come further is not for this job.
    if (slot(record.shape.gpu_count == 0 ? kNoType : choice.type)) continue;
    Earliest search(state_, *this, others, shape, choice);
    const Time start = search.find(record.shape.tasks_min, times);
    memory_->searches.push_back({shape, choice, start});
    for (const NodeIndex node : search.seen()) memory_->nodes.insert(node);
    if (!start.is_set() || (best && best->start <= start)) continue;
    View after(&unpromised());
    std::vector<std::pair<uint32_t, NodeIndex>> hosts;
    for (const NodeIndex node : search.hosts()) {
      after.change(node);
      search.give_back(after, node, start);
      const uint32_t fitting =
          count_on_node(record.shape, choice, node, search.around(after, node), record.shape.tasks_min);
      if (fitting > 0) hosts.push_back({fitting, node});
    }
    std::stable_sort(hosts.begin(), hosts.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    Reservation found{job.id,
                      state_.aged(job),
                      record.shape.gpu_count == 0 ? kNoType : choice.type,
                      start,
                      GangPlacement{choice.type, {}},
                      View(state_.capacity)};
    std::vector<NodeIndex> used;
    for (const auto& [fitting, node] : hosts) {
      const auto left = static_cast<uint32_t>(record.shape.tasks_min - found.plan.tasks.size());
      if (left == 0) break;
      for (TaskPlacement& task :
           place_on_node(record.shape, choice, node, search.around(after, node), left)) {
        found.plan.tasks.push_back(std::move(task));
      }
      used.push_back(node);
    }
    if (found.plan.tasks.size() < record.shape.tasks_min) continue;
    for (const TaskPlacement& task : found.plan.tasks) after.take(footprint_of(*job.spec, task));
    for (const NodeIndex node : used) found.after.change(node) = after.at(node);
    best.emplace(std::move(found));
  }
  return best;
}

// The same for a job that is placed by a step: whatever ends next is given back until it fits.
std::optional<Reservation> Promises::plan_step(const Job& job, const ShapeRecord& record,
                                               const Layers& others) {
  std::vector<std::pair<Time, Footprint>> releases;
  const bool is_promised = promises_anything_;
  for (const TaskKey& key : state_.holdings.keys()) {
    const Holding& holding = *state_.holdings.find(key);
    if (is_promised && state_.leaving.contains(key)) continue;
    releases.push_back({std::max(holding.latest_end, state_.now), holding.footprint()});
  }
  for (const auto& [id, plan] : claims_) {
    const JobSpec& spec = *state_.find(id)->spec;
    for (const TaskPlacement& task : plan.tasks)
      releases.push_back({State::latest_end(spec, state_.now), footprint_of(spec, task)});
  }
  std::stable_sort(releases.begin(), releases.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  View after(&unpromised());
  Layers layers{&after};
  layers.insert(layers.end(), others.begin(), others.end());
  for (size_t i = 0; i < releases.size(); ++i) {
    if (releases[i].first == kNever) break;
    after.give(releases[i].second);
    if (i + 1 < releases.size() && releases[i + 1].first == releases[i].first) continue;
    auto plan = record.step->place(layers);
    if (!plan) continue;
    const bool on_gpus = !plan->tasks.front().slices.empty();
    Reservation found{
        job.id,          state_.aged(job),     on_gpus ? plan->type : kNoType, releases[i].first,
        GangPlacement{}, View(state_.capacity)};
    for (const TaskPlacement& task : plan->tasks) after.take(footprint_of(*job.spec, task));
    for (const TaskPlacement& task : plan->tasks) {
      const NodeIndex node = *state_.capacity.index_of(task.node);
      found.after.change(node) = after.at(node);
    }
    found.plan = std::move(*plan);
    return found;
  }
  return std::nullopt;
}

template <class Action>
void Promises::for_reservations(const ShapeRecord& record, Action action) {
  const auto look = [&](TypeIndex type) {
    if (const Reservation* found = reservation(type)) action(*found);
  };
  // On any node a task may stand in the way of one that is promised its processors.
  if (wants_type(record, kNoType)) {
    for (TypeIndex type = 0; type < state_.capacity.types(); ++type) look(type);
  } else {
    for (const TypeChoice& choice : record.choices) look(choice.type);
  }
  look(kNoType);
}

void Promises::add_reservations(const ShapeRecord& record, const Job& job, Time end, Layers& layers) {
  add_reservations(record, std::pair(state_.aged(job), job.id), end, layers);
}

void Promises::add_reservations(const ShapeRecord& record, const std::pair<int64_t, JobId>& mine, Time end,
                                Layers& layers) {
  for_reservations(record, [&](const Reservation& found) {
    if (std::pair(found.aged, found.job) < mine && end > found.start) layers.push_back(&found.after);
  });
}

bool Promises::is_kept_out(const ShapeRecord& record, const Job& job) {
  if (state_.policy.backfill) return false;
  bool is_kept = false;
  const std::pair mine(state_.aged(job), job.id);
  for_reservations(record, [&](const Reservation& found) {
    is_kept = is_kept || (wants_type(record, found.type) && std::pair(found.aged, found.job) < mine);
  });
  return is_kept;
}

AgeKey Promises::keeps_out_behind(const ShapeRecord& record, const AgeKey& mine, int64_t duration) {
  const auto& [aged, job, group] = mine;
  const Time end = ends_after(duration);
  const bool backfill = state_.policy.backfill;
  // With backfill it needs all that it had to fit around, without it one is enough.
  std::optional<AgeKey> behind;
  for_reservations(record, [&](const Reservation& found) {
    const AgeKey key{found.aged, found.job, UINT32_MAX};
    if (std::pair(found.aged, found.job) >= std::pair(aged, job)) return;
    if (backfill ? end <= found.start : !wants_type(record, found.type)) return;
    if (!behind || (backfill ? *behind < key : key < *behind)) behind = key;
  });
  return behind.value_or(kBehindAll);
}

bool Promises::stand_on(const std::vector<NodeIndex>& nodes) {
  know_reservations();
  return std::any_of(memory_->slots.begin(), memory_->slots.end(), [&](const auto& reservation) {
    return reservation && std::any_of(nodes.begin(), nodes.end(),
                                      [&](NodeIndex node) { return reservation->after.is_changed(node); });
  });
}

bool Promises::fits_around(const ShapeRecord& record, const AgeKey& mine, int64_t duration,
                           const std::vector<NodeIndex>& nodes) {
  const auto& [aged, job, group] = mine;
  Layers around = layers();
  add_reservations(record, std::pair(aged, job), ends_after(duration), around);
  return std::any_of(nodes.begin(), nodes.end(), [&](NodeIndex node) {
    return std::any_of(record.choices.begin(), record.choices.end(), [&](const TypeChoice& choice) {
      return fits_on_node(record.shape, choice, node, around);
    });
  });
}

Time Promises::ends_after(int64_t duration) const {
  return state_.now.nanoseconds() > kNever.nanoseconds() - duration ? kNever
                                                                    : state_.now + Duration(duration);
}

}  // namespace tranche::scheduler
