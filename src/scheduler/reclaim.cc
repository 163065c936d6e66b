#include "scheduler/reclaim.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/assert.h"
#include "scheduler/task_step.h"
#include "scheduler/victims.h"

namespace tranche::scheduler {
namespace {

// Nodes with room to be made that are compared before the search stops, beyond those that it needs.
constexpr size_t kNodesCompared = 64;
// Victims that are looked at for a job that is placed by a step.
constexpr size_t kStepVictimsMost = 1024;

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
  bool is_step() const { return record_.step != nullptr; }
  const Entitlement& entitlement() const { return entitlement_; }

  std::optional<Eviction> find(Taking taking) {
    taking_ = taking;
    seats_are_known_ = false;
    if (is_step()) return for_step();
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
    return place_record(record_, layers);
  }

  bool keeps_bounds() const {
    for (const QueueIndex at : state_.queues.path_to_root(key_.queue)) {
      const Queue& queue = state_.queues.at(at);
      const MilliGpu after =
          queue.staying + promises_.planned().at(at) - removed_.at(at) + entitlement_.charge();
      if (queue.limit && after > *queue.limit) return false;
      if (!key_.preemptible && queue.quota &&
          queue.used_not_preemptible + entitlement_.charge() > *queue.quota)
        return false;
      HostAmount host = queue.host_staying;
      host += promises_.planned().host_at(at);
      host += -removed_.host_at(at);
      host += entitlement_.host();
      if (exceeds(host, queue.host_limit)) return false;
      HostAmount fixed = queue.host_used_not_preemptible;
      fixed += entitlement_.host();
      if (!key_.preemptible && exceeds(fixed, queue.host_quota)) return false;
    }
    return true;
  }

  void book(const Victim& victim) { removed_.add(state_, victim.job->queue, victim.charge, victim.host); }
  void unbook(const Victim& victim) { removed_.add(state_, victim.job->queue, -victim.charge, -victim.host); }

  // The job's victims, in the order in which they may be taken, if it can be one of this claim at all.
  void add_victims(const Job& job, std::vector<Victim>& out) {
    const auto whole = victim_of(job);
    if (!whole) return;
    if (!job.spec->elastic) return out.push_back(*whole);
    TaskGroups::RankSet running(job.spec->tasks_max);
    std::map<uint32_t, TaskKey> keys;
    for (const TaskKey& key : whole->tasks) {
      running[key.rank] = true;
      keys.emplace(key.rank, key);
    }
    uint32_t nth = 0;
    for (const uint32_t rank : TaskGroups(*job.spec).surplus(running)) {
      Victim one = *whole;
      one.tasks = {keys.at(rank)};
      one.is_surplus = true;
      one.nth = nth++;
      keys.erase(rank);
      count_charges(one);
      out.push_back(std::move(one));
    }
    if (gives_surplus_only(*job.spec)) return;
    Victim rest = *whole;
    rest.tasks.clear();
    for (const auto& [rank, key] : keys) rest.tasks.push_back(key);
    rest.nth = nth;
    count_charges(rest);
    out.push_back(std::move(rest));
  }

  // To a job of its own queue and priority that lacks what it needs, an elastic one gives what it can live
  // without.
  bool gives_surplus_only(const JobSpec& spec) const {
    return taking_ == Taking::preempt && spec.elastic && spec.priority == key_.priority && !key_.grows;
  }

  void count_charges(Victim& victim) const {
    victim.charge = MilliGpu();
    victim.host = {};
    for_each_holding(victim, [&](const Holding& holding) {
      victim.charge += holding.charge();
      victim.host += holding.host();
    });
  }

  // The whole job as one victim of this claim.
  std::optional<Victim> victim_of(const Job& job) {
    const JobSpec& spec = *job.spec;
    if (!spec.preemptible || job.stop_reason) return std::nullopt;
    Victim victim;
    victim.job = &job;
    victim.own_side = victim.side = job.queue;
    for (const Task& task : job.tasks) {
      const Holding* holding = state_.holdings.find(task.start.task);
      if (holding == nullptr || !holding->stays) continue;
      victim.tasks.push_back(task.start.task);
      victim.charge += holding->charge();
      victim.host += holding->host();
    }
    if (victim.tasks.empty()) return std::nullopt;
    int64_t excess = 0;
    if (taking_ == Taking::preempt) {
      if (job.queue != key_.queue) return std::nullopt;
      if (spec.priority >= key_.priority && !gives_surplus_only(spec)) return std::nullopt;
      victim.by_quota = true;
    } else {
      if (job.queue == key_.queue) return std::nullopt;
      const auto parted = sides_of(state_, key_.queue, job.queue);
      if (!parted) return std::nullopt;
      victim.own_side = parted->a;
      victim.side = parted->b;
      const Queue& side = state_.queues.at(parted->b);
      excess = (side.staying - side.entitled).count();
      if (!is_outside_quotas(victim)) return std::nullopt;
      const Time unprotected = job.started + state_.policy.minimum_runtime;
      if (unprotected > state_.now) {
        if (!wake_.is_set() || unprotected < wake_) wake_ = unprotected;
        return std::nullopt;
      }
    }
    const bool costs_gpus = entitlement_.claims_host() && victim.charge.count() > 0;
    victim.rank = {costs_gpus, -excess, spec.priority, -job.started.nanoseconds(), job.id};
    return victim;
  }

  // Every queue up to the side that has a quota uses more than it now.
  bool is_outside_quotas(const Victim& victim) const {
    for (const QueueIndex at : state_.queues.path_to_root(victim.job->queue)) {
      const Queue& queue = state_.queues.at(at);
      const bool is_inside = queue.quota && queue.staying - removed_.at(at) <= *queue.quota;
      // Who holds GPUs within the quota of them is not ended for processors.
      if (is_inside && (victim.charge.count() > 0 || !is_outside_host_quota(queue, at))) return false;
      if (at == victim.side) break;
    }
    return true;
  }

  bool is_outside_host_quota(const Queue& queue, QueueIndex at) const {
    if (!entitlement_.claims_host()) return false;
    HostAmount host = queue.host_staying;
    host += -removed_.host_at(at);
    return exceeds(host, queue.host_quota);
  }

  // By what is left once those that are booked have gone.
  bool may_take(Victim& victim) const {
    if (taking_ == Taking::preempt) return true;
    if (!is_outside_quotas(victim)) return false;
    victim.by_quota = entitlement_.quota_at(victim.own_side, removed_);
    if (victim.by_quota) return true;
    if (!entitlement_.share_at(victim.own_side, removed_)) return false;
    const Queue& side = state_.queues.at(victim.side);
    const MilliGpu over = side.staying - removed_.at(victim.side) - side.entitled;
    if (over < state_.queues.surplus_needed()) return false;
    return over >= victim.charge || shortfall_with(victim) < entitlement_.charge();
  }

  // What the sides would fall short of their shares if the victim went too.
  MilliGpu shortfall_with(const Victim& victim) const {
    MilliGpu sum;
    const Queue& own = state_.queues.at(victim.side);
    sum += std::max(own.entitled - (own.staying - removed_.at(victim.side) - victim.charge), MilliGpu());
    for (const QueueIndex at : state_.queues.at(own.parent).children) {
      if (at == victim.side || at == victim.own_side || removed_.at(at).count() == 0) continue;
      const Queue& other = state_.queues.at(at);
      sum += std::max(other.entitled - (other.staying - removed_.at(at)), MilliGpu());
    }
    return sum;
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
    std::vector<QueueIndex> bounded_sides;
    for (const Entitlement::Level& level : entitlement_.levels()) {
      if (!level.quota && !level.share) continue;
      for (const QueueIndex b : state_.queues.at(state_.queues.at(level.queue).parent).children) {
        if (b == level.queue) continue;
        const Queue& side = state_.queues.at(b);
        const int64_t over =
            (side.staying - (level.quota ? side.quota.value_or(MilliGpu()) : side.entitled)).count();
        if (over <= 0) continue;
        may_lose += over;
        if (!level.quota || side.quota) bounded_sides.push_back(b);
      }
    }
    const int64_t missing = entitlement_.charge().count() - idle - may_lose;
    if (missing <= 0) return true;
    // A side's last victim may be larger than what the side is over by.
    int64_t beyond = 0;
    for (const QueueIndex b : bounded_sides) {
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

  // Where tasks may go follows from more than single nodes: whoever may be taken is, best taken first, until
  // the step fits; then those that need not have been are left alone.
  std::optional<Eviction> for_step() {
    std::vector<Victim> candidates;
    collect_victims(kRootQueue, candidates);
    std::stable_sort(candidates.begin(), candidates.end(), [](const Victim& a, const Victim& b) {
      return std::tie(a.job->spec->priority, a.rank) < std::tie(b.job->spec->priority, b.rank);
    });
    if (candidates.size() > kStepVictimsMost) candidates.resize(kStepVictimsMost);
    Chosen chosen;
    View room(&base_);
    bool enough = false;
    for (bool again = true; again && !enough;) {
      again = false;
      for (auto next = candidates.begin(); next != candidates.end() && !enough;) {
        if (!chosen.is_next(*next) || !may_take(*next)) {
          ++next;
          continue;
        }
        again = true;
        take_again(*next, room);
        chosen.add(*next);
        next = candidates.erase(next);
        enough = keeps_bounds() && place(room).has_value();
      }
    }
    if (!enough) {
      removed_.clear();
      return std::nullopt;
    }
    spare_unneeded(chosen, room);
    return concluded(chosen, room);
  }

  // What one node could give.
  struct Host {
    NodeIndex node = 0;
    uint32_t tasks = 0;
    int64_t cost = 0;             // milli-GPU of the victims
    std::vector<Victim> victims;  // in the order in which they are taken
    auto rank(uint32_t wanted) const {
      // Lowest priority, then cheapest for what of it is wanted, then the victim that is best taken.
      const int64_t useful = std::min(tasks, wanted);
      int32_t highest = std::numeric_limits<int32_t>::min();
      for (const Victim& victim : victims) highest = std::max(highest, victim.job->spec->priority);
      return std::tuple(highest, cost / useful,
                        victims.empty() ? decltype(Victim::rank){} : victims.front().rank, node);
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

  // Nodes on which somebody stands who may have to give: all others have free room alone.
  void find_seats() {
    if (std::exchange(seats_are_known_, true)) return;
    seats_ = BitSet();
    if (taking_ == Taking::preempt) return add_seats(key_.queue);
    entitlement_.visit_givers([&](QueueIndex b) {
      add_seats_below(b);
      return true;
    });
  }
  void add_seats_below(QueueIndex queue) {
    add_seats(queue);
    for (const QueueIndex child : state_.queues.at(queue).children) add_seats_below(child);
  }
  void add_seats(QueueIndex queue) {
    for (const JobId id : state_.queues.at(queue).running) {
      const Job& job = *state_.find(id);
      if (!job.spec->preemptible || job.stop_reason) continue;
      for (const Task& task : job.tasks) {
        if (const auto node = state_.capacity.index_of(task.start.node)) seats_.insert(*node);
      }
    }
  }
  // `idle`: GPUs that are free already, of the type.
  bool is_worth_a_look(NodeIndex node, size_t idle) const {
    if (shape_.gpu_count == 0 || seats_.contains(node)) return true;
    // One task would have found free room.
    if (shape_.tasks_min == 1) return false;
    return shape_.kind != SliceKind::whole || idle >= shape_.gpu_count;
  }

  std::vector<Host> hosts_to_choose_from() {
    find_seats();
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
          if (is_worth_a_look(n, idle) && !consider(n)) return hosts;
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
      add_victims(job, candidates);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Victim& a, const Victim& b) { return a.rank < b.rank; });
    Chosen taken;
    size_t wanted = 0;  // of them, for as many tasks as there may be
    // One that may not be taken yet may be once others have gone.
    for (bool again = true; again && host.tasks < shape_.tasks_min;) {
      again = false;
      for (auto next = candidates.begin(); next != candidates.end() && host.tasks < shape_.tasks_min;) {
        if (!taken.is_next(*next) || !may_take(*next)) {
          ++next;
          continue;
        }
        again = true;
        give_on(view, node, *next);
        book(*next);
        taken.add(*next);
        next = candidates.erase(next);
        const uint32_t fitting = count_on_node(shape_, *choice_, node, layers, shape_.tasks_min);
        if (fitting <= host.tasks) continue;
        host.tasks = fitting;
        wanted = taken.size();
      }
    }
    for (const Victim& victim : taken.all()) unbook(victim);
    host.victims.assign(taken.all().begin(), taken.all().begin() + static_cast<std::ptrdiff_t>(wanted));
    spare(host, node);
    for (const Victim& victim : host.victims) host.cost += victim.charge.count();
    return host;
  }

  // Leaves alone who need not go for the room that the host makes.
  void spare(Host& host, NodeIndex node) {
    View view(&base_);
    const Layers layers{&view};
    Chosen kept;
    for (const Victim& victim : host.victims) {
      give_on(view, node, victim);
      kept.add(victim);
    }
    for (size_t i = kept.size(); i-- > 0;) {
      if (!kept.is_last(host.victims[i])) continue;
      take_on(view, node, host.victims[i]);
      if (count_on_node(shape_, *choice_, node, layers, host.tasks) == host.tasks) {
        kept.erase(i);
        host.victims.erase(host.victims.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        give_on(view, node, host.victims[i]);
      }
    }
  }

  template <class Action>
  void for_each_holding(const Victim& victim, Action action) const {
    for (const TaskKey& key : victim.tasks) {
      const Holding* holding = state_.holdings.find(key);
      if (holding != nullptr && !holding->exited) action(*holding);
    }
  }
  void give_on(View& view, NodeIndex node, const Victim& victim) const {
    const NodeId id = state_.capacity.at(node).id;
    for_each_holding(victim, [&](const Holding& h) {
      if (h.node == id) view.change(node).give(h.footprint());
    });
  }
  void take_on(View& view, NodeIndex node, const Victim& victim) const {
    const NodeId id = state_.capacity.at(node).id;
    for_each_holding(victim, [&](const Holding& h) {
      if (h.node == id) view.change(node).take(h.footprint());
    });
  }

  // Takes from the hosts in turn until the gang fits, then each victim that turns out not to be needed is
  // left alone: removing any one of the rest would leave the job without a place (property P19).
  std::optional<Eviction> take_from(std::vector<Host>& hosts) {
    Chosen chosen;
    View room(&base_);
    room.keep_buckets();
    uint64_t hosted = 0;
    bool enough = false;
    relieve_bounds(chosen, room);
    bool as_found = chosen.empty();  // every host has what was worked out for it, and nobody else is taken
    for (Host& host : hosts) {
      room.give_all([&](auto give) {
        for (Victim& victim : host.victims) {
          if (!chosen.is_next(victim) || !may_take(victim)) {
            as_found = false;
            continue;
          }
          as_found = as_found && stands_on(victim, host.node);
          for_each_holding(victim, [&](const Holding& h) { give(h.footprint()); });
          book(victim);
          chosen.add(victim);
        }
      });
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
    // One task, for which nothing but what these victims hold on one node is room: host_of() has spared there
    // already whom it could.
    const bool all_needed =
        shape_.tasks_min == 1 && as_found && hosts.front().victims.size() == chosen.size();
    if (!all_needed) spare_unneeded(chosen, room, as_found);
    if (record_.choices.size() > 1) spare_for_other_types(chosen, room);
    return concluded(chosen, room);
  }

  bool stands_on(const Victim& victim, NodeIndex node) const {
    const NodeId id = state_.capacity.at(node).id;
    bool all = true;
    for_each_holding(victim, [&](const Holding& holding) { all = all && holding.node == id; });
    return all;
  }

  std::optional<Eviction> concluded(const Chosen& chosen, const View& room) {
    if (chosen.empty()) {
      // A step may find a place beside a victim that it did not find before, since where it looks first hangs
      // on what was looked at. A plan for which nobody goes is no claim: nothing would stand for it after
      // this walk, and until then it would keep others out.
      removed_.clear();
      return std::nullopt;
    }
    if (taking_ == Taking::reclaim) assert_progress(chosen.all());
    auto plan = place(room);
    if (!plan) plan = fits(room);
    removed_.clear();
    TRANCHE_ASSERT(plan.has_value());
    return eviction(chosen.all(), std::move(*plan));
  }

  // Room alone is not enough where a bound of a queue would be passed: then those of that queue have to go,
  // the best taken first, wherever they are.
  void relieve_bounds(Chosen& chosen, View& room) {
    if (keeps_bounds()) return;
    std::vector<Victim> candidates;
    for (const QueueIndex at : state_.queues.path_to_root(key_.queue)) {
      if (at == kRootQueue) break;
      if (passes_limit(at)) collect_victims(at, candidates);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Victim& a, const Victim& b) { return a.rank < b.rank; });
    for (Victim& victim : candidates) {
      if (keeps_bounds()) return;
      if (!chosen.is_next(victim) || !may_take(victim)) continue;
      for_each_holding(victim, [&](const Holding& h) { room.give(h.footprint()); });
      book(victim);
      chosen.add(victim);
    }
  }

  bool passes_limit(QueueIndex at) const {
    const Queue& queue = state_.queues.at(at);
    if (queue.host_limit.is_set()) return true;
    return queue.limit && queue.staying + promises_.planned().at(at) + entitlement_.charge() > *queue.limit;
  }

  void collect_victims(QueueIndex queue, std::vector<Victim>& out) {
    for (const JobId id : state_.queues.at(queue).running) {
      add_victims(*state_.find(id), out);
    }
    for (const QueueIndex child : state_.queues.at(queue).children) collect_victims(child, out);
  }

  std::optional<GangPlacement> place(const View& room) const {
    const Layers layers{&room};
    if (is_step()) return record_.step->place(layers);
    return place_gang_on_type(Search{shape_, record_.choices, layers}, *choice_, shape_.tasks_min);
  }

  // Whoever `has_place()` without, asked one by one, need not go.
  template <class HasPlace>
  void spare_while(Chosen& chosen, View& room, HasPlace has_place) {
    for (size_t i = chosen.size(); i-- > 0;) {
      if (!chosen.is_last(chosen.at(i))) continue;
      put_back(chosen.at(i), room);
      if (keeps_bounds() && has_place()) {
        chosen.erase(i);
      } else {
        take_again(chosen.at(i), room);
      }
    }
  }
  // Asks the placement itself.
  void spare_by_placing(Chosen& chosen, View& room) {
    spare_while(chosen, room, [&] { return place(room).has_value(); });
  }

  // What was looked for on GPUs of one type may have room on another one, now that tasks of many places go:
  // an elastic job gives its tasks in their order, wherever they are.
  void spare_for_other_types(Chosen& chosen, View& room) {
    constexpr size_t kFew = 64;  // a claim that takes more is not for the sake of one task
    if (chosen.size() < 2 || chosen.size() > kFew) return;
    spare_while(chosen, room, [&] { return fits(room).has_value(); });
  }

  void spare_unneeded(Chosen& chosen, View& room, bool as_found = false) {
    if (is_step()) return spare_by_placing(chosen, room);
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
    // Free room elsewhere may count too.
    if (shape_.gpu_count == 0 || shape_.kind != SliceKind::whole || fitting < shape_.tasks_min)
      return spare_by_placing(chosen, room);
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
    // Nothing to spare: without any one of them its host has room for a task less.
    if (as_found && fitting == shape_.tasks_min) return;
    for (size_t i = chosen.size(); i-- > 0;) {
      if (!chosen.is_last(chosen.at(i))) continue;
      put_back(chosen.at(i), room);
      uint64_t now = fitting;
      std::vector<std::pair<NodeIndex, uint32_t>> changed;
      for_each_holding(chosen.at(i), [&](const Holding& h) {
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
        chosen.erase(i);
      } else {
        take_again(chosen.at(i), room);
        for (const auto& [node, before] : changed) counts[node] = before;
      }
    }
  }

  void put_back(const Victim& victim, View& room) {
    for_each_holding(victim, [&](const Holding& h) { room.take(h.footprint()); });
    unbook(victim);
  }
  void take_again(const Victim& victim, View& room) {
    for_each_holding(victim, [&](const Holding& h) { room.give(h.footprint()); });
    book(victim);
  }

  // What the header promises: those who lose by a claim of fair share fall short of less than it gains.
  void assert_progress(const std::vector<Victim>& chosen) const {
    MilliGpu shortfall;
    std::vector<QueueIndex> seen;
    for (const Victim& victim : chosen) {
      if (victim.by_quota || std::find(seen.begin(), seen.end(), victim.side) != seen.end()) continue;
      seen.push_back(victim.side);
      const Queue& side = state_.queues.at(victim.side);
      shortfall += std::max(side.entitled - (side.staying - removed_.at(victim.side)), MilliGpu());
    }
    TRANCHE_ASSERT(seen.empty() || shortfall.count() == 0 || shortfall < entitlement_.charge());
  }

  Eviction eviction(const std::vector<Victim>& chosen, GangPlacement plan) const {
    Eviction result{{}, std::move(plan)};
    for (const Victim& victim : chosen) {
      for (const TaskKey& task : victim.tasks) result.stops.push_back(Stop{task, reason(), job_.id});
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
  Removed removed_;  // victims chosen so far
  BitSet seats_;     // nodes; of find_seats()
  bool seats_are_known_ = false;
};

}  // namespace

std::optional<Eviction> find_victims(const State& state, const Promises& promises, const Job& job,
                                     const Group& group, Time& wake, HostPool& pool) {
  const SchedulerAction only = state.policy.only_action;
  VictimSearch search(state, promises, job, group, wake, pool);
  // Most claims in vain end here.
  const bool may_reclaim = only == SchedulerAction::all || only == SchedulerAction::reclaim;
  const bool may_preempt = (only == SchedulerAction::all || only == SchedulerAction::preempt) &&
                           search.entitlement().has_lower_priority();
  const Giving giving = may_reclaim ? search.entitlement().giving() : Giving{};
  if ((!giving.now && !giving.later.is_set() && !may_preempt) || search.is_coming()) return std::nullopt;
  if (giving.later.is_set() && (!wake.is_set() || giving.later < wake)) wake = giving.later;
  if (giving.now) {
    if (auto eviction = search.find(Taking::reclaim)) return eviction;
  }
  return may_preempt ? search.find(Taking::preempt) : std::nullopt;
}

}  // namespace tranche::scheduler
