#include "scheduler/order.h"

#include <algorithm>

namespace tranche::scheduler {
namespace {

constexpr uint32_t kFewClasses = 64;  // open ones: most queues have none of them

// Past use for weight, as order looks at it.
Wide usage_for_weight(const Queue& queue) {
  return queue.usage_seen / wide(std::max<int64_t>(queue.weight, 1));
}

// The larger of its parts of all processors and of all host memory, times the other's weight.
Wide host_for_weight(const QueueTree& queues, const Queue& queue, int64_t other_weight) {
  const auto part = [](int64_t used, int64_t other_total) {
    return wide(std::max<int64_t>(used, 0)) * wide(std::max<int64_t>(other_total, 1));
  };
  const HostAmount& host = queues.host();
  const HostAmount& used = queue.host_used;
  const Wide larger =
      std::max(part(used.cpu.count(), host.memory.count()), part(used.memory.count(), host.cpu.count()));
  return larger * wide(std::max<int64_t>(other_weight, 1));
}

}  // namespace

Order::Order(State& state, const Planned& planned) : state_(state), planned_(planned) {}

bool comes_before(QueueTree& queues, const Planned& planned, QueueIndex a, QueueIndex b) {
  const Queue& first = queues.at(a);
  const Queue& second = queues.at(b);
  const int64_t first_used = (first.used + planned.at(a)).count();
  const int64_t second_used = (second.used + planned.at(b)).count();
  const bool first_in_quota = first.guaranteed && first_used < first.guaranteed->count();
  const bool second_in_quota = second.guaranteed && second_used < second.guaranteed->count();
  if (first_in_quota != second_in_quota) return first_in_quota;
  const bool first_in_share = first_used < first.fair.count();
  const bool second_in_share = second_used < second.fair.count();
  if (first_in_share != second_in_share) return first_in_share;
  if (first.priority != second.priority) return first.priority > second.priority;
  // used / fair as fractions; a fair share of zero makes any queue that uses something infinitely far over.
  const int64_t first_fair = first.fair.count();
  const int64_t second_fair = second.fair.count();
  if ((first_fair == 0) != (second_fair == 0)) return second_fair == 0;
  const Wide first_ratio = wide(first_used) * wide(second_fair);
  const Wide second_ratio = wide(second_used) * wide(first_fair);
  if (first_ratio != second_ratio) return first_ratio < second_ratio;
  const Wide first_host = host_for_weight(queues, first, second.weight);
  const Wide second_host = host_for_weight(queues, second, first.weight);
  if (first_host != second_host) return first_host < second_host;
  const Wide first_usage = usage_for_weight(first);
  const Wide second_usage = usage_for_weight(second);
  if (first_usage != second_usage) return first_usage < second_usage;
  return queues.arrival(a) < queues.arrival(b);
}

std::vector<JobId> order_of_waiting(const State& state, Planned planned) {
  struct Line {
    std::vector<std::pair<HeadKey, MilliGpu>> jobs;
    size_t next = 0;
  };
  QueueTree queues = state.queues;
  std::vector<Line> waiting(queues.size());
  std::vector<uint32_t> left(queues.size());  // at or below
  for (const Group& group : state.waiting.groups()) {
    if (group.jobs.empty() || group.key.grows) continue;
    const MilliGpu charge = state.waiting.shape(group.key.shape).charge;
    for (const JobId job : group.jobs) {
      waiting[group.key.queue].jobs.push_back({head_key(group.key, job), charge});
    }
  }
  for (QueueIndex index = 0; index < queues.size(); ++index) {
    auto& jobs = waiting[index].jobs;
    std::sort(jobs.begin(), jobs.end());
    for (const QueueIndex above : queues.path_to_root(index))
      left[above] += static_cast<uint32_t>(jobs.size());
  }
  std::vector<JobId> order;
  while (left[kRootQueue] > 0) {
    QueueIndex at = kRootQueue;
    while (waiting[at].next == waiting[at].jobs.size()) {
      std::optional<QueueIndex> best;
      for (const QueueIndex child : queues.at(at).children) {
        if (left[child] > 0 && (!best || comes_before(queues, planned, child, *best))) best = child;
      }
      at = *best;
    }
    const auto& [key, charge] = waiting[at].jobs[waiting[at].next++];
    order.push_back(key.job);
    for (const QueueIndex above : queues.path_to_root(at)) --left[above];
    planned.add(state, at, charge);
  }
  return order;
}

void Order::visit_all(QueueIndex queue) {
  if (!visiting_.try_emplace(queue).second) return;
  for (const QueueIndex above : state_.queues.path_to_root(queue)) ++at_or_below_[above];
}

void Order::visited(QueueIndex queue, const HeadKey& head) {
  const auto found = visiting_.find(queue);
  if (found == visiting_.end()) return;
  if (!found->second || *found->second < head) found->second = head;
}

bool Order::is_visited(QueueIndex queue, const HeadKey& head) const {
  const auto found = visiting_.find(queue);
  return found == visiting_.end() || (found->second && !(*found->second < head));
}

// Of a class that is open, or open by itself; at or below the queue.
bool Order::has_startable(QueueIndex queue) {
  const Waiting& waiting = state_.waiting;
  if (state_.queues.at(queue).classes.intersects(waiting.open())) return true;
  if (waiting.singles().empty()) return false;
  if (singles_version_ != waiting.singles_version()) {
    singles_version_ = waiting.singles_version();
    singles_.clear();
    for (const GroupId id : waiting.singles()) {
      for (const QueueIndex above : state_.queues.path_to_root(waiting.group(id).key.queue))
        ++singles_[above];
    }
  }
  return singles_.contains(queue);
}

bool Order::is_open(QueueIndex queue) {
  if (has_startable(queue)) return true;
  return !at_or_below_.empty() && at_or_below_.contains(queue);
}

std::optional<Turn> Order::own_group(QueueIndex queue) {
  const Queue& at = state_.queues.at(queue);
  if (at.heads.empty()) return std::nullopt;
  const bool visits = visiting_.contains(queue);
  const bool any_startable = has_startable(queue);
  if (!visits && !any_startable) return std::nullopt;
  const auto is_startable = [&](GroupId id) { return state_.waiting.is_startable(state_.waiting.group(id)); };
  // Shortest first is for those who pass: whoever came first starts first if there is room.
  if (!at.heads_by_arrival.empty() && !past_first_.contains(queue)) {
    const auto& [key, first] = *at.heads_by_arrival.begin();
    // It is also the first to take from others: were it passed over because it is known to find no room, a
    // shorter one would take what after a restart, which knows nothing, this one takes.
    const bool is_due = visits && first_visited_[queue] != key.job;
    if (is_startable(first) || is_due) {
      first_visited_[queue] = key.job;
      return Turn{queue, first, true};
    }
    past_first_.insert(queue);
  }
  auto next = at.heads.begin();
  // Where nobody may start, those that have been visited need no second look.
  if (visits && !any_startable) {
    if (const auto& last = visiting_.find(queue)->second) next = at.heads.upper_bound(*last);
  }
  for (; next != at.heads.end(); ++next) {
    const auto& [key, id] = *next;
    if (is_startable(id) || (visits && !is_visited(queue, key))) return Turn{queue, id, false};
  }
  return std::nullopt;
}

std::optional<Turn> Order::next() {
  while (is_open(kRootQueue)) {
    QueueIndex at = kRootQueue;
    while (true) {
      // Jobs of an inner queue itself (only possible after a change of policy) go before those below it.
      if (const auto turn = own_group(at)) return turn;
      if (visiting_.contains(at)) {
        // All of them have been visited.
        visiting_.erase(at);
        for (const QueueIndex above : state_.queues.path_to_root(at)) {
          const auto count = at_or_below_.find(above);
          if (--count->second == 0) at_or_below_.erase(count);
        }
        break;
      }
      std::optional<QueueIndex> best;
      const bool few_are_open = state_.waiting.open().count() <= kFewClasses;
      for (const QueueIndex child : state_.queues.at(at).children) {
        // Whichever costs less is asked first: where much is open, most are not better than the best so far.
        if (few_are_open && !is_open(child)) continue;
        if (best && !comes_before(state_.queues, planned_, child, *best)) continue;
        if (few_are_open || is_open(child)) best = child;
      }
      if (!best) return std::nullopt;
      at = *best;
    }
  }
  return std::nullopt;
}

}  // namespace tranche::scheduler
