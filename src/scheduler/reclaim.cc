#include "scheduler/reclaim.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/assert.h"

namespace tranche::scheduler {
namespace {

// Nodes with room to be made that are compared before the search stops, beyond those that it needs.
constexpr size_t kNodesCompared = 64;

struct Sides {
  QueueIndex a = kRootQueue;  // the claimant's
  QueueIndex b = kRootQueue;  // the victim's
};

// The children of the lowest queue that both are below.
std::optional<Sides> sides_of(const State& state, QueueIndex claimant, QueueIndex victim) {
  const auto& own = state.queues.path_to_root(claimant);
  const auto& other = state.queues.path_to_root(victim);
  size_t mine = own.size();
  size_t theirs = other.size();
  while (mine > 0 && theirs > 0 && own[mine - 1] == other[theirs - 1]) {
    --mine;
    --theirs;
  }
  if (mine == 0 || theirs == 0) return std::nullopt;
  return Sides{own[mine - 1], other[theirs - 1]};
}

enum class Taking : uint8_t { reclaim, preempt };

struct Victim {
  const Job* job = nullptr;
  MilliGpu charge;
  QueueIndex side = kRootQueue;  // `b` of the header
  bool by_quota = false;         // a reclaim of quota may take it
  // Furthest over its share first, then low priority, then the shortest time lost.
  std::tuple<int64_t, int32_t, int64_t, JobId> rank;
};

class VictimSearch {
 public:
  VictimSearch(const State& state, const Promises& promises, const Job& job, const Group& group, Time& wake,
               HostPool& pool)
      : state_(state),
        promises_(promises),
        job_(job),
        key_(group.key),
        record_(state.waiting.shape(group.key.shape)),
        shape_(record_.shape),
        entitlement_(state, promises, group),
        wake_(wake),
        pool_(pool),
        base_(promises.when_left()) {}

  // When it fits once everything that leaves has left, patience is enough.
  bool is_coming() const { return keeps_bounds() && fits(base_).has_value(); }

  std::optional<Eviction> find(Taking taking) {
    taking_ = taking;
    for (const TypeChoice& choice : record_.choices) {
      choice_ = &choice;
      if (!may_be_enough()) continue;
      if (auto eviction = by_node()) return eviction;
    }
    return std::nullopt;
  }

 private:
  std::optional<GangPlacement> fits(const View& room) const {
    const Layers layers{&room};
    return place_gang(Search{shape_, record_.choices, layers}, shape_.tasks_min);
  }

  bool keeps_bounds() const {
    for (const QueueIndex at : state_.queues.path_to_root(key_.queue)) {
      const Queue& queue = state_.queues.at(at);
      const MilliGpu after = queue.staying + promises_.planned().at(at) - removed(at) + entitlement_.charge();
      if (queue.limit && after > *queue.limit) return false;
      if (!key_.preemptible && queue.quota &&
          queue.used_not_preemptible + entitlement_.charge() > *queue.quota)
        return false;
    }
    return true;
  }

  MilliGpu removed(QueueIndex at) const {
    const auto found = removed_.find(at);
    return found == removed_.end() ? MilliGpu() : found->second;
  }
  void book(const Victim& victim, MilliGpu sign_and_amount) {
    for (const QueueIndex at : state_.queues.path_to_root(victim.job->queue)) removed_[at] += sign_and_amount;
  }

  // The victim as one of this claim, if it can be that at all.
  std::optional<Victim> victim_of(const Job& job) {
    const JobSpec& spec = *job.spec;
    if (!spec.preemptible || job.stop_reason) return std::nullopt;
    Victim victim{&job, MilliGpu(), job.queue, false, {}};
    for (const Task& task : job.tasks) {
      const Holding* holding = state_.holdings.find(task.start.task);
      if (holding != nullptr && !holding->exited) victim.charge += holding->charge();
    }
    int64_t excess = 0;
    if (taking_ == Taking::preempt) {
      if (job.queue != key_.queue || spec.priority >= key_.priority) return std::nullopt;
      victim.by_quota = true;
    } else {
      if (job.queue == key_.queue) return std::nullopt;
      const auto parted = sides_of(state_, key_.queue, job.queue);
      if (!parted) return std::nullopt;
      victim.side = parted->b;
      victim.by_quota = entitlement_.quota_at(parted->a);
      const Queue& side = state_.queues.at(parted->b);
      excess = (side.staying - side.entitled).count();
      const bool by_share = entitlement_.share_at(parted->a) && excess >= kSurplusNeeded.count() &&
                            excess >= victim.charge.count();
      if (!victim.by_quota && !by_share) return std::nullopt;
      if (!is_outside_quotas(victim)) return std::nullopt;
      const Time unprotected = job.started + state_.policy.minimum_runtime;
      if (unprotected > state_.now) {
        if (!wake_.is_set() || unprotected < wake_) wake_ = unprotected;
        return std::nullopt;
      }
    }
    victim.rank = {-excess, spec.priority, -job.started.nanoseconds(), job.id};
    return victim;
  }

  // Every queue up to the side that has a quota uses more than it now.
  bool is_outside_quotas(const Victim& victim) const {
    for (const QueueIndex at : state_.queues.path_to_root(victim.job->queue)) {
      const Queue& queue = state_.queues.at(at);
      if (queue.quota && queue.staying - removed(at) <= *queue.quota) return false;
      if (at == victim.side) break;
    }
    return true;
  }

  bool may_take(const Victim& victim) const {
    if (taking_ == Taking::preempt) return true;
    if (!is_outside_quotas(victim)) return false;
    if (victim.by_quota) return true;
    const Queue& side = state_.queues.at(victim.side);
    return side.staying - removed(victim.side) - victim.charge >= side.entitled;
  }

  // The sum of what all sides may lose, against what is missing: most claims in vain end here.
  bool may_be_enough() const {
    if (shape_.gpu_count == 0 || taking_ == Taking::preempt) return true;
    int64_t idle = 0;  // milli-GPU that are free already, of the type
    for (const KindIndex kind : choice_->kinds) {
      const auto& by_idle = state_.capacity.kinds()[kind].nodes.by_idle;
      for (size_t n = 1; n < by_idle.size(); ++n)
        idle += int64_t{by_idle[n].count()} * static_cast<int64_t>(n) * kWholeGpu.count();
      if (shape_.kind != SliceKind::whole || state_.capacity.kinds()[kind].nodes.shares_any()) return true;
    }
    if (base_.changes_anything()) return true;
    int64_t may_lose = 0;
    std::vector<QueueIndex> quota_sides;
    const auto& path = state_.queues.path_to_root(key_.queue);
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      const bool quota = entitlement_.quota_at(path[i]);
      if (!quota && !entitlement_.share_at(path[i])) continue;
      for (const QueueIndex b : state_.queues.at(path[i + 1]).children) {
        if (b == path[i]) continue;
        const Queue& side = state_.queues.at(b);
        const int64_t over =
            (side.staying - (quota ? side.quota.value_or(MilliGpu()) : side.entitled)).count();
        if (over <= 0) continue;
        may_lose += over;
        if (quota && side.quota) quota_sides.push_back(b);
      }
    }
    const int64_t missing = entitlement_.charge().count() - idle - may_lose;
    if (missing <= 0) return true;
    // A side's last victim may be larger than what the side is over by.
    int64_t beyond = 0;
    for (const QueueIndex b : quota_sides) {
      beyond += std::max<int64_t>(largest_running(b) - 1, 0);
      if (beyond >= missing) return true;
    }
    return false;
  }

  int64_t largest_running(QueueIndex queue) const {
    const Queue& at = state_.queues.at(queue);
    int64_t largest = 0;
    for (const JobId id : at.running) {
      int64_t charge = 0;
      for (const Task& task : state_.find(id)->tasks) {
        const Holding* holding = state_.holdings.find(task.start.task);
        if (holding != nullptr && holding->stays) charge += holding->charge().count();
      }
      largest = std::max(largest, charge);
    }
    for (const QueueIndex child : at.children) largest = std::max(largest, largest_running(child));
    return largest;
  }

  // What one node could give.
  struct Host {
    NodeIndex node = 0;
    uint32_t tasks = 0;
    int64_t cost = 0;             // milli-GPU of the victims
    std::vector<Victim> victims;  // in the order in which they are taken
    auto rank(uint32_t wanted) const {
      // Cheapest for what of it is wanted, then the victim that is best taken.
      const int64_t useful = std::min(tasks, wanted);
      return std::tuple(cost / useful, victims.empty() ? decltype(Victim::rank){} : victims.front().rank,
                        node);
    }
  };

  StopReason reason() const {
    return taking_ == Taking::reclaim ? StopReason::reclaimed : StopReason::preempted;
  }

  // One job after the other of a large group: hosts that the one before has left over.
  std::optional<Eviction> from_pool() {
    if (pool_.group != job_.group || pool_.reason != reason() || pool_.type != choice_->type)
      pool_ = HostPool{job_.group, reason(), choice_->type, {}};
    while (!pool_.nodes.empty()) {
      const NodeIndex node = pool_.nodes.back();
      pool_.nodes.pop_back();
      Host host = host_of(node);
      if (host.tasks == 0) continue;
      std::vector<Host> hosts;
      hosts.push_back(std::move(host));
      if (auto eviction = take_from(hosts)) {
        pool_.nodes.insert(pool_.nodes.begin(), node);
        return eviction;
      }
    }
    return std::nullopt;
  }

  std::optional<Eviction> by_node() {
    if (shape_.tasks_min == 1) {
      if (auto eviction = from_pool()) return eviction;
    }
    std::vector<Host> hosts = hosts_to_choose_from();
    uint64_t hosted = 0;
    for (const Host& host : hosts) hosted += host.tasks;
    if (hosted < shape_.tasks_min) return std::nullopt;
    std::stable_sort(hosts.begin(), hosts.end(), [&](const Host& x, const Host& y) {
      return x.rank(shape_.tasks_min) < y.rank(shape_.tasks_min);
    });
    if (shape_.tasks_min == 1) {
      for (auto host = hosts.rbegin(); host != hosts.rend(); ++host) pool_.nodes.push_back(host->node);
    }
    return take_from(hosts);
  }

  std::vector<Host> hosts_to_choose_from() {
    std::vector<Host> hosts;
    std::vector<bool> seen(state_.capacity.nodes().size());
    uint64_t hosted = 0;
    size_t compared = 0;
    const auto consider = [&](NodeIndex node) {
      if (seen[node]) return true;
      seen[node] = true;
      Host host = host_of(node);
      if (host.tasks == 0) return true;
      hosted += host.tasks;
      ++compared;
      hosts.push_back(std::move(host));
      return hosted < shape_.tasks_min || compared < kNodesCompared + shape_.tasks_min;
    };
    if (!base_.visit_changed(consider)) return hosts;
    // Those with most idle GPUs need the fewest victims.
    size_t buckets = 0;
    for (const KindIndex kind : choice_->kinds)
      buckets = std::max(buckets, state_.capacity.kinds()[kind].nodes.by_idle.size());
    for (size_t idle = buckets; idle-- > 0;) {
      for (const KindIndex kind : choice_->kinds) {
        const auto& by_idle = state_.capacity.kinds()[kind].nodes.by_idle;
        if (idle >= by_idle.size()) continue;
        for (uint32_t n = by_idle[idle].next(0); n != BitSet::kNone; n = by_idle[idle].next(n + 1)) {
          if (!consider(n)) return hosts;
        }
      }
    }
    if (shape_.gpu_count > 0) return hosts;
    for (NodeIndex n = 0; n < state_.capacity.nodes().size(); ++n) {
      if (!consider(n)) return hosts;
    }
    return hosts;
  }

  // The fewest victims of the node, best taken first, that make room for as many tasks as it can.
  Host host_of(NodeIndex node) {
    Host host{node, 0, 0, {}};
    const NodeRoom& home = state_.capacity.at(node);
    if (!home.present || (!shape_.pool.empty() && home.pool != shape_.pool)) return host;
    View view(&base_);
    const Layers layers{&view};
    host.tasks = count_on_node(shape_, *choice_, node, layers, shape_.tasks_min);
    if (host.tasks == shape_.tasks_min) return host;
    std::vector<Victim> candidates;
    for (const uint32_t position : state_.holdings_on[node]) {
      const Holding& holding = state_.holdings.at(position);
      if (!holding.stays) continue;
      const Job& job = *state_.find(holding.task.job);
      if (!candidates.empty() &&
          std::any_of(candidates.begin(), candidates.end(), [&](const Victim& v) { return v.job == &job; }))
        continue;
      if (const auto victim = victim_of(job)) candidates.push_back(*victim);
    }
    std::sort(candidates.begin(), candidates.end(),
              [](const Victim& a, const Victim& b) { return a.rank < b.rank; });
    std::vector<Victim> taken;
    for (const Victim& victim : candidates) {
      if (!may_take(victim)) continue;
      give_on(view, node, *victim.job);
      book(victim, victim.charge);
      taken.push_back(victim);
      const uint32_t fitting = count_on_node(shape_, *choice_, node, layers, shape_.tasks_min);
      if (fitting <= host.tasks) continue;
      host.tasks = fitting;
      host.victims = taken;
      if (fitting == shape_.tasks_min) break;
    }
    for (const Victim& victim : taken) book(victim, -victim.charge);
    spare(host, node);
    for (const Victim& victim : host.victims) host.cost += victim.charge.count();
    return host;
  }

  // Leaves alone who need not go for the room that the host makes.
  void spare(Host& host, NodeIndex node) {
    View view(&base_);
    const Layers layers{&view};
    for (const Victim& victim : host.victims) give_on(view, node, *victim.job);
    for (size_t i = host.victims.size(); i-- > 0;) {
      take_on(view, node, *host.victims[i].job);
      if (count_on_node(shape_, *choice_, node, layers, host.tasks) == host.tasks) {
        host.victims.erase(host.victims.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        give_on(view, node, *host.victims[i].job);
      }
    }
  }

  template <class Action>
  void for_each_holding(const Job& job, Action action) const {
    for (const Task& task : job.tasks) {
      const Holding* holding = state_.holdings.find(task.start.task);
      if (holding != nullptr && !holding->exited) action(*holding);
    }
  }
  void give_on(View& view, NodeIndex node, const Job& job) const {
    const NodeId id = state_.capacity.at(node).id;
    for_each_holding(job, [&](const Holding& h) {
      if (h.node == id) view.change(node).give(h.footprint());
    });
  }
  void take_on(View& view, NodeIndex node, const Job& job) const {
    const NodeId id = state_.capacity.at(node).id;
    for_each_holding(job, [&](const Holding& h) {
      if (h.node == id) view.change(node).take(h.footprint());
    });
  }

  // Takes from the hosts in turn until the gang fits, then each victim that turns out not to be needed is
  // left alone: removing any one of the rest would leave the job without a place (property P19).
  std::optional<Eviction> take_from(const std::vector<Host>& hosts) {
    std::vector<Victim> chosen;
    FlatIndex<JobId, IdHash<JobId>> is_chosen;
    View room(&base_);
    room.keep_buckets();
    uint64_t hosted = 0;
    bool enough = false;
    for (const Host& host : hosts) {
      for (const Victim& victim : host.victims) {
        if (is_chosen.find(victim.job->id) || !may_take(victim)) continue;
        is_chosen.insert(victim.job->id, 0);
        for_each_holding(*victim.job, [&](const Holding& h) { room.give(h.footprint()); });
        book(victim, victim.charge);
        chosen.push_back(victim);
      }
      const Layers layers{&room};
      hosted += count_on_node(shape_, *choice_, host.node, layers, shape_.tasks_min);
      if (hosted < shape_.tasks_min) continue;
      enough = keeps_bounds() && place(room).has_value();
      if (enough) break;
    }
    if (!enough || chosen.empty()) {
      removed_.clear();
      return std::nullopt;
    }
    spare_unneeded(chosen, room);
    if (taking_ == Taking::reclaim) assert_progress(chosen);
    auto plan = place(room);
    removed_.clear();
    TRANCHE_ASSERT(plan.has_value());
    return eviction(chosen, std::move(*plan));
  }

  std::optional<GangPlacement> place(const View& room) const {
    const Layers layers{&room};
    return place_gang_on_type(Search{shape_, record_.choices, layers}, *choice_, shape_.tasks_min);
  }

  void spare_unneeded(std::vector<Victim>& chosen, View& room) {
    // Room on all nodes together; put back one by one, only the victim's nodes are counted again.
    const Layers layers{&room};
    std::map<NodeIndex, uint32_t> counts;
    uint64_t fitting = 0;
    const auto count = [&](NodeIndex node) {
      return count_on_node(shape_, *choice_, node, layers, shape_.tasks_min);
    };
    room.visit_changed([&](NodeIndex node) {
      fitting += counts[node] = count(node);
      return true;
    });
    if (shape_.gpu_count == 0 || shape_.kind != SliceKind::whole || fitting < shape_.tasks_min) {
      // Free room elsewhere may count too: ask the placement itself.
      for (size_t i = chosen.size(); i-- > 0;) {
        put_back(chosen[i], room);
        if (keeps_bounds() && place(room)) {
          chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          take_again(chosen[i], room);
        }
      }
      return;
    }
    uint64_t elsewhere = 0;
    for (const KindIndex kind : choice_->kinds) {
      const auto& by_idle = state_.capacity.kinds()[kind].nodes.by_idle;
      for (size_t idle = shape_.gpu_count; idle < by_idle.size() && elsewhere < shape_.tasks_min; ++idle) {
        for (uint32_t n = by_idle[idle].next(0); n != BitSet::kNone && elsewhere < shape_.tasks_min;
             n = by_idle[idle].next(n + 1)) {
          if (!room.is_changed(n)) elsewhere += count(n);
        }
      }
    }
    fitting += elsewhere;
    for (size_t i = chosen.size(); i-- > 0;) {
      put_back(chosen[i], room);
      uint64_t now = fitting;
      std::vector<std::pair<NodeIndex, uint32_t>> changed;
      for_each_holding(*chosen[i].job, [&](const Holding& h) {
        const NodeIndex node = *state_.capacity.index_of(h.node);
        const uint32_t before = counts[node];
        const uint32_t after = count(node);
        if (before == after) return;
        now -= before - after;
        counts[node] = after;
        changed.push_back({node, before});
      });
      if (now >= shape_.tasks_min && keeps_bounds()) {
        fitting = now;
        chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        take_again(chosen[i], room);
        for (const auto& [node, before] : changed) counts[node] = before;
      }
    }
  }

  void put_back(const Victim& victim, View& room) {
    for_each_holding(*victim.job, [&](const Holding& h) { room.take(h.footprint()); });
    book(victim, -victim.charge);
  }
  void take_again(const Victim& victim, View& room) {
    for_each_holding(*victim.job, [&](const Holding& h) { room.give(h.footprint()); });
    book(victim, victim.charge);
  }

  // What the header promises: nobody who loses by a claim of fair share falls below what it is entitled to.
  void assert_progress(const std::vector<Victim>& chosen) const {
    for (const Victim& victim : chosen) {
      const Queue& side = state_.queues.at(victim.side);
      TRANCHE_ASSERT(victim.by_quota || side.staying - removed(victim.side) >= side.entitled);
    }
  }

  Eviction eviction(const std::vector<Victim>& chosen, GangPlacement plan) const {
    Eviction result{{}, std::move(plan)};
    for (const Victim& victim : chosen) {
      for (const Task& task : victim.job->tasks) {
        if (task.phase != TaskPhase::exited) result.stops.push_back(Stop{task.start.task, reason(), job_.id});
      }
    }
    return result;
  }

  const State& state_;
  const Promises& promises_;
  const Job& job_;
  const GroupKey key_;
  const ShapeRecord& record_;
  const Shape& shape_;
  const Entitlement entitlement_;
  Time& wake_;
  HostPool& pool_;
  const View& base_;
  const TypeChoice* choice_ = nullptr;
  Taking taking_ = Taking::reclaim;
  std::map<QueueIndex, MilliGpu> removed_;  // charge of victims chosen so far
};

}  // namespace

Entitlement::Entitlement(const State& state, const Promises& promises, const Group& group)
    : state_(state),
      promises_(promises),
      group_(group),
      charge_(state.waiting.shape(group.key.shape).charge) {}

MilliGpu Entitlement::used(QueueIndex at) const {
  return state_.queues.at(at).staying + promises_.planned().at(at);
}

bool Entitlement::quota_at(QueueIndex a) const {
  bool within = state_.queues.at(a).guaranteed.has_value();
  for (const QueueIndex at : state_.queues.path_to_root(group_.key.queue)) {
    const auto guaranteed = state_.queues.at(at).guaranteed;
    if (guaranteed && used(at) + charge_ > *guaranteed) within = false;
    if (at == a) break;
  }
  return within;
}

bool Entitlement::share_at(QueueIndex a) const {
  for (const QueueIndex at : state_.queues.path_to_root(group_.key.queue)) {
    if (used(at) + charge_ > state_.queues.at(at).entitled) return false;
    if (at == a) break;
  }
  return true;
}

bool Entitlement::has_lower_priority() const {
  const auto& running = state_.queues.at(group_.key.queue).running_priorities;
  return !running.empty() && running.begin()->first < group_.key.priority;
}

bool Entitlement::quota_anywhere() const {
  const auto& path = state_.queues.path_to_root(group_.key.queue);
  return std::any_of(path.begin(), path.end(), [&](QueueIndex at) { return quota_at(at); });
}

bool Entitlement::any() const {
  if (has_lower_priority()) return true;
  const auto& path = state_.queues.path_to_root(group_.key.queue);
  bool share = true;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    share = share && used(path[i]) + charge_ <= state_.queues.at(path[i]).entitled;
    const bool quota = quota_at(path[i]);
    if (!share && !quota) continue;
    for (const QueueIndex b : state_.queues.at(path[i + 1]).children) {
      if (b == path[i]) continue;
      const Queue& side = state_.queues.at(b);
      if (quota && side.staying > side.quota.value_or(MilliGpu())) return true;
      if (share && side.staying - side.entitled >= kSurplusNeeded) return true;
    }
  }
  return false;
}

std::vector<JobId> jobs_inside_quota(const State& state, QueueIndex queue) {
  struct Running {
    const Job* job;
    MilliGpu charge;
  };
  std::vector<Running> jobs;
  std::vector<QueueIndex> below{queue};
  for (size_t next = 0; next < below.size(); ++next) {
    const Queue& at = state.queues.at(below[next]);
    below.insert(below.end(), at.children.begin(), at.children.end());
    for (const JobId id : at.running) {
      const Job* job = state.find(id);
      MilliGpu charge;
      for (const Task& task : job->tasks) {
        const Holding* holding = state.holdings.find(task.start.task);
        if (holding != nullptr && holding->stays) charge += holding->charge();
      }
      jobs.push_back({job, charge});
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const Running& a, const Running& b) {
    return std::tuple(a.job->spec->preemptible, a.job->started, a.job->id) <
           std::tuple(b.job->spec->preemptible, b.job->started, b.job->id);
  });
  std::vector<JobId> inside;
  MilliGpu sum;
  for (const Running& running : jobs) {
    sum += running.charge;
    if (sum <= state.queues.at(queue).quota.value_or(MilliGpu())) inside.push_back(running.job->id);
  }
  return inside;
}

std::optional<Eviction> find_victims(const State& state, const Promises& promises, const Job& job,
                                     const Group& group, Time& wake, HostPool& pool) {
  VictimSearch search(state, promises, job, group, wake, pool);
  if (search.is_coming()) return std::nullopt;
  if (auto eviction = search.find(Taking::reclaim)) return eviction;
  return search.find(Taking::preempt);
}

}  // namespace tranche::scheduler
