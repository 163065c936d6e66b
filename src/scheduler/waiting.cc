#include "scheduler/waiting.h"

#include <algorithm>

#include "base/assert.h"
#include "scheduler/task_step.h"

namespace tranche::scheduler {
namespace {

constexpr size_t kGapMost = 64;  // taken ids at the front of a line before it is moved up

// Scores by node that shapes without jobs may keep, and shapes that may in any case.
constexpr size_t kScoresLaidAside = size_t{1} << 20;
constexpr size_t kShapesLaidAside = 16;
constexpr size_t kTouchedMost = 256;

HeadKey head_of(const Group& group) { return head_key(group.key, group.jobs.front()); }

HeadKey by_arrival(const Group& group) {
  HeadKey key = head_of(group);
  key.expected = 0;
  return key;
}

void add_head(Queue& queue, const Group& group, GroupId id) {
  queue.heads.emplace(head_of(group), id);
  if (group.key.expected > 0) queue.heads_by_arrival.emplace(by_arrival(group), id);
}

void drop_head(Queue& queue, const Group& group) {
  queue.heads.erase(head_of(group));
  if (group.key.expected > 0) queue.heads_by_arrival.erase(by_arrival(group));
}

// Whether it stands in ShapeRecord::by_age.
bool waits_for_room(const Group& group) {
  return group.parked == Parked::no || group.parked == Parked::kept_out;
}

Gate gate_of(const Shape& shape) {
  return {shape.cpu, shape.host_memory, shape.compute, shape.gpu_count, shape.kind == SliceKind::whole};
}

}  // namespace

Offer offer_of(const Capacity& capacity, NodeIndex node) {
  const NodeRoom& room = capacity.at(node);
  Offer offer{node, room.cpu_free.count(), room.memory_free.count(), 0, 0};
  for (const GpuRoom& gpu : room.gpus) {
    if (!gpu.takes_work()) continue;
    if (gpu.is_idle()) {
      ++offer.idle;
    } else if (!gpu.whole) {
      offer.compute = std::max(offer.compute, gpu.compute_free.count());
    }
  }
  return offer;
}

void JobLine::insert(JobId id) {
  if (empty() || ids_.back() < id) {
    ids_.push_back(id);
    return;
  }
  const auto place = std::lower_bound(begin(), ids_.cend(), id);
  ids_.insert(place, id);
}

void JobLine::erase(JobId id) {
  if (!empty() && front() == id) {
    ++head_;
    if (head_ > kGapMost && head_ * 2 > ids_.size()) {
      ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return;
  }
  const auto place = std::lower_bound(begin(), ids_.cend(), id);
  if (place != ids_.cend() && *place == id) ids_.erase(place);
}

uint64_t Waiting::KeyHash::operator()(const GroupKey& key) const {
  uint64_t hash = mix_bits(uint64_t{key.queue} << 32 | static_cast<uint32_t>(key.priority));
  hash = mix_bits(hash ^ static_cast<uint64_t>(key.first));
  hash = mix_bits(hash ^ static_cast<uint64_t>(key.time_limit));
  hash = mix_bits(hash ^ static_cast<uint64_t>(key.grace) ^ uint64_t{key.preemptible} << 63 ^
                  uint64_t{key.grows} << 62);
  hash = mix_bits(hash ^ static_cast<uint64_t>(key.expected));
  return mix_bits(hash ^ key.capped_array.value() << 20 ^ key.shape);
}

ShapeId Waiting::intern(const Shape& shape, const Capacity& capacity) {
  ShapeKey key{shape.hash(), 0};
  while (const auto found = shape_index_.find(key)) {
    if (shapes_[*found].shape == shape) {
      if (shapes_[*found].groups == 0) {
        std::erase(laid_aside_, *found);
        refresh_shape(*found, capacity);
        live_shapes_.insert(*found);
      }
      return *found;
    }
    ++key.nth;
  }
  nodes_ = capacity.nodes().size();
  ShapeId id = static_cast<ShapeId>(shapes_.size());
  if (free_shapes_.empty()) {
    shapes_.emplace_back();
    gates_.emplace_back();
  } else {
    id = free_shapes_.back();
    free_shapes_.pop_back();
  }
  ShapeRecord& record = shapes_[id];
  record.shape = shape;
  gates_[id] = gate_of(shape);
  refresh_shape(id, capacity);
  shape_index_.insert(key, id);
  live_shapes_.insert(id);
  return id;
}

void Waiting::set_step(ShapeId id, std::shared_ptr<const TaskStep> step) {
  ShapeRecord& record = shapes_[id];
  record.charge = step->charge();
  record.demand = step->demand();
  record.host = step->host();
  record.choices = step->choices();
  record.step = std::move(step);
}

void Waiting::refresh_shapes(const Capacity& capacity) {
  for (uint32_t id = live_shapes_.next(0); id != BitSet::kNone; id = live_shapes_.next(id + 1))
    refresh_shape(id, capacity);
}

void Waiting::refresh_shape(ShapeId id, const Capacity& capacity) {
  ShapeRecord& record = shapes_[id];
  if (record.machine_version == capacity.machine_version()) return;
  record.choices = choices_for(record.shape, capacity);
  const Shape& shape = record.shape;
  record.charge = record.demand = charge_at_least(shape, capacity, shape.tasks_min);
  record.host = {MilliCpu(shape.cpu * shape.tasks_min), MiB(shape.host_memory * shape.tasks_min)};
  record.machine_version = capacity.machine_version();
  record.cache.clear();
}

// Its scores are worth keeping: the next job like it may come soon.
void Waiting::lay_aside(ShapeId id) {
  live_shapes_.erase(id);
  closed_.erase(id);
  held_back_.erase(id);
  laid_aside_.push_back(id);
  const size_t most = std::max(kShapesLaidAside, kScoresLaidAside / std::max<size_t>(nodes_, 1));
  if (laid_aside_.size() <= most) return;
  forget_shape(laid_aside_.front());
  laid_aside_.erase(laid_aside_.begin());
}

void Waiting::forget_shape(ShapeId id) {
  // Those of equal hash that were interned later move up, or they would not be found any more.
  ShapeKey key{shapes_[id].shape.hash(), 0};
  while (shape_index_.find(key) != id) ++key.nth;
  shape_index_.erase(key);
  for (ShapeKey later{key.hash, key.nth + 1}; const auto found = shape_index_.find(later); ++later.nth) {
    const ShapeId moved = *found;
    shape_index_.erase(later);
    shape_index_.insert(key, moved);
    ++key.nth;
  }
  shapes_[id] = ShapeRecord{};
  free_shapes_.push_back(id);
}

ClassId Waiting::class_for(ShapeId shape, int64_t duration) {
  for (const ClassId id : shapes_[shape].classes) {
    if (classes_[id].duration == duration) return id;
  }
  ClassId id = static_cast<ClassId>(classes_.size());
  if (free_classes_.empty()) {
    classes_.emplace_back();
  } else {
    id = free_classes_.back();
    free_classes_.pop_back();
  }
  DurationClass made{.shape = shape, .duration = duration};
  // What keeps out those that are shorter keeps it out as well.
  for (const ClassId other : shapes_[shape].classes) {
    if (classes_[other].duration <= duration && !open_.contains(other))
      made.held_behind = std::min(made.held_behind, classes_[other].held_behind);
  }
  classes_[id] = made;
  shapes_[shape].classes.push_back(id);
  if (!closed_.contains(shape) && !made.is_held()) open_.insert(id);
  return id;
}

GroupId Waiting::group_for(GroupKey key) {
  if (const auto found = group_index_.find(key)) return *found;
  GroupId id = 0;
  if (free_groups_.empty()) {
    groups_.emplace_back();
    id = static_cast<GroupId>(groups_.size());
  } else {
    id = free_groups_.back();
    free_groups_.pop_back();
  }
  Group& group = groups_[id - 1];
  group = Group{};
  group.key = key;
  group.job_class = class_for(key.shape, key.time_limit + key.grace);
  ++shapes_[key.shape].groups;
  ++classes_[group.job_class].groups;
  group_index_.insert(key, id);
  ++groups_in_use_;
  return id;
}

void Waiting::join(GroupId id, JobId job, int64_t aged, QueueTree& queues) {
  Group& group = groups_[id - 1];
  Queue& queue = queues.at(group.key.queue);
  const bool is_new = group.jobs.empty();
  const bool is_first = is_new || job < group.jobs.front();
  if (!is_new && is_first) drop_head(queue, group);
  group.jobs.insert(job);
  if (is_first) {
    add_head(queue, group, id);
    queues.heads_changed(group.key.queue);
    set_age(group, {aged, job, id});
  }
  if (is_new) queues.show_class(group.key.queue, group.job_class);
  // One more than those that were claimed for.
  if (group.parked == Parked::claimed) unpark(id, queues);
}

void Waiting::take_job(Group& group, GroupId id, JobId job, QueueTree& queues) {
  Queue& queue = queues.at(group.key.queue);
  const bool is_first = group.jobs.front() == job;
  if (is_first) drop_head(queue, group);
  group.jobs.erase(job);
  if (!is_first) return;
  if (!group.jobs.empty()) add_head(queue, group, id);
  queues.heads_changed(group.key.queue);  // now that its next one is there
}

void Waiting::retire(Group& group, GroupId id, QueueTree& queues) {
  if (group.parked == Parked::no) {
    queues.hide_class(group.key.queue, group.job_class);
  } else {
    parked_.erase(parking(group, id));
  }
  if (waits_for_room(group)) remove_age(group.key.shape, group.age);
  group.jobs = JobLine{};
  refresh_single(id);
  group_index_.erase(group.key);
  ShapeRecord& shape = shapes_[group.key.shape];
  if (--classes_[group.job_class].groups == 0) {
    std::erase(shape.classes, group.job_class);
    open_.erase(group.job_class);
    free_classes_.push_back(group.job_class);
  }
  if (--shape.groups == 0) lay_aside(group.key.shape);
  free_groups_.push_back(id);
  --groups_in_use_;
}

void Waiting::set_age(Group& group, const AgeKey& age) {
  if (group.age == age) return;
  if (waits_for_room(group)) {
    remove_age(group.key.shape, group.age);
    add_age(group.key.shape, age);
  }
  group.age = age;
  refresh_single(std::get<GroupId>(age));
}

void Waiting::add_age(ShapeId shape, const AgeKey& age) {
  if (shapes_[shape].by_age.insert(age).second) touch(shape);
}

void Waiting::remove_age(ShapeId shape, const AgeKey& age) {
  if (shapes_[shape].by_age.erase(age) > 0 && age <= watched_to_) touch(shape);
}

void Waiting::touch(ShapeId shape) {
  const bool is_last = !shapes_touched_.empty() && shapes_touched_.back() == shape;
  if (!is_last && shapes_touched_.size() <= kTouchedMost) shapes_touched_.push_back(shape);
}

void Waiting::watch_ages(const AgeKey& furthest) {
  watched_to_ = furthest;
  shapes_touched_.clear();
}

std::optional<std::vector<ShapeId>> Waiting::shapes_touched() const {
  if (shapes_touched_.size() > kTouchedMost) return std::nullopt;
  std::vector<ShapeId> shapes = shapes_touched_;
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

void Waiting::park(GroupId id, Parked why, QueueIndex bound, QueueTree& queues) {
  Group& group = groups_[id - 1];
  TRANCHE_ASSERT(group.parked == Parked::no);
  group.parked = why;
  group.parked_at = bound;
  queues.hide_class(group.key.queue, group.job_class);
  if (!waits_for_room(group)) remove_age(group.key.shape, group.age);
  parked_.insert(parking(group, id));
  refresh_single(id);
}

std::tuple<Parked, uint64_t, GroupId> Waiting::parking(const Group& group, GroupId id) {
  uint64_t where = 0;
  if (group.parked == Parked::bound) where = group.parked_at;
  if (group.parked == Parked::array) where = group.key.capped_array.value();
  return {group.parked, where, id};
}

void Waiting::unpark(GroupId id, QueueTree& queues) {
  Group& group = groups_[id - 1];
  parked_.erase(parking(group, id));
  group.parked = Parked::no;
  queues.show_class(group.key.queue, group.job_class);
  add_age(group.key.shape, group.age);
  refresh_single(id);
}

// What holds back those that came later does not hold back this one.
bool Waiting::is_to_be_single(const Group& group) const {
  if (group.jobs.empty() || group.parked != Parked::no || closed_.contains(group.key.shape)) return false;
  const DurationClass& job_class = classes_[group.job_class];
  return job_class.is_held() && group.age <= job_class.held_behind && !open_.contains(group.job_class);
}

void Waiting::refresh_single(GroupId id) {
  Group& group = groups_[id - 1];
  const bool is_single = is_to_be_single(group);
  if (group.is_single == is_single) return;
  group.is_single = is_single;
  ++singles_version_;
  if (is_single) singles_.push_back(id);
  if (!is_single) std::erase(singles_, id);
}

void Waiting::refresh_singles(ShapeId id) {
  const std::vector<GroupId> before = singles_;
  for (const GroupId single : before) {
    if (group(single).key.shape == id) refresh_single(single);
  }
  if (closed_.contains(id) || !held_back_.contains(id)) return;
  AgeKey last{INT64_MIN, JobId(), 0};
  for (const ClassId job_class : shapes_[id].classes) {
    if (classes_[job_class].is_held()) last = std::max(last, classes_[job_class].held_behind);
  }
  for (const AgeKey& age : shapes_[id].by_age) {
    if (last < age) return;
    refresh_single(std::get<GroupId>(age));
  }
}

void Waiting::unpark_where(Parked why, uint64_t where, QueueTree& queues) {
  while (true) {
    const auto next = parked_.lower_bound({why, where, 0});
    if (next == parked_.end() || std::get<0>(*next) != why || std::get<1>(*next) != where) return;
    unpark(std::get<2>(*next), queues);
  }
}

void Waiting::unpark_bound(QueueIndex bound, QueueTree& queues) {
  unpark_where(Parked::bound, bound, queues);
}
void Waiting::unpark_array(ArrayId array, QueueTree& queues) {
  unpark_where(Parked::array, array.value(), queues);
}
void Waiting::unpark_passing(QueueTree& queues) {
  unpark_where(Parked::claimed, 0, queues);
  unpark_where(Parked::kept_out, 0, queues);
}

void Waiting::unpark_all(QueueTree& queues) {
  while (!parked_.empty()) unpark(std::get<2>(*parked_.begin()), queues);
}

void Waiting::open_all() {
  for (uint32_t id = live_shapes_.next(0); id != BitSet::kNone; id = live_shapes_.next(id + 1))
    open_shape(id);
}

void Waiting::close_shape(ShapeId id) {
  for (const ClassId job_class : shapes_[id].classes) open_.erase(job_class);
  closed_.insert(id);
  refresh_singles(id);
}

void Waiting::close_longer(ShapeId id, int64_t duration, const AgeKey& behind) {
  for (const ClassId each : shapes_[id].classes) {
    DurationClass& job_class = classes_[each];
    if (job_class.duration < duration) continue;
    job_class.held_behind = std::min(job_class.held_behind, behind);
    open_.erase(each);
  }
  held_back_.insert(id);
  refresh_singles(id);
}

std::optional<Waiting::Held> Waiting::least_held(ShapeId id) const {
  AgeKey behind = kBehindAll;
  int64_t duration = INT64_MAX;
  for (const ClassId each : shapes_[id].classes) {
    if (!classes_[each].is_held()) continue;
    behind = std::min(behind, classes_[each].held_behind);
    duration = std::min(duration, classes_[each].duration);
  }
  const auto first = shapes_[id].by_age.upper_bound(behind);
  if (first == shapes_[id].by_age.end()) return std::nullopt;
  return Held{*first, duration};
}

void Waiting::try_held_back(ShapeId id) {
  for (const ClassId each : shapes_[id].classes) {
    classes_[each].held_before = std::exchange(classes_[each].held_behind, kBehindAll);
    open_.insert(each);
  }
  refresh_singles(id);
}

void Waiting::hold_back_again(ShapeId id) {
  for (const ClassId each : shapes_[id].classes) {
    DurationClass& job_class = classes_[each];
    job_class.held_behind = std::min(job_class.held_behind, job_class.held_before);
    if (job_class.is_held()) open_.erase(each);
  }
  refresh_singles(id);
}

void Waiting::open_shape(ShapeId id) {
  closed_.erase(id);
  held_back_.erase(id);
  for (const ClassId each : shapes_[id].classes) {
    classes_[each].held_behind = classes_[each].held_before = kBehindAll;
    open_.insert(each);
  }
  refresh_singles(id);
}

void Waiting::open_held_back() {
  for (uint32_t id = held_back_.next(0); id != BitSet::kNone; id = held_back_.next(id + 1)) {
    if (!closed_.contains(id)) open_shape(id);
    held_back_.erase(id);
    for (const ClassId each : shapes_[id].classes)
      classes_[each].held_behind = classes_[each].held_before = kBehindAll;
  }
}

size_t Waiting::bytes() const {
  size_t sum = groups_.capacity() * sizeof(Group) + shapes_.capacity() * sizeof(ShapeRecord) +
               classes_.capacity() * sizeof(DurationClass) + group_index_.bytes() + shape_index_.bytes();
  for (const Group& group : groups_) sum += group.jobs.bytes();
  for (const ShapeRecord& shape : shapes_)
    sum += shape.cache.bytes() + shape.by_age.size() * (sizeof(AgeKey) + 40);
  return sum;
}

}  // namespace tranche::scheduler
