#include "scheduler/queue_tree.h"

#include <algorithm>

#include "base/assert.h"

namespace tranche::scheduler {
namespace {

constexpr int64_t kLooksInAHalfLife = 512;

}  // namespace

bool exceeds(const HostAmount& amount, const HostBound& bound) {
  return (bound.cpu && amount.cpu > *bound.cpu) || (bound.memory && amount.memory > *bound.memory);
}

QueueTree::QueueTree() {
  queues_.emplace_back();
  queues_.back().path_to_root = {kRootQueue};
  by_path_.emplace("", kRootQueue);
}

std::optional<QueueIndex> QueueTree::find(std::string_view path) const {
  const auto found = by_path_.find(path);
  if (found == by_path_.end()) return std::nullopt;
  return found->second;
}

QueueIndex QueueTree::ensure(std::string_view path) {
  if (const auto found = find(path)) return *found;
  const size_t slash = path.rfind('/');
  const QueueIndex parent = slash == std::string_view::npos ? kRootQueue : ensure(path.substr(0, slash));
  const QueueIndex index = size();
  Queue queue;
  queue.path = std::string(path);
  queue.parent = parent;
  queue.path_to_root = {index};
  queue.path_to_root.insert(queue.path_to_root.end(), queues_[parent].path_to_root.begin(),
                            queues_[parent].path_to_root.end());
  // Growth is common to all queues, so a new one starts at the newest that any of them has seen.
  queue.accrued = queues_[kRootQueue].accrued;
  queues_.push_back(std::move(queue));
  by_path_.emplace(std::string(path), index);
  auto& children = queues_[parent].children;
  const auto place =
      std::lower_bound(children.begin(), children.end(), index,
                       [&](QueueIndex a, QueueIndex b) { return queues_[a].path < queues_[b].path; });
  children.insert(place, index);
  apply_defaults(index);
  heads_changed(index);
  return index;
}

void QueueTree::apply_defaults(QueueIndex index) {
  Queue& queue = queues_[index];
  queue.quota.reset();
  queue.guaranteed.reset();
  queue.user_limit.reset();
  queue.host_quota = {};
  queue.host_limit = {};
  queue.weight = 1;
  queue.priority = 0;
  queue.limit = queues_[queue.parent].user_limit;
}

void QueueTree::configure(const Policy& policy, Time now) {
  if (policy.usage_half_life != clock_.half_life()) {
    const UsageClock before = clock_;
    clock_.restart(now, policy.usage_half_life);
    const Wide growth = clock_.growth(now);
    for (Queue& queue : queues_) {
      bring_up_to_date(queue, before.growth(now));
      queue.usage = policy.usage_half_life.count() > 0 ? before.decayed(queue.usage, now) : 0;
      queue.accrued = growth;
    }
  }
  for (Queue& queue : queues_) {
    queue.configured = false;
    queue.user_limit.reset();
  }
  for (const QueuePolicy& configured : policy.queues) ensure(configured.path);
  ensure(policy.default_queue);
  for (const QueuePolicy& configured : policy.queues) {
    const QueueIndex index = *find(configured.path);
    queues_[index].user_limit = configured.user_limit;
    for (const QueueIndex above : path_to_root(index)) queues_[above].configured = true;
  }
  queues_[*find(policy.default_queue)].configured = true;
  for (QueueIndex index = 1; index < size(); ++index) {
    const auto user_limit = queues_[index].user_limit;
    apply_defaults(index);
    if (queues_[index].configured) queues_[index].limit.reset();
    queues_[index].user_limit = user_limit;
  }
  for (const QueuePolicy& configured : policy.queues) {
    Queue& queue = queues_[*find(configured.path)];
    queue.quota = configured.quota;
    queue.limit = configured.limit;
    queue.weight = std::max<int64_t>(configured.weight, 0);
    queue.priority = configured.priority;
    queue.host_quota = {configured.quota_cpu, configured.quota_memory};
    queue.host_limit = {configured.limit_cpu, configured.limit_memory};
  }
  surplus_needed_ = std::max(policy.reclaim_surplus.value_or(kWholeGpu), MilliGpu(1));
  share_unit_ = policy.share_unit;
  derive_guaranteed(kRootQueue);
  look_at_usage(now);
  rebuild_demand();
}

void QueueTree::derive_guaranteed(QueueIndex index) {
  std::optional<MilliGpu> below;
  for (const QueueIndex child : queues_[index].children) {
    derive_guaranteed(child);
    if (const auto guaranteed = queues_[child].guaranteed) below = below.value_or(MilliGpu()) + *guaranteed;
  }
  queues_[index].guaranteed = queues_[index].quota ? queues_[index].quota : below;
}

void QueueTree::bring_up_to_date(Queue& queue, Wide growth) const {
  queue.usage += wide(queue.used.count()) * (growth - queue.accrued);
  queue.accrued = growth;
}

void QueueTree::add_used(QueueIndex index, MilliGpu amount, bool preemptible, Time now) {
  const Wide growth = clock_.growth(now);
  for (const QueueIndex at : path_to_root(index)) {
    Queue& queue = queues_[at];
    bring_up_to_date(queue, growth);
    queue.used += amount;
    if (!preemptible) queue.used_not_preemptible += amount;
    TRANCHE_ASSERT(queue.used.count() >= 0);
  }
}

void QueueTree::charge(QueueIndex index, MilliGpu amount, bool preemptible, Time now) {
  add_used(index, amount, preemptible, now);
  demand_changed(index, amount);
}

void QueueTree::start(QueueIndex index, MilliGpu charged, MilliGpu waited, bool preemptible, Time now) {
  add_used(index, charged, preemptible, now);
  queues_[index].waiting -= waited;
  demand_changed(index, charged - waited);
}

void QueueTree::add_waiting(QueueIndex index, MilliGpu amount) {
  queues_[index].waiting += amount;
  demand_changed(index, amount);
}

void QueueTree::add_staying(QueueIndex index, MilliGpu amount) {
  for (const QueueIndex at : path_to_root(index)) {
    queues_[at].staying += amount;
    ++queues_[at].staying_changes;
    if (amount.count() >= 0) ++queues_[at].staying_added;
    if (at != kRootQueue) look_for_uneven_.insert(queues_[at].parent);
  }
}

void QueueTree::charge_host(QueueIndex index, const HostAmount& amount, bool preemptible) {
  for (const QueueIndex at : path_to_root(index)) {
    queues_[at].host_used += amount;
    if (!preemptible) queues_[at].host_used_not_preemptible += amount;
  }
}

void QueueTree::add_host_staying(QueueIndex index, const HostAmount& amount) {
  for (const QueueIndex at : path_to_root(index)) {
    Queue& queue = queues_[at];
    queue.host_staying += amount;
    if (queue.host_quota.is_set()) look_for_uneven_.insert(queue.parent);
  }
}

const BitSet& QueueTree::uneven() {
  for (uint32_t index = look_for_uneven_.next(0); index != BitSet::kNone;
       index = look_for_uneven_.next(index + 1)) {
    look_for_uneven_.erase(index);
    bool is_uneven = false;
    for (const QueueIndex child : queues_[index].children) {
      const Queue& queue = queues_[child];
      const bool is_over =
          queue.staying - queue.entitled >= surplus_needed_ || exceeds(queue.host_staying, queue.host_quota);
      const bool is_under = queue.guaranteed && queue.staying < std::min(*queue.guaranteed, queue.demand);
      is_uneven = is_uneven || is_over || is_under;
    }
    if (is_uneven) uneven_.insert(index);
    if (!is_uneven) uneven_.erase(index);
  }
  return uneven_;
}

void QueueTree::priorities_changed(QueueIndex index) {
  const Queue& queue = queues_[index];
  bool is_inverted = false;
  if (!queue.running_priorities.empty()) {
    const int64_t lowest = queue.running_priorities.begin()->first;
    for (const auto& [key, group] : queue.heads) {
      is_inverted = is_inverted || lowest < -key.descending_priority;
      // From here on priorities only fall.
      if (key.descending_first == 0) break;
    }
  }
  if (is_inverted) inverted_.insert(index);
  if (!is_inverted) inverted_.erase(index);
}

void QueueTree::show_class(QueueIndex index, uint32_t job_class) {
  for (const QueueIndex at : path_to_root(index)) {
    Queue& queue = queues_[at];
    if (queue.groups_of_class.size() <= job_class) queue.groups_of_class.resize(size_t{job_class} + 1);
    if (queue.groups_of_class[job_class]++ == 0) queue.classes.insert(job_class);
  }
}

void QueueTree::hide_class(QueueIndex index, uint32_t job_class) {
  for (const QueueIndex at : path_to_root(index)) {
    Queue& queue = queues_[at];
    if (--queue.groups_of_class[job_class] == 0) queue.classes.erase(job_class);
  }
}

void QueueTree::heads_changed(QueueIndex index) {
  priorities_changed(index);
  // Of those above too, whatever is known here: a new queue may be below one whose arrival is known.
  for (const QueueIndex at : path_to_root(index)) queues_[at].arrival_is_known = false;
}

JobId QueueTree::arrival(QueueIndex index) {
  Queue& queue = queues_[index];
  if (queue.arrival_is_known) return queue.arrival;
  queue.arrival = queue.heads.empty() ? JobId(UINT64_MAX) : queue.heads.begin()->first.job;
  for (const QueueIndex child : queue.children) queue.arrival = std::min(queue.arrival, arrival(child));
  queue.arrival_is_known = true;
  return queue.arrival;
}

Wide QueueTree::usage(QueueIndex index, Time now) const {
  const Queue& queue = queues_[index];
  return queue.usage + wide(queue.used.count()) * (clock_.growth(now) - queue.accrued);
}

int64_t QueueTree::usage_milli_gpu_hours(QueueIndex index, Time now) const {
  return static_cast<int64_t>(clock_.decayed(usage(index, now), now) / wide(kHour.count()));
}

void QueueTree::look_at_usage(Time now) {
  for (QueueIndex index = 0; index < size(); ++index) {
    queues_[index].usage_seen = usage(index, now);
    divide_again(index);
  }
}

void QueueTree::advance(Time now) {
  keep_sums_small(now);
  const int64_t half_life = clock_.half_life().count();
  if (half_life <= 0) return;
  const int64_t looks = now.nanoseconds() / std::max<int64_t>(half_life / kLooksInAHalfLife, 1);
  if (looks == looks_) return;
  looks_ = looks;
  look_at_usage(now);
}

void QueueTree::keep_sums_small(Time now) {
  // In hops, because the scale of a long idle time would not fit. What is left after many hops of constant
  // use is the steady state, which a further hop does not change.
  constexpr int kHopsToSteadyState = 8;
  for (int hop = 0; clock_.overdue(now) > 0; ++hop) {
    if (hop == kHopsToSteadyState) {
      clock_.advance(clock_.overdue(now));
      for (Queue& queue : queues_) queue.accrued = clock_.growth(clock_.epoch());
      return;
    }
    clock_.advance(kHopHalfLives);
    const Wide at_new_epoch = clock_.growth(clock_.epoch());
    for (Queue& queue : queues_) {
      bring_up_to_date(queue, at_new_epoch << kHopHalfLives);
      queue.usage >>= kHopHalfLives;
      queue.accrued = at_new_epoch;
    }
  }
}

bool QueueTree::is_known(std::string_view path) const {
  const auto found = find(path);
  return found && *found != kRootQueue && queues_[*found].configured;
}

}  // namespace tranche::scheduler
