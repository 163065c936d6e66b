#include "scheduler/fairness.h"

#include <algorithm>

namespace tranche::scheduler {
namespace {

constexpr int64_t kNormalised = int64_t{1} << 20;  // weights and past use of siblings, as parts of this

// Tilt by past use. With w and u a sibling's parts of all weights and of all past use, its weight becomes
// 2 w^2 / (w + u): w where it used its part, up to 2 w where it used nothing, and never zero. It depends on
// ratios of past use alone, which do not change while nothing is used (property P15).
int64_t tilted(int64_t weight, int64_t weights, Wide usage, Wide usages) {
  if (weight == 0) return 0;
  const int64_t w = std::max<int64_t>(scale_down(kNormalised, weight, weights), 1);
  if (usages == 0) return w;
  // Keeps the product below 128 bits; the low bits of huge sums do not matter here.
  while (usages >> 100) {
    usages >>= 1;
    usage >>= 1;
  }
  const auto u = static_cast<int64_t>(wide(kNormalised) * usage / usages);
  return std::max<int64_t>(2 * w * w / (w + u), 1);
}

// One level: what `parent` gets, divided among its children that want something.
class Level {
 public:
  explicit Level(QueueTree& queues) : queues_(queues) {}

  void divide(const std::vector<QueueIndex>& children, MilliGpu amount, bool with_past_use,
              MilliGpu Queue::*result) {
    int64_t left = amount.count();
    std::vector<QueueIndex> active;
    for (const QueueIndex child : children) {
      Queue& queue = queues_.at(child);
      // Quotas are not scaled down when they promise more than there is: that is for the policy to mend.
      queue.*result = queue.guaranteed ? std::min(*queue.guaranteed, queue.demand) : MilliGpu();
      left -= (queue.*result).count();
      if (queue.demand.count() > 0) active.push_back(child);
    }
    std::stable_sort(active.begin(), active.end(), [&](QueueIndex a, QueueIndex b) {
      return queues_.at(a).priority > queues_.at(b).priority;
    });
    for (size_t begin = 0; begin < active.size() && left > 0;) {
      size_t end = begin;
      while (end < active.size() && queues_.at(active[end]).priority == queues_.at(active[begin]).priority)
        ++end;
      divide_band(active, begin, end, left, with_past_use, result);
      begin = end;
    }
    // Over all bands: what rounding has left.
    if (rest_.empty()) return;
    std::vector<Claimant> claimants;
    for (const auto& [queue, claimant] : rest_) claimants.push_back(claimant);
    fill_the_rest(claimants, left, queues_.share_unit().count());
    for (size_t i = 0; i < claimants.size(); ++i)
      queues_.at(rest_[i].first).*result += MilliGpu(claimants[i].share - rest_[i].second.share);
  }

 private:
  void divide_band(const std::vector<QueueIndex>& active, size_t begin, size_t end, int64_t& left,
                   bool with_past_use, MilliGpu Queue::*result) {
    int64_t weights = 0;
    Wide usages = 0;
    for (size_t i = begin; i < end; ++i) {
      weights += queues_.at(active[i]).weight;
      if (with_past_use) usages += queues_.at(active[i]).usage_seen;
    }
    std::vector<Claimant> claimants;
    claimants.reserve(end - begin);
    for (size_t i = begin; i < end; ++i) {
      const Queue& queue = queues_.at(active[i]);
      const int64_t need = (queue.demand - queue.*result).count();
      const bool tilt = with_past_use && end - begin > 1;
      claimants.push_back(
          {need, tilt ? tilted(queue.weight, weights, queue.usage_seen, usages) : queue.weight, 0});
    }
    const int64_t unit = queues_.share_unit().count();
    if (unit > 1) {
      fill_by_units(claimants, left, unit);
      for (size_t i = begin; i < end; ++i) rest_.push_back({active[i], claimants[i - begin]});
    } else {
      water_fill(claimants, left);
    }
    for (size_t i = begin; i < end; ++i) {
      queues_.at(active[i]).*result += MilliGpu(claimants[i - begin].share);
      left -= claimants[i - begin].share;
    }
  }

  QueueTree& queues_;
  std::vector<std::pair<QueueIndex, Claimant>> rest_;  // only with a unit
};

}  // namespace

void water_fill(std::vector<Claimant>& claimants, int64_t amount) {
  std::vector<size_t> order;
  order.reserve(claimants.size());
  int64_t weights = 0;
  for (size_t i = 0; i < claimants.size(); ++i) {
    if (claimants[i].weight > 0) order.push_back(i);
    weights += claimants[i].weight;
  }
  // Those who need least for their weight are satisfied first; what they leave is divided again.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Wide left = wide(claimants[a].need) * wide(claimants[b].weight);
    const Wide right = wide(claimants[b].need) * wide(claimants[a].weight);
    return left != right ? left < right : a < b;
  });
  size_t next = 0;
  for (; next < order.size(); ++next) {
    Claimant& claimant = claimants[order[next]];
    if (wide(claimant.need) * wide(weights) > wide(amount) * wide(claimant.weight)) break;
    claimant.share = claimant.need;
    amount -= claimant.need;
    weights -= claimant.weight;
  }
  for (; next < order.size(); ++next) {
    Claimant& claimant = claimants[order[next]];
    claimant.share = scale_down(amount, claimant.weight, weights);
  }
}

void fill_by_units(std::vector<Claimant>& claimants, int64_t amount, int64_t unit) {
  bool any_satisfied = true;
  while (any_satisfied && amount > 0) {
    any_satisfied = false;
    int64_t weights = 0;
    for (const Claimant& claimant : claimants)
      if (claimant.share < claimant.need) weights += claimant.weight;
    if (weights == 0) return;
    const int64_t all = amount;
    for (Claimant& claimant : claimants) {
      const int64_t need = claimant.need - claimant.share;
      if (need <= 0 || claimant.weight == 0) continue;
      const int64_t part = scale_down(all, claimant.weight, weights);
      const int64_t given = part >= need ? need : part / unit * unit;
      claimant.remainder = part >= need ? 0 : part - given;
      any_satisfied = any_satisfied || given == need;
      claimant.share += given;
      amount -= given;
    }
  }
}

int64_t fill_the_rest(std::vector<Claimant>& claimants, int64_t amount, int64_t unit) {
  std::vector<Claimant*> order;
  for (Claimant& claimant : claimants)
    if (claimant.share < claimant.need && claimant.weight > 0) order.push_back(&claimant);
  std::stable_sort(order.begin(), order.end(),
                   [](const Claimant* a, const Claimant* b) { return a->remainder > b->remainder; });
  for (Claimant* claimant : order) {
    const int64_t given = std::min({amount, unit, claimant->need - claimant->share});
    claimant->share += given;
    amount -= given;
  }
  return amount;
}

void QueueTree::divide_again(QueueIndex index) {
  queues_[index].divide_again = true;
  for (QueueIndex at = index; at != kRootQueue;) {
    at = queues_[at].parent;
    if (queues_[at].divide_again_below) return;
    queues_[at].divide_again_below = true;
  }
}

void QueueTree::demand_changed(QueueIndex index, MilliGpu by) {
  for (QueueIndex at = index; by.count() != 0; at = queues_[at].parent) {
    Queue& queue = queues_[at];
    queue.demand_raw += by;
    const MilliGpu before = queue.demand;
    queue.demand = queue.limit ? std::min(queue.demand_raw, *queue.limit) : queue.demand_raw;
    by = queue.demand - before;
    if (at == kRootQueue || by.count() == 0) return;
    if (queue.guaranteed) look_for_uneven_.insert(queue.parent);
    const MilliGpu least = std::min(before, queue.demand);
    const bool wants_more_anyway =
        queue.fair < least && queue.entitled < least && (!queue.guaranteed || *queue.guaranteed <= least);
    if (!wants_more_anyway) divide_again(queue.parent);
  }
}

void QueueTree::rebuild_demand() {
  for (Queue& queue : queues_) {
    queue.demand_raw = queue.used + queue.waiting;
    for (const QueueIndex child : queue.children) queue.demand_raw -= queues_[child].used;
  }
  // Children come after their parents.
  for (QueueIndex index = size(); index-- > 0;) {
    Queue& queue = queues_[index];
    queue.demand = queue.limit ? std::min(queue.demand_raw, *queue.limit) : queue.demand_raw;
    if (index != kRootQueue) queues_[queue.parent].demand_raw += queue.demand;
    divide_again(index);
    look_for_uneven_.insert(index);
  }
}

void QueueTree::divide(MilliGpu capacity) {
  Queue& root = queues_[kRootQueue];
  const MilliGpu amount = std::min(capacity, root.demand);
  if (amount != root.fair || amount != root.entitled) {
    root.fair = root.entitled = amount;
    root.divide_again = true;
  }
  divide_below(kRootQueue);
}

void QueueTree::divide_below(QueueIndex index) {
  Queue& queue = queues_[index];
  if (queue.divide_again) {
    look_for_uneven_.insert(index);
    std::vector<std::pair<MilliGpu, MilliGpu>> before;
    before.reserve(queue.children.size());
    for (const QueueIndex child : queue.children)
      before.push_back({queues_[child].fair, queues_[child].entitled});
    Level(*this).divide(queue.children, queue.fair, true, &Queue::fair);
    Level(*this).divide(queue.children, queue.entitled, false, &Queue::entitled);
    for (size_t i = 0; i < before.size(); ++i) {
      Queue& child = queues_[queue.children[i]];
      if (before[i] == std::pair(child.fair, child.entitled) || child.children.empty()) continue;
      child.divide_again = true;
    }
  } else if (!queue.divide_again_below) {
    return;
  }
  queue.divide_again = queue.divide_again_below = false;
  for (const QueueIndex child : queues_[index].children) {
    if (queues_[child].divide_again || queues_[child].divide_again_below) divide_below(child);
  }
}

}  // namespace tranche::scheduler
