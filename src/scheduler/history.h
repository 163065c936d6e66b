// Random histories for property tests: a world of users, jobs and faults that reacts to decisions as a real
// machine would, with all delays. One seed gives one history.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/state_hash.h"
#include "model/task_groups.h"
#include "scheduler/scheduler.h"
#include "scheduler/test_world.h"

namespace tranche::scheduler::test {

// What a history may contain. Everything is on by default; properties switch off what their premises exclude.
struct HistoryRules {
  int events = 260;
  bool fractions = true;
  bool gangs = true;
  bool arrays = true;
  bool dependencies = true;
  bool priorities = true;
  bool not_preemptible = true;
  bool faults = true;  // drains, lost GPUs, failed starts, late and doubled outcomes
  bool cancels = true;
  bool policy_changes = true;
  bool quotas = true;
  bool limits = true;
  bool host_resources = true;
  bool one_gpu_jobs = false;
  bool one_user = false;
  bool one_type = false;
  // Parts of jobs, elastic and moldable ones, topology, named nodes, quotas of processors and memory, delays:
  // in the histories of even seeds. Those of odd seeds stay plain.
  bool structure = true;
  bool many_nodes = false;       // eight to two dozen machines instead of a handful
  bool prompt_outcomes = false;  // processes start, and memory is released, within nanoseconds
  int64_t mean_arrival_seconds = 60;
};

class History {
 public:
  History(uint64_t seed, HistoryRules rules)
      : seed_(seed),
        random_(seed),
        rules_(rules),
        is_structured_(rules.structure && seed % 2 == 0),
        now_(kStart) {}

  // The policy and the machine: to be stepped before all else.
  std::vector<EventPayload> opening() {
    std::vector<EventPayload> events;
    const int nodes = static_cast<int>(rules_.many_nodes ? random_.between(8, 24)
                                       : is_structured_  ? random_.between(2, 5)
                                                         : random_.between(1, 3));
    uint32_t gpu = 0;
    for (int n = 1; n <= nodes; ++n) {
      Node node{.id = NodeId(static_cast<uint32_t>(n)),
                .name = "n" + std::to_string(n),
                .pool = n == 3 ? "other" : "",
                .cpu = MilliCpu(rules_.host_resources ? 16'000 : 1'000'000),
                .memory = MiB(64'000),
                .labels = {}};
      // Two racks in the one block, and some nodes that are in none.
      if (is_structured_ && !random_.chance(1, 8))
        node.labels = {{"block", n <= 3 ? "b1" : "b2"}, {"rack", n % 2 == 0 ? "r1" : "r2"}};
      nodes_.push_back(node.name);
      events.push_back(NodeAdded{node});
      const bool small = !rules_.one_type && random_.chance(1, 3);
      const int count = static_cast<int>(random_.between(1, 4));
      // All of them joined with each other, two and two, or none.
      const uint32_t joined = is_structured_ ? static_cast<uint32_t>(random_.below(3)) * 2 : 0;
      const uint32_t before = gpu;
      for (int g = 0; g < count; ++g) {
        Gpu added;
        added.id = GpuId(++gpu);
        if (is_structured_) added.numa_node = g / 2;
        for (int other = 0; other < count && joined > 0; ++other) {
          if (other != g && (joined == 4 || other / 2 == g / 2))
            added.links.push_back({GpuId(before + 1 + static_cast<uint32_t>(other)), LinkKind::nvlink});
        }
        added.node = node.id;
        added.index = static_cast<uint32_t>(g);
        added.type = small ? "t4" : "h100-80";
        added.memory_usable = MiB(small ? 15'110 : 80'997);
        events.push_back(GpuAdded{added});
      }
    }
    gpus_ = gpu;
    events.push_back(PolicyChanged{random_policy()});
    return events;
  }

  // The next thing to happen, with its time; call with what was decided on the one before.
  Event next(const std::vector<Decision>& decisions) {
    for (const Decision& decision : decisions) react(decision);
    if (!next_input_.is_set()) next_input_ = now_ + pause();
    EventPayload payload = Tick{};
    Time time = next_input_;
    if (!agenda_.empty() && agenda_.begin()->first.first <= next_input_) {
      time = agenda_.begin()->first.first;
      payload = agenda_.begin()->second;
      agenda_.erase(agenda_.begin());
    } else {
      payload = input();
      if (dropped_.contains(++inputs_)) payload = Tick{};
      next_input_ = time + pause();
    }
    now_ = std::max(now_ + kNanosecond, time);
    follow_up(payload);
    return Event{EventSeq(++seq_), now_, std::move(payload)};
  }
  Event opening_event(EventPayload payload) {
    now_ = now_ + kNanosecond;
    return Event{EventSeq(++seq_), now_, std::move(payload)};
  }

  // From now on nobody asks for anything and no job ends by itself.
  void freeze() {
    frozen_ = true;
    next_input_ = kNever;
    std::erase_if(agenda_, [](const auto& entry) {
      const auto* exited = std::get_if<TaskExited>(&entry.second);
      return exited != nullptr && exited->cause != ExitCause::killed;
    });
  }
  // To make a history smaller that shows a fault: these inputs (from 1, in their order) do not happen. What
  // becomes of each task hangs on the seed and its key alone, so the rest of the history stays as it was.
  void drop(std::set<uint64_t> inputs) { dropped_ = std::move(inputs); }
  uint64_t inputs() const { return inputs_; }

  // As the daemon asks before it appends a submission.
  std::function<bool(const JobSpec&, const ArraySpec&)> accepts;
  bool is_over() const { return agenda_.empty(); }
  int faults() const { return faults_; }

 private:
  Duration pause() {
    return Duration(random_.exponential(rules_.mean_arrival_seconds * kSecond.count()) + 1);
  }
  Duration within(Duration most) { return within(random_, most); }
  static Duration within(Random& random, Duration most) {
    return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(most.count()) + 1)));
  }
  enum class Moment : uint64_t { start = 1, stop, exit };
  Random fate_of(const TaskKey& task, Moment moment) const {
    StateHash hash;
    for (const uint64_t part :
         {seed_, task.job.value(), uint64_t{task.rank} << 32 | task.attempt, static_cast<uint64_t>(moment)})
      hash.add(part);
    return Random(hash.digest());
  }
  void plan(Time time, EventPayload payload) {
    agenda_.emplace(std::pair(time, ++planned_), std::move(payload));
  }

  Policy random_policy() {
    Policy policy;
    const char* const paths[] = {"default", "bio", "physics", "physics/theory", "physics/vision"};
    for (const char* path : paths) {
      if (random_.chance(1, 4)) continue;
      QueuePolicy queue{.path = path,
                        .quota = {},
                        .limit = {},
                        .weight = random_.between(1, 4),
                        .priority = 0,
                        .user_limit = {}};
      if (rules_.quotas && random_.chance(1, 3)) queue.quota = MilliGpu(random_.between(0, 2) * 1000);
      if (rules_.limits && random_.chance(1, 5)) queue.limit = MilliGpu(random_.between(2, 6) * 1000);
      if (rules_.limits && random_.chance(1, 8)) queue.user_limit = MilliGpu(random_.between(1, 4) * 1000);
      if (rules_.priorities && random_.chance(1, 5))
        queue.priority = static_cast<int32_t>(random_.between(0, 1));
      policy.queues.push_back(queue);
    }
    policy.usage_half_life = Duration(random_.between(0, 2) * 6 * kHour.count());
    policy.minimum_runtime = Duration(random_.between(0, 20) * kMinute.count());
    policy.backfill = !random_.chance(1, 8);
    policy.users_share_gpu = rules_.faults && random_.chance(1, 6);
    if (is_structured_) structure(policy);
    return policy;
  }

  void structure(Policy& policy) {
    policy.topology_levels = {"block", "rack"};
    for (QueuePolicy& queue : policy.queues) {
      if (!rules_.host_resources) break;
      if (rules_.quotas && random_.chance(1, 5)) queue.quota_cpu = MilliCpu(random_.between(0, 8) * 1000);
      if (rules_.quotas && random_.chance(1, 6)) queue.quota_memory = MiB(random_.between(0, 32) * 1000);
      if (rules_.limits && random_.chance(1, 6)) queue.limit_cpu = MilliCpu(random_.between(4, 20) * 1000);
      if (rules_.limits && random_.chance(1, 8)) queue.limit_memory = MiB(random_.between(16, 80) * 1000);
    }
    if (random_.chance(1, 5)) policy.placement = PlacementStrategy::spread;
    if (random_.chance(1, 5)) policy.gpu_placement = PlacementStrategy::spread;
    if (random_.chance(1, 5)) policy.backfill_order = BackfillOrder::shortest;
  }

  // What a job may say about its parts and places. It may come out as one that never fits; those are not
  // accepted.
  void structure(JobSpec& spec) {
    const bool whole = spec.task.gpu.kind == SliceKind::whole && spec.task.gpu.count > 0;
    if (rules_.gangs && random_.chance(1, 8)) {
      add_groups(spec);
    } else if (rules_.gangs && random_.chance(1, 4)) {
      spec.elastic = true;
      spec.tasks_max = spec.tasks_min + static_cast<uint32_t>(random_.between(1, 3));
    } else if (whole && spec.tasks_max == 1 && !rules_.one_gpu_jobs && random_.chance(1, 4)) {
      spec.task.gpu.count_max = spec.task.gpu.count + static_cast<uint32_t>(random_.between(1, 3));
    }
    if (whole && spec.task.gpu.count > 1 && random_.chance(1, 3))
      spec.task.gpu.topology = random_.chance(1, 2) ? GpuTopology::nvlink : GpuTopology::numa_node;
    if (random_.chance(1, 7)) spec.topology = random_topology();
    if (random_.chance(1, 9)) spec.nodes = random_nodes();
    if (rules_.gangs && random_.chance(1, 3)) spec.gang_grace = within(5 * kMinute);
    if (random_.chance(1, 6)) spec.preemption_delay = within(10 * kMinute);
  }

  TopologyRequest random_topology() {
    TopologyRequest topology;
    if (random_.chance(1, 2)) topology.required = random_.chance(1, 3) ? "block" : "rack";
    if (random_.chance(1, 2)) topology.preferred = "rack";
    return topology;
  }
  std::vector<std::string> random_nodes() {
    std::vector<std::string> names;
    for (const std::string& name : nodes_) {
      if (random_.chance(1, 2)) names.push_back(name);
    }
    return names;
  }

  void add_groups(JobSpec& spec) {
    spec.elastic = random_.chance(1, 2);
    const auto groups = static_cast<uint32_t>(random_.between(2, 3));
    const bool nested = random_.chance(1, 3);
    if (nested) spec.groups.push_back({});
    for (uint32_t i = 0; i < groups; ++i) {
      TaskGroup group;
      group.parent = nested && i > 0 ? 1 : 0;
      group.tasks_min = static_cast<uint32_t>(random_.between(1, 2));
      group.tasks_max = group.tasks_min + (spec.elastic ? static_cast<uint32_t>(random_.below(2)) : 0);
      group.task = spec.task;
      if (i > 0 && random_.chance(1, 2)) group.task.gpu = GpuRequest{};
      if (i > 0) group.task.cpu = MilliCpu(random_.between(1, 3) * 1000);
      if (random_.chance(1, 5)) group.topology = random_topology();
      spec.groups.push_back(std::move(group));
    }
    if (spec.elastic && random_.chance(1, 3)) spec.groups_min = 1;
    spec.tasks_max = 0;
    for (const TaskGroup& group : spec.groups) spec.tasks_max += group.tasks_max;
    spec.tasks_min =
        static_cast<uint32_t>(TaskGroups(spec).missing(std::vector<bool>(spec.tasks_max)).size());
  }

  EventPayload input() {
    const uint64_t draw = random_.below(100);
    if (rules_.cancels && draw < 6 && last_job_ > 0)
      return JobCancelled{some_job(), "root", draw < 2 ? 3u : 0u};
    if (rules_.cancels && draw < 9 && last_job_ > 0) return JobHeld{some_job(), "root", draw < 7 ? 2u : 0u};
    if (rules_.cancels && draw < 14 && last_job_ > 0)
      return JobReleased{some_job(), "root", draw < 11 ? 3u : 0u};
    if (rules_.faults && draw < 22) {
      ++faults_;
      const GpuId gpu(static_cast<uint32_t>(random_.below(gpus_) + 1));
      switch (random_.below(6)) {
        case 0:
          return GpuDrained{gpu, "root", "cleaning"};
        case 1:
        case 2:
          return GpuUndrained{gpu, "root"};
        case 3:
          return HealthChanged{gpu, Health::ok, ""};
        case 4:
          return HealthChanged{gpu, Health::degraded, "hot"};
        default:
          return HealthChanged{gpu, random_.chance(1, 2) ? Health::lost : Health::failed, "XID 79"};
      }
    }
    if (rules_.policy_changes && draw < 24) return PolicyChanged{random_policy()};
    if (draw < 25) return Tick{};
    for (int tries = 0; tries < 20; ++tries) {
      JobSubmitted submitted = submission();
      if (accepts && !accepts(submitted.spec, submitted.array)) continue;
      const size_t count = std::max<size_t>(submitted.array.indices.size(), 1);
      last_job_ += count;
      for (size_t i = 0; i < count; ++i) specs_[JobId(submitted.job.value() + i)] = submitted.spec;
      return submitted;
    }
    return Tick{};
  }

  JobId some_job() {
    const uint64_t back = random_.below(std::min<uint64_t>(last_job_, 20));
    return JobId(last_job_ - back);
  }

  JobSubmitted submission() {
    static const char* const users[] = {"alice", "bob", "carol", "dave"};
    static const char* const queues[] = {"default", "bio", "physics/theory", "physics/vision"};
    Request request;
    const uint64_t who = rules_.one_user ? 0 : random_.below(4);
    request.user = users[who];
    request.queue = rules_.one_user ? "default" : queues[random_.chance(3, 4) ? who : random_.below(4)];
    request.gpus =
        static_cast<uint32_t>(random_.chance(2, 3) || rules_.one_gpu_jobs ? 1 : random_.between(1, 3));
    if (!rules_.one_gpu_jobs && random_.chance(1, 20)) request.gpus = 0;
    if (rules_.fractions && request.gpus > 0 && random_.chance(1, 2)) {
      if (random_.chance(9, 10)) request.gpus = 1;
      request.milli = random_.chance(2, 3) ? random_.between(1, 10) * 100 : 0;
      if (request.milli == 0 || random_.chance(1, 3)) request.gpu_memory = random_.between(1'000, 14'000);
    }
    if (!rules_.one_type && random_.chance(1, 4)) request.type = random_.chance(1, 2) ? "t4" : "h100-80";
    if (rules_.gangs && random_.chance(1, 5)) {
      request.tasks_min = static_cast<uint32_t>(random_.between(1, 3));
      request.tasks_max = request.tasks_min + static_cast<uint32_t>(random_.below(3));
    }
    if (rules_.host_resources) {
      request.cpu = random_.between(1, 6) * 1000;
      if (random_.chance(1, 2)) request.memory = random_.between(1, 24) * 1000;
    }
    if (rules_.priorities && random_.chance(1, 4))
      request.priority = static_cast<int32_t>(random_.between(1, 3));
    request.preemptible = !rules_.not_preemptible || random_.chance(4, 5);
    request.requeue = random_.chance(1, 2);
    request.time_limit = Duration(random_.between(2, 90) * kMinute.count());
    request.grace = Duration(random_.between(0, 30) * kSecond.count());
    if (rules_.cancels) request.held = random_.chance(1, 20);
    if (rules_.dependencies && random_.chance(1, 15)) request.begin = now_ + within(kHour);
    if (rules_.dependencies && last_job_ > 0 && random_.chance(1, 8)) {
      request.dependencies = {{static_cast<DependencyKind>(random_.below(4)), some_job()}};
    }
    ArraySpec array;
    if (rules_.arrays && random_.chance(1, 12)) {
      const uint32_t count = static_cast<uint32_t>(random_.between(2, 6));
      for (uint32_t i = 0; i < count; ++i) array.indices.push_back(i);
      array.running_max = static_cast<uint32_t>(random_.below(3));
    }
    const JobId job(last_job_ + 1);
    JobSpec spec = spec_of(request);
    if (is_structured_) structure(spec);
    return JobSubmitted{job, std::move(spec), std::move(array)};
  }

  // What the machine does about a decision.
  void react(const Decision& decision) {
    if (const auto* start = std::get_if<Start>(&decision)) started(*start);
    if (const auto* stop = std::get_if<Stop>(&decision)) stopped(*stop);
    if (const auto* wake = std::get_if<WakeAt>(&decision)) {
      std::erase_if(agenda_, [](const auto& entry) { return std::holds_alternative<Tick>(entry.second); });
      plan(wake->time, Tick{});
    }
  }

  void started(const Start& start) {
    Random random = fate_of(start.task, Moment::start);
    const JobSpec& spec = specs_.at(start.task.job);
    slices_[start.task] = start.slices;
    const Time begun =
        now_ + (rules_.prompt_outcomes ? kNanosecond : within(random, kMillisecond * 20) + kNanosecond);
    if (rules_.faults && random.chance(1, 25)) {
      ++faults_;
      plan(begun, TaskStartFailed{start.task, random.chance(2, 3), 0, "no cgroup"});
      return;
    }
    plan(begun, TaskStarted{start.task});
    if (frozen_) return;
    const Duration would_run = Duration(random.exponential(25 * kMinute.count()) + 1);
    if (would_run >= spec.time_limit) {
      plan(begun + spec.time_limit + within(random, spec.grace),
           TaskExited{start.task, ExitCause::time_limit, 0, 15});
    } else if (random.chance(4, 5)) {
      plan(begun + would_run, TaskExited{start.task, ExitCause::exited, 0, 0});
    } else {
      static const ExitCause causes[] = {ExitCause::exited, ExitCause::signalled, ExitCause::out_of_memory,
                                         ExitCause::node_failed, ExitCause::lost};
      plan(begun + would_run, TaskExited{start.task, causes[random.below(rules_.faults ? 5 : 3)], 1, 0});
    }
  }

  void stopped(const Stop& stop) {
    Random random = fate_of(stop.task, Moment::stop);
    Time end = now_ + kNanosecond + within(random, specs_.at(stop.task.job).grace);
    std::erase_if(agenda_, [&](const auto& entry) {
      const auto* exited = std::get_if<TaskExited>(&entry.second);
      const bool found = exited != nullptr && exited->task == stop.task;
      if (found) end = std::min(end, entry.first.first);  // a Stop never makes it last longer
      return found;
    });
    const bool just_in_time = random.chance(1, 10);
    plan(end, TaskExited{stop.task, just_in_time ? ExitCause::exited : ExitCause::killed, 0, 0});
  }

  void follow_up(const EventPayload& payload) {
    const auto* exited = std::get_if<TaskExited>(&payload);
    if (exited == nullptr) return;
    Random random = fate_of(exited->task, Moment::exit);
    for (const Slice& slice : slices_[exited->task]) {
      const Duration delay = rules_.prompt_outcomes ? kNanosecond : within(random, kSecond * 3) + kNanosecond;
      plan(now_ + delay, SliceReleased{exited->task, slice.gpu});
      if (rules_.faults && random.chance(1, 12))
        plan(now_ + delay * 2, SliceReleased{exited->task, slice.gpu});
    }
    if (rules_.faults && random.chance(1, 30)) {
      ++faults_;
      plan(now_ + kSecond, TaskExited{exited->task, ExitCause::exited, 7, 0});
    }
    slices_.erase(exited->task);
  }

  uint64_t seed_;
  Random random_;
  HistoryRules rules_;
  bool is_structured_;
  std::vector<std::string> nodes_;
  Time now_;
  Time next_input_;
  bool frozen_ = false;
  uint64_t seq_ = 0;
  uint64_t planned_ = 0;
  uint64_t inputs_ = 0;
  std::set<uint64_t> dropped_;
  uint64_t last_job_ = 0;
  uint32_t gpus_ = 0;
  int faults_ = 0;
  std::map<std::pair<Time, uint64_t>, EventPayload> agenda_;
  std::map<JobId, JobSpec> specs_;
  std::map<TaskKey, std::vector<Slice>> slices_;
};

}  // namespace tranche::scheduler::test
