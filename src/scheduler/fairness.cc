#include "scheduler/fairness.h"

#include <algorithm>
#include <map>

namespace tranche::scheduler {
namespace {

constexpr int64_t kNormalised = int64_t{1} << 20;  // weights and past use of siblings, as parts of this

// Tilt by past use. With w and u a sibling's parts of all weights and of all past use, its weight becomes
// 2 w^2 / (w + u): w where it used its part, up to 2 w where it used nothing, and never zero. It depends on
// ratios of past use alone, which do not change while nothing is used (property P15).
int64_t tilted(int64_t weight, int64_t weights, Wide usage, Wide usages) {
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

class Division {
 public:
  Division(const QueueTree& queues, const std::vector<MilliGpu>& waiting, Time now)
      : queues_(queues), waiting_(waiting), usage_(queues.size()), shares_(queues.size()) {
    for (QueueIndex index = 0; index < queues.size(); ++index) usage_[index] = queues.usage(index, now);
  }

  std::vector<Share> run(MilliGpu capacity) {
    measure_demand(kRootQueue);
    shares_[kRootQueue].fair = std::min(capacity, shares_[kRootQueue].demand);
    shares_[kRootQueue].entitled = shares_[kRootQueue].fair;
    divide(kRootQueue);
    return std::move(shares_);
  }

 private:
  void measure_demand(QueueIndex index) {
    const Queue& queue = queues_.at(index);
    MilliGpu waiting = waiting_[index];
    MilliGpu used_here = queue.used;
    MilliGpu demand;
    for (const QueueIndex child : queue.children) {
      measure_demand(child);
      demand += shares_[child].demand;
      used_here -= queues_.at(child).used;
    }
    demand += used_here + waiting;
    shares_[index].demand = queue.limit ? std::min(demand, *queue.limit) : demand;
  }

  void divide(QueueIndex index) {
    const auto& children = queues_.at(index).children;
    std::vector<QueueIndex> active;
    for (const QueueIndex child : children) {
      if (shares_[child].demand.count() > 0) active.push_back(child);
    }
    if (active.empty()) return;
    divide_among(active, shares_[index].fair, true, &Share::fair);
    divide_among(active, shares_[index].entitled, false, &Share::entitled);
    for (const QueueIndex child : active) divide(child);
  }

  void divide_among(const std::vector<QueueIndex>& active, MilliGpu amount, bool with_past_use,
                    MilliGpu Share::*result) {
    int64_t left = amount.count();
    std::map<int64_t, std::vector<QueueIndex>> bands;  // by descending priority
    for (const QueueIndex child : active) {
      const Queue& queue = queues_.at(child);
      const MilliGpu demand = shares_[child].demand;
      // Quotas are not scaled down when they promise more than there is: that is for the policy to mend.
      shares_[child].*result = queue.guaranteed ? std::min(*queue.guaranteed, demand) : MilliGpu();
      left -= (shares_[child].*result).count();
      bands[-int64_t{queue.priority}].push_back(child);
    }
    for (const auto& [descending, band] : bands) {
      if (left <= 0) return;
      std::vector<Claimant> claimants = claimants_of(band, with_past_use, result);
      water_fill(claimants, left);
      for (size_t i = 0; i < band.size(); ++i) {
        shares_[band[i]].*result += MilliGpu(claimants[i].share);
        left -= claimants[i].share;
      }
    }
  }

  std::vector<Claimant> claimants_of(const std::vector<QueueIndex>& band, bool with_past_use,
                                     MilliGpu Share::*result) const {
    int64_t weights = 0;
    Wide usages = 0;
    for (const QueueIndex child : band) {
      weights += queues_.at(child).weight;
      if (with_past_use) usages += usage_[child];
    }
    std::vector<Claimant> claimants;
    for (const QueueIndex child : band) {
      const int64_t weight = queues_.at(child).weight;
      const int64_t need = (shares_[child].demand - shares_[child].*result).count();
      const bool tilt = with_past_use && band.size() > 1;
      claimants.push_back({need, tilt ? tilted(weight, weights, usage_[child], usages) : weight, 0});
    }
    return claimants;
  }

  const QueueTree& queues_;
  const std::vector<MilliGpu>& waiting_;
  std::vector<Wide> usage_;
  std::vector<Share> shares_;
};

}  // namespace

void water_fill(std::vector<Claimant>& claimants, int64_t amount) {
  std::vector<size_t> order(claimants.size());
  int64_t weights = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
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

std::vector<Share> compute_shares(const QueueTree& queues, const std::vector<MilliGpu>& waiting,
                                  MilliGpu capacity, Time now) {
  return Division(queues, waiting, now).run(capacity);
}

}  // namespace tranche::scheduler
