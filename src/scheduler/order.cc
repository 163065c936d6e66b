#include "scheduler/order.h"

#include <algorithm>

namespace tranche::scheduler {

Order::Order(const State& state, const std::vector<Share>& shares, const std::vector<MilliGpu>& planned)
    : state_(state),
      shares_(shares),
      planned_(planned),
      cursors_(state.queues.size()),
      usage_(usage_for_weight(state)),
      open_(state.queues.size(), false),
      arrival_(state.queues.size(), JobId(UINT64_MAX)) {
  for (QueueIndex index = 0; index < state.queues.size(); ++index) {
    const auto& heads = state.queues.at(index).heads;
    if (heads.empty()) continue;
    for (const QueueIndex above : state.queues.path_to_root(index)) {
      open_[above] = true;
      arrival_[above] = std::min(arrival_[above], heads.begin()->first.job);
    }
  }
}

bool comes_before(const State& state, const std::vector<Share>& shares, const std::vector<MilliGpu>& planned,
                  const std::vector<Wide>& usage, const std::vector<JobId>& arrival, QueueIndex a,
                  QueueIndex b) {
  const Queue& first = state.queues.at(a);
  const Queue& second = state.queues.at(b);
  const int64_t first_used = (first.used + planned[a]).count();
  const int64_t second_used = (second.used + planned[b]).count();
  const bool first_in_quota = first.guaranteed && first_used < first.guaranteed->count();
  const bool second_in_quota = second.guaranteed && second_used < second.guaranteed->count();
  if (first_in_quota != second_in_quota) return first_in_quota;
  // used / fair as fractions; a fair share of zero makes any queue that uses something infinitely far over.
  const int64_t first_fair = shares[a].fair.count();
  const int64_t second_fair = shares[b].fair.count();
  if ((first_fair == 0) != (second_fair == 0)) return second_fair == 0;
  const Wide first_ratio = wide(first_used) * wide(second_fair);
  const Wide second_ratio = wide(second_used) * wide(first_fair);
  if (first_ratio != second_ratio) return first_ratio < second_ratio;
  if (usage[a] != usage[b]) return usage[a] < usage[b];
  return arrival[a] < arrival[b];
}

std::vector<Wide> usage_for_weight(const State& state) {
  std::vector<Wide> usage(state.queues.size());
  for (QueueIndex index = 0; index < state.queues.size(); ++index) {
    usage[index] = state.queues.usage(index, state.now) / wide(state.queues.at(index).weight);
  }
  return usage;
}

std::vector<JobId> order_of_waiting(const State& state, const std::vector<Share>& shares,
                                    std::vector<MilliGpu> planned) {
  struct Waiting {
    std::vector<std::pair<HeadKey, MilliGpu>> jobs;
    size_t next = 0;
  };
  std::vector<Waiting> waiting(state.queues.size());
  std::vector<uint32_t> left(state.queues.size());  // at or below
  std::vector<JobId> arrival(state.queues.size(), JobId(UINT64_MAX));
  for (const auto& [id, group] : state.groups) {
    const MilliGpu charge = charge_at_least(group.key.shape, state.capacity, group.key.shape.tasks_min);
    for (const JobId job : group.jobs) {
      waiting[group.key.queue].jobs.push_back({head_key(group.key, job), charge});
    }
  }
  for (QueueIndex index = 0; index < state.queues.size(); ++index) {
    auto& jobs = waiting[index].jobs;
    std::sort(jobs.begin(), jobs.end());
    for (const QueueIndex above : state.queues.path_to_root(index)) {
      left[above] += static_cast<uint32_t>(jobs.size());
      if (!jobs.empty()) arrival[above] = std::min(arrival[above], jobs.front().first.job);
    }
  }
  const std::vector<Wide> usage = usage_for_weight(state);
  std::vector<JobId> order;
  while (left[kRootQueue] > 0) {
    QueueIndex at = kRootQueue;
    while (waiting[at].next == waiting[at].jobs.size()) {
      std::optional<QueueIndex> best;
      for (const QueueIndex child : state.queues.at(at).children) {
        if (left[child] > 0 && (!best || comes_before(state, shares, planned, usage, arrival, child, *best)))
          best = child;
      }
      at = *best;
    }
    const auto& [key, charge] = waiting[at].jobs[waiting[at].next++];
    order.push_back(key.job);
    for (const QueueIndex above : state.queues.path_to_root(at)) {
      --left[above];
      planned[above] += charge;
    }
  }
  return order;
}

std::optional<Head> Order::next_head(QueueIndex queue) const {
  const auto& heads = state_.queues.at(queue).heads;
  const auto& cursor = cursors_[queue];
  const auto found = cursor ? heads.upper_bound(*cursor) : heads.begin();
  if (found == heads.end()) return std::nullopt;
  return Head{found->first, found->second};
}

std::optional<std::pair<QueueIndex, Head>> Order::next() {
  if (current_) {
    if (const auto head = next_head(*current_)) return std::pair(*current_, *head);
    current_.reset();
  }
  while (open_[kRootQueue]) {
    QueueIndex at = kRootQueue;
    while (true) {
      // Jobs of an inner queue itself (only possible after a change of policy) go before those below it.
      if (const auto head = next_head(at)) return std::pair(at, *head);
      std::optional<QueueIndex> best;
      for (const QueueIndex child : state_.queues.at(at).children) {
        if (!open_[child]) continue;
        if (!best || comes_before(state_, shares_, planned_, usage_, arrival_, child, *best)) best = child;
      }
      if (!best) break;
      at = *best;
    }
    open_[at] = false;
  }
  return std::nullopt;
}

}  // namespace tranche::scheduler
