// An audit of a log, for tests: keeps its own account of who holds what from the events and decisions alone
// and says in words what is wrong. It shares no code with the scheduler, so that one cannot hide the other's
// mistake; only the model's plain values are common.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/decision.h"
#include "model/event.h"

namespace tranche::scheduler::test {

class Ledger {
 public:
  struct Held {
    Slice slice;
    uint32_t uid = 0;
    std::string queue;
    int64_t charge = 0;
  };
  struct GpuAccount {
    Gpu gpu;
    Health health = Health::ok;
    bool drained = false;
    bool removed = false;
    std::map<TaskKey, Held> held;
    bool gone() const { return removed || health == Health::lost; }
    bool takes_work() const { return !gone() && !drained && health != Health::failed; }
  };
  struct NodeAccount {
    Node node;
    bool removed = false;
    int64_t cpu_used = 0;
    int64_t memory_used = 0;
  };
  enum class Phase { waiting, active, ended };
  struct JobAccount {
    JobSpec spec;
    uint64_t array = 0;
    Phase phase = Phase::waiting;
    bool held = false;
    Time submitted;
    uint32_t attempt = 1;
    bool ever_started = false;
    std::optional<JobState> final_state;
    Time started;
    std::map<uint32_t, Start> live;  // by rank
    std::set<TaskKey> told_to_stop;
    bool cancelled = false;
  };
  // Parts of one that stands: how they go, of each rank.
  using Tasks = std::set<TaskKey>;

  // Each begins with the property that it breaks (P1, P2, P18), or "contract".
  std::vector<std::string> violations;
  std::map<JobId, JobAccount> jobs;
  std::map<GpuId, GpuAccount> gpus;
  std::map<NodeId, NodeAccount> nodes;
  Policy policy;
  Time now;
  uint64_t starts = 0;
  uint64_t evictions = 0;
  uint64_t joined = 0;  // tasks that an elastic job was given while it ran
  uint64_t given = 0;   // tasks that one lost and could live without
  uint64_t parted = 0;  // tasks of jobs whose tasks differ
  uint64_t placed = 0;  // tasks that had to be near others, on named nodes or on GPUs that are joined

  void row(const Event& event, const std::vector<Decision>& decisions) {
    if (event.time <= now) say("time does not rise");
    now = event.time;
    take(event);
    std::map<JobId, std::vector<Start>> started;
    for (const Decision& decision : decisions) {
      if (const auto* start = std::get_if<Start>(&decision)) started[start->task.job].push_back(*start);
    }
    for (const Decision& decision : decisions) apply(decision);
    rule_ = "P2";
    for (const auto& [job, tasks] : started) audit_gang(job, tasks);
    rule_ = "P1";
    audit_capacity();
    rule_ = "contract";
  }

  // Charged now to the queue and those below it.
  int64_t used(const std::string& queue) const {
    int64_t sum = 0;
    for (const auto& [id, gpu] : gpus) {
      for (const auto& [key, held] : gpu.held) {
        if (is_below(held.queue, queue)) sum += held.charge;
      }
    }
    return sum;
  }

  // The same for every queue that is charged something.
  std::map<std::string, int64_t> used_of_all() const {
    std::map<std::string, int64_t> used;
    for (const auto& [id, gpu] : gpus) {
      for (const auto& [key, held] : gpu.held) {
        used[""] += held.charge;
        for (size_t at = 0; at != std::string::npos;) {
          at = held.queue.find('/', at + 1);
          used[held.queue.substr(0, at)] += held.charge;
        }
      }
    }
    return used;
  }

  // Whether something will be free without anybody's doing.
  bool anything_leaves() const {
    for (const auto& [id, gpu] : gpus) {
      for (const auto& [key, held] : gpu.held) {
        if (!is_live(key)) return true;
      }
    }
    return std::any_of(jobs.begin(), jobs.end(),
                       [](const auto& entry) { return !entry.second.told_to_stop.empty(); });
  }

  // When the job fits at the latest, if everybody runs to their limit and grace and nobody comes. Nothing:
  // this audit cannot tell.
  std::optional<Time> earliest(const JobSpec& spec) const {
    std::vector<std::pair<Time, TaskKey>> ends;
    Tasks gone;
    for (const auto& [id, gpu] : gpus) {
      for (const auto& [key, held] : gpu.held) {
        if (!is_live(key)) gone.insert(key);
      }
    }
    for (const auto& [id, job] : jobs) {
      for (const auto& [rank, start] : job.live)
        ends.push_back({job.started + job.spec.time_limit + job.spec.grace, start.task});
    }
    std::sort(ends.begin(), ends.end());
    Time time = now;
    for (size_t next = 0;; ++next) {
      const auto fitting = fits(spec, spec.tasks_min, gone);
      if (!fitting) return std::nullopt;
      if (*fitting) return time;
      if (next == ends.size()) return std::nullopt;
      time = ends[next].first;
      gone.insert(ends[next].second);
    }
  }

  static bool is_wanted(const GpuRequest& request, const std::string& type) {
    return request.type.empty() || ("|" + request.type + "|").find("|" + type + "|") != std::string::npos;
  }

  // Whether `tasks` tasks of the job fit into what is free, as if the tasks of `without` had gone.
  // Nothing: this audit cannot tell (several fractions for one task of a gang).
  std::optional<bool> fits(const JobSpec& spec, uint32_t tasks, const Tasks& without = {}) const {
    const GpuRequest& request = spec.task.gpu;
    if (request.kind == SliceKind::fraction && request.count > 1 && tasks > 1) return std::nullopt;
    if (!spec.groups.empty()) return std::nullopt;
    if (!spec.topology.required.empty()) {
      for (const Node* representative : domains(spec.topology.required)) {
        JobSpec inside = spec;
        inside.topology = {};
        inside.nodes.clear();
        for (const auto& [id, node] : nodes) {
          if (domain_of(node.node, spec.topology.required) ==
                  domain_of(*representative, spec.topology.required) &&
              is_allowed(spec.nodes, node.node))
            inside.nodes.push_back(node.node.name);
        }
        if (!inside.nodes.empty() && *fits(inside, tasks, without)) return true;
      }
      return false;
    }
    std::set<std::string> types;
    for (const auto& [id, gpu] : gpus) types.insert(gpu.gpu.type);
    if (request.count == 0) types = {""};
    for (const std::string& type : types) {
      if (request.count > 0 && !is_wanted(request, type)) continue;
      int64_t room = 0;
      for (const auto& [id, node] : nodes) room += tasks_on(node, spec, type, without);
      if (room >= tasks) return true;
    }
    return false;
  }

 private:
  void say(std::string what) {
    violations.push_back(std::string(rule_) + " at " + std::to_string(now.nanoseconds()) + ": " +
                         std::move(what));
  }
  static std::string text(JobId job) { return "job " + std::to_string(job.value()); }
  static bool is_below(const std::string& path, const std::string& queue) {
    return path == queue ||
           (path.size() > queue.size() && path.starts_with(queue) && path[queue.size()] == '/');
  }

  static bool is_allowed(const std::vector<std::string>& allowed, const Node& node) {
    return allowed.empty() || std::find(allowed.begin(), allowed.end(), node.name) != allowed.end();
  }
  // The labels that name the domain, the widest first; empty: the node is in none.
  std::vector<std::string> domain_of(const Node& node, const std::string& level) const {
    std::vector<std::string> keys = policy.topology_levels;
    const auto found = std::find(keys.begin(), keys.end(), level);
    if (found == keys.end()) {
      keys = {level};
    } else {
      keys.erase(found + 1, keys.end());
    }
    std::vector<std::string> values;
    for (const std::string& key : keys) {
      for (const auto& [name, value] : node.labels) {
        if (name == key) values.push_back(value);
      }
    }
    return values.size() == keys.size() ? values : std::vector<std::string>();
  }
  // One node of each.
  std::vector<const Node*> domains(const std::string& level) const {
    std::map<std::vector<std::string>, const Node*> found;
    for (const auto& [id, node] : nodes) {
      const auto domain = domain_of(node.node, level);
      if (!node.removed && !domain.empty()) found.emplace(domain, &node.node);
    }
    std::vector<const Node*> out;
    for (const auto& [domain, node] : found) out.push_back(node);
    return out;
  }

  // What the task of that rank asks for.
  static const TaskRequest& request_of_rank(const JobSpec& spec, uint32_t rank) {
    for (const TaskGroup& group : spec.groups) {
      if (rank < group.tasks_max) return group.task;
      rank -= group.tasks_max;
    }
    return spec.task;
  }
  // Which of the job's parts the rank belongs to, the innermost first; the job itself is the last.
  static std::vector<size_t> parts_of_rank(const JobSpec& spec, uint32_t rank) {
    std::vector<size_t> parts;
    for (size_t i = 0; i < spec.groups.size(); ++i) {
      if (rank >= spec.groups[i].tasks_max) {
        rank -= spec.groups[i].tasks_max;
        continue;
      }
      for (size_t part = i + 1; part > 0; part = spec.groups[part - 1].parent) parts.push_back(part);
      break;
    }
    parts.push_back(0);
    return parts;
  }
  // Whether enough of the part (0: the job, else a position + 1) runs.
  static bool is_enough(const JobSpec& spec, const std::set<uint32_t>& ranks, size_t part = 0) {
    if (spec.groups.empty()) return ranks.size() >= spec.tasks_min;
    if (part > 0 && spec.groups[part - 1].tasks_max > 0) {
      uint32_t first = 0;
      for (size_t i = 0; i + 1 < part; ++i) first += spec.groups[i].tasks_max;
      const TaskGroup& group = spec.groups[part - 1];
      return std::distance(ranks.lower_bound(first), ranks.lower_bound(first + group.tasks_max)) >=
             std::ptrdiff_t{group.tasks_min};
    }
    uint32_t children = 0;
    uint32_t good = 0;
    for (size_t i = 0; i < spec.groups.size(); ++i) {
      if (spec.groups[i].parent != part) continue;
      ++children;
      good += is_enough(spec, ranks, i + 1) ? 1U : 0U;
    }
    const uint32_t needed = part == 0 ? spec.groups_min : spec.groups[part - 1].groups_min;
    return good >= (needed > 0 ? needed : children);
  }

  // Sets of `width` idle GPUs that are joined as the request says. GPUs of a history are joined in classes.
  static int64_t joined_sets(const std::vector<const Gpu*>& idle, const GpuRequest& request) {
    if (request.topology == GpuTopology::any || request.count < 2)
      return static_cast<int64_t>(idle.size()) / int64_t{request.count};
    std::map<uint32_t, int64_t> classes;
    for (const Gpu* gpu : idle) {
      uint32_t name = gpu->id.value();
      if (request.topology == GpuTopology::numa_node) {
        name = static_cast<uint32_t>(gpu->numa_node);
      } else {
        for (const GpuLink& link : gpu->links) name = std::min(name, link.peer.value());
      }
      ++classes[name];
    }
    int64_t sets = 0;
    for (const auto& [name, count] : classes) sets += count / int64_t{request.count};
    return sets;
  }

  static int64_t slots(const GpuAccount& gpu, const JobSpec& spec, bool share, const Tasks& without) {
    if (!gpu.takes_work()) return 0;
    int64_t compute = 1000;
    int64_t memory = gpu.gpu.memory_usable.count();
    const int64_t usable = memory;
    bool used = false;
    for (const auto& [key, held] : gpu.held) {
      if (without.contains(key)) continue;
      if (held.slice.kind == SliceKind::whole) return 0;
      if (!share && held.uid != spec.owner.uid) return 0;
      used = true;
      compute -= held.slice.compute.count();
      memory -= held.slice.memory.count();
    }
    const GpuRequest& request = spec.task.gpu;
    if (request.kind == SliceKind::whole) return used ? 0 : 1;
    int64_t c = request.compute.count();
    int64_t m = request.memory.count();
    if (c == 0) c = (m * 1000 + usable - 1) / usable;
    if (m == 0) m = usable * c / 1000;
    if (c > 1000 || m > usable) return 0;
    return m == 0 ? compute / c : std::min(compute / c, memory / m);
  }

  int64_t tasks_on(const NodeAccount& node, const JobSpec& spec, const std::string& type,
                   const Tasks& without) const {
    if (node.removed || (!spec.node_pool.empty() && node.node.pool != spec.node_pool)) return 0;
    if (!is_allowed(spec.nodes, node.node)) return 0;
    int64_t cpu = node.node.cpu.count() - node.cpu_used;
    int64_t memory = node.node.memory.count() - node.memory_used;
    for (const TaskKey& key : without) {
      if (!is_live(key)) continue;
      const JobAccount& job = jobs.at(key.job);
      if (job.live.at(key.rank).node != node.node.id) continue;
      cpu += request_of_rank(job.spec, key.rank).cpu.count();
      memory += request_of_rank(job.spec, key.rank).memory.count();
    }
    int64_t tasks = spec.task.cpu.count() > 0 ? cpu / spec.task.cpu.count() : 1'000'000;
    if (spec.task.memory.count() > 0) tasks = std::min(tasks, memory / spec.task.memory.count());
    tasks = std::max<int64_t>(tasks, 0);
    const GpuRequest& request = spec.task.gpu;
    if (request.count == 0) return tasks;
    int64_t slices = 0;
    int64_t gpus_that_take = 0;
    std::vector<const Gpu*> idle;
    for (const auto& [id, gpu] : gpus) {
      if (gpu.gpu.node != node.node.id || gpu.gpu.type != type) continue;
      const int64_t here = slots(gpu, spec, policy.users_share_gpu, without);
      slices += here;
      gpus_that_take += here > 0 ? 1 : 0;
      if (here > 0) idle.push_back(&gpu.gpu);
    }
    if (request.kind == SliceKind::whole) return std::min(tasks, joined_sets(idle, request));
    if (request.count > 1) return gpus_that_take >= int64_t{request.count} ? std::min<int64_t>(tasks, 1) : 0;
    return std::min(tasks, slices);
  }

  // --- events -------------------------------------------------------------------------------------------
  void take(const Event& event) {
    if (const auto* e = std::get_if<PolicyChanged>(&event.payload)) policy = e->policy;
    if (const auto* e = std::get_if<NodeAdded>(&event.payload)) nodes[e->node.id].node = e->node;
    if (const auto* e = std::get_if<GpuAdded>(&event.payload))
      gpus[e->gpu.id] = GpuAccount{.gpu = e->gpu, .drained = !e->drained.empty(), .held = {}};
    if (const auto* e = std::get_if<HealthChanged>(&event.payload)) {
      gpus[e->gpu].health = e->health;
      forget_gone(e->gpu);
    }
    if (const auto* e = std::get_if<GpuRemoved>(&event.payload)) {
      gpus[e->gpu].removed = true;
      forget_gone(e->gpu);
    }
    if (const auto* e = std::get_if<GpuDrained>(&event.payload)) gpus[e->gpu].drained = true;
    if (const auto* e = std::get_if<GpuUndrained>(&event.payload)) gpus[e->gpu].drained = false;
    if (const auto* e = std::get_if<JobSubmitted>(&event.payload)) submitted(*e);
    if (const auto* e = std::get_if<JobHeld>(&event.payload)) set_held(*e, true);
    if (const auto* e = std::get_if<JobReleased>(&event.payload)) set_held(*e, false);
    if (const auto* e = std::get_if<JobCancelled>(&event.payload)) {
      for (uint64_t i = 0; i <= e->more; ++i) {
        const auto job = jobs.find(JobId(e->job.value() + i));
        if (job != jobs.end()) job->second.cancelled = true;
      }
    }
    if (const auto* e = std::get_if<TaskStartFailed>(&event.payload)) gone(e->task, true);
    if (const auto* e = std::get_if<TaskExited>(&event.payload)) gone(e->task, false);
    if (const auto* e = std::get_if<SliceReleased>(&event.payload)) {
      const bool live = is_live(e->task);
      if (!live) gpus[e->gpu].held.erase(e->task);
    }
  }
  template <class Change>
  void set_held(const Change& change, bool held) {
    for (uint64_t i = 0; i <= change.more; ++i) {
      const auto job = jobs.find(JobId(change.job.value() + i));
      if (job == jobs.end()) continue;
      // A hold of several is for those that wait.
      if (held && change.more > 0 && job->second.phase != Phase::waiting) continue;
      job->second.held = held;
    }
  }
  void submitted(const JobSubmitted& e) {
    const size_t count = std::max<size_t>(e.array.indices.size(), 1);
    for (size_t i = 0; i < count; ++i) {
      JobAccount account;
      account.spec = e.spec;
      account.held = e.spec.held;
      account.submitted = now;
      account.array = e.array.indices.empty() ? 0 : e.job.value();
      jobs[JobId(e.job.value() + i)] = account;
    }
    if (!e.array.indices.empty()) running_max_[e.job.value()] = e.array.running_max;
  }
  bool is_live(const TaskKey& key) const {
    const auto job = jobs.find(key.job);
    return job != jobs.end() && job->second.live.contains(key.rank) &&
           job->second.live.at(key.rank).task == key;
  }
  void gone(const TaskKey& key, bool never_executed) {
    if (!is_live(key)) return;
    JobAccount& job = jobs[key.job];
    const Start start = job.live.at(key.rank);
    job.live.erase(key.rank);
    job.told_to_stop.erase(key);
    nodes[start.node].cpu_used -= request_of_rank(job.spec, key.rank).cpu.count();
    nodes[start.node].memory_used -= request_of_rank(job.spec, key.rank).memory.count();
    for (const Slice& slice : start.slices) {
      if (never_executed || gpus[slice.gpu].gone()) gpus[slice.gpu].held.erase(key);
    }
  }
  void forget_gone(GpuId id) {
    if (!gpus[id].gone()) return;
    std::erase_if(gpus[id].held, [&](const auto& entry) { return !is_live(entry.first); });
  }

  // --- decisions ----------------------------------------------------------------------------------------
  void apply(const Decision& decision) {
    if (const auto* d = std::get_if<Start>(&decision)) start(*d);
    if (const auto* d = std::get_if<Stop>(&decision)) {
      rule_ = "P18";
      stop(*d);
      rule_ = "contract";
    }
    if (const auto* d = std::get_if<Requeue>(&decision)) requeue(*d);
    if (const auto* d = std::get_if<End>(&decision)) end(*d);
    if (const auto* d = std::get_if<WakeAt>(&decision)) {
      if (d->time <= now) say("a wake-up in the past");
    }
  }

  void start(const Start& d) {
    ++starts;
    const auto found = jobs.find(d.task.job);
    if (found == jobs.end()) return say("start of an unknown job");
    JobAccount& job = found->second;
    if (job.phase == Phase::ended) say(text(d.task.job) + " starts after its end");
    // A task that was taken from an elastic job comes back as another attempt.
    const bool is_right = job.spec.elastic ? d.task.attempt >= job.attempt : d.task.attempt == job.attempt;
    if (!is_right) say(text(d.task.job) + " starts a wrong attempt");
    job.attempt = std::max(job.attempt, d.task.attempt);
    const bool grows = job.phase == Phase::active && job.started != now;
    if (grows && !job.spec.elastic) say(text(d.task.job) + " starts more tasks while it runs");
    const bool is_placed = !job.spec.topology.required.empty() || !job.spec.nodes.empty() ||
                           job.spec.task.gpu.topology != GpuTopology::any;
    if (grows) ++joined;
    if (!job.spec.groups.empty()) ++parted;
    if (is_placed) ++placed;
    if (job.live.contains(d.task.rank)) say(text(d.task.job) + " starts a rank that it has");
    if (!executed_.insert(d.task).second) say(text(d.task.job) + " starts a task twice in one attempt");
    if (job.held) say(text(d.task.job) + " starts while held");
    if (job.spec.begin > now) say(text(d.task.job) + " starts before its begin time");
    for (const Dependency& dependency : job.spec.dependencies) audit_dependency(d.task.job, dependency);
    if (job.phase != Phase::active) job.started = now;
    job.phase = Phase::active;
    job.ever_started = true;
    job.live[d.task.rank] = d;
    NodeAccount& node = nodes[d.node];
    const TaskRequest& request = request_of_rank(job.spec, d.task.rank);
    node.cpu_used += request.cpu.count();
    node.memory_used += request.memory.count();
    if (!job.spec.node_pool.empty() && node.node.pool != job.spec.node_pool)
      say(text(d.task.job) + " is in a wrong pool");
    const size_t most = std::max(request.gpu.count, request.gpu.count_max);
    if (d.slices.size() < request.gpu.count || d.slices.size() > most)
      say(text(d.task.job) + " has a wrong number of slices");
    std::vector<const Gpu*> taken;
    for (const Slice& slice : d.slices) {
      if (gpus.contains(slice.gpu)) taken.push_back(&gpus[slice.gpu].gpu);
    }
    GpuRequest all = request.gpu;
    all.count = static_cast<uint32_t>(taken.size());
    if (!taken.empty() && joined_sets(taken, all) != 1)
      say(text(d.task.job) + " has GPUs that are not joined");
    rule_ = "P1";
    for (const Slice& slice : d.slices) place(d, job, slice);
    rule_ = "contract";
    audit_limits(d.task.job, job);
  }

  void place(const Start& d, const JobAccount& job, const Slice& slice) {
    const auto found = gpus.find(slice.gpu);
    if (found == gpus.end()) return say(text(d.task.job) + " is on an unknown GPU");
    GpuAccount& gpu = found->second;
    const GpuRequest& request = request_of_rank(job.spec, d.task.rank).gpu;
    const std::string where = text(d.task.job) + " on GPU " + std::to_string(slice.gpu.value());
    if (gpu.gpu.node != d.node) say(where + ": not of its node");
    if (!gpu.takes_work()) say(where + ": takes no work");
    if (!is_wanted(request, gpu.gpu.type)) say(where + ": wrong type");
    if (slice.kind != request.kind) say(where + ": wrong kind");
    const int64_t usable = gpu.gpu.memory_usable.count();
    if (usable <= 0) return say(where + ": a GPU that was never added");
    int64_t compute = request.kind == SliceKind::whole ? 1000 : request.compute.count();
    int64_t memory = request.kind == SliceKind::whole ? usable : request.memory.count();
    if (compute == 0) compute = (memory * 1000 + usable - 1) / usable;
    if (request.kind == SliceKind::fraction && request.memory.count() == 0) memory = usable * compute / 1000;
    if (slice.compute.count() != compute || slice.memory.count() != memory) say(where + ": wrong amount");
    const int64_t by_memory = (slice.memory.count() * 1000 + usable - 1) / usable;
    const Held held{slice, job.spec.owner.uid, job.spec.queue, std::max(slice.compute.count(), by_memory)};
    if (!gpu.held.emplace(d.task, held).second) say(where + ": twice");
  }

  void stop(const Stop& d) {
    const auto found = jobs.find(d.task.job);
    if (found == jobs.end() || !is_live(d.task)) return say("stop of a task that does not run");
    JobAccount& victim = found->second;
    victim.told_to_stop.insert(d.task);
    if (d.reason != StopReason::preempted && d.reason != StopReason::reclaimed) return;
    ++evictions;
    std::set<uint32_t> staying;
    for (const auto& [rank, start] : victim.live) {
      if (!victim.told_to_stop.contains(start.task)) staying.insert(rank);
    }
    const bool goes_on = victim.spec.elastic && is_enough(victim.spec, staying);
    if (goes_on) ++given;
    const std::string what = text(d.task.job) + " makes room for " + text(d.beneficiary);
    if (!victim.spec.preemptible) say(what + ": not preemptible");
    const auto taker = jobs.find(d.beneficiary);
    if (taker == jobs.end() || (taker->second.phase != Phase::waiting && !taker->second.spec.elastic))
      return say(what + ": which does not wait");
    const JobSpec& mine = taker->second.spec;
    if (taker->second.submitted + mine.preemption_delay > now) say(what + ": which is too young to take");
    if (d.reason == StopReason::preempted) {
      if (mine.queue != victim.spec.queue) say(what + ": preempted across queues");
      // An elastic job gives what it can live without to those that are not less than itself.
      const bool is_surplus =
          goes_on && taker->second.phase == Phase::waiting && mine.priority == victim.spec.priority;
      if (mine.priority <= victim.spec.priority && !is_surplus) say(what + ": not of higher priority");
    } else {
      if (mine.queue == victim.spec.queue) say(what + ": reclaimed within its queue");
      if (victim.started + policy.minimum_runtime > now) say(what + ": before its minimum runtime");
      const bool holds_gpus = std::any_of(victim.live.begin(), victim.live.end(),
                                          [](const auto& task) { return !task.second.slices.empty(); });
      for (const QueuePolicy& queue : policy.queues) {
        if (!holds_gpus) break;  // it may be over a quota of processors or memory, which is not counted here
        // A queue that uses no more than its quota loses no GPUs to a queue outside it.
        if (!queue.quota || !is_below(victim.spec.queue, queue.path) || is_below(mine.queue, queue.path))
          continue;
        if (used(queue.path) <= queue.quota->count()) say(what + ": from within the quota of " + queue.path);
      }
    }
  }

  void requeue(const Requeue& d) {
    const auto found = jobs.find(d.job);
    if (found == jobs.end() || found->second.phase != Phase::active)
      return say("requeue of a job that does not run");
    JobAccount& job = found->second;
    if (!job.live.empty()) say(text(d.job) + " is requeued while tasks run");
    if (job.cancelled) say(text(d.job) + " is requeued although it was cancelled");
    if (d.attempt != job.attempt + 1) say(text(d.job) + " skips an attempt");
    job.attempt = d.attempt;
    job.phase = Phase::waiting;
  }

  void end(const End& d) {
    const auto found = jobs.find(d.job);
    if (found == jobs.end() || found->second.phase == Phase::ended)
      return say("a job ends twice or is unknown");
    JobAccount& job = found->second;
    if (!job.live.empty()) say(text(d.job) + " ends while tasks run");
    if (!is_final(d.state)) say(text(d.job) + " ends in a state that is not final");
    if (job.phase == Phase::waiting && d.state != JobState::cancelled)
      say(text(d.job) + " ends without having run");
    job.phase = Phase::ended;
    job.final_state = d.state;
  }

  // --- rules --------------------------------------------------------------------------------------------
  void audit_dependency(JobId id, const Dependency& dependency) {
    const auto target = jobs.find(dependency.job);
    if (target == jobs.end()) return say(text(id) + " depends on nothing and starts");
    const auto state = target->second.final_state;
    const bool met = dependency.kind == DependencyKind::after_start ? target->second.ever_started
                     : dependency.kind == DependencyKind::after_any ? state.has_value()
                     : dependency.kind == DependencyKind::after_ok
                         ? state == JobState::completed
                         : state.has_value() && *state != JobState::completed;
    if (!met) say(text(id) + " starts before its dependency is met");
  }

  void audit_limits(JobId id, const JobAccount& job) {
    for (const QueuePolicy& queue : policy.queues) {
      if (queue.limit && is_below(job.spec.queue, queue.path) && used(queue.path) > queue.limit->count()) {
        say(text(id) + " passes the limit of " + queue.path);
      }
      if (!is_below(job.spec.queue, queue.path) || (!queue.limit_cpu && !queue.limit_memory)) continue;
      int64_t cpu = 0;
      int64_t memory = 0;
      for (const auto& [other, account] : jobs) {
        if (!is_below(account.spec.queue, queue.path)) continue;
        for (const auto& [rank, start] : account.live) {
          cpu += request_of_rank(account.spec, rank).cpu.count();
          memory += request_of_rank(account.spec, rank).memory.count();
        }
      }
      // Whoever asks for none of it is not kept by a limit that was lowered below what is used.
      const bool takes_memory = std::any_of(job.live.begin(), job.live.end(), [&](const auto& task) {
        return request_of_rank(job.spec, task.first).memory.count() > 0;
      });
      if (queue.limit_cpu && cpu > queue.limit_cpu->count())
        say(text(id) + " passes the limit of processors of " + queue.path);
      if (takes_memory && queue.limit_memory && memory > queue.limit_memory->count())
        say(text(id) + " passes the limit of memory of " + queue.path);
    }
    if (job.array == 0 || running_max_[job.array] == 0) return;
    uint32_t running = 0;
    for (const auto& [other, account] : jobs) {
      if (account.array == job.array && account.phase == Phase::active) ++running;
    }
    if (running > running_max_[job.array]) say(text(id) + " passes its array's limit");
  }

  void audit_gang(JobId id, const std::vector<Start>& tasks) {
    const auto found = jobs.find(id);
    if (found == jobs.end()) return;
    const JobAccount& job = found->second;
    const JobSpec& spec = job.spec;
    std::set<uint32_t> ranks;
    for (const auto& [rank, start] : job.live) ranks.insert(rank);
    if (job.started == now && !is_enough(spec, ranks))
      say(text(id) + " starts with " + std::to_string(ranks.size()) + " tasks, too few");
    if (!ranks.empty() && *ranks.rbegin() >= spec.tasks_max)
      say(text(id) + " has a task of rank " + std::to_string(*ranks.rbegin()));
    if (spec.groups.empty() && !spec.elastic) {
      for (uint32_t rank = 0; rank < tasks.size(); ++rank) {
        if (tasks[rank].task.rank != rank) say(text(id) + " has no task of rank " + std::to_string(rank));
      }
    }
    audit_places(id, job);
  }

  // Nodes that are allowed, and domains that have to be shared, of all tasks that stay.
  void audit_places(JobId id, const JobAccount& job) {
    std::map<size_t, std::vector<std::string>> domain_of_part;
    for (const auto& [rank, start] : job.live) {
      if (job.told_to_stop.contains(start.task)) continue;
      const Node& node = nodes[start.node].node;
      for (const size_t part : parts_of_rank(job.spec, rank)) {
        const auto& allowed = part == 0 ? job.spec.nodes : job.spec.groups[part - 1].nodes;
        if (!is_allowed(allowed, node)) say(text(id) + " is on a node that it does not name");
        const std::string& level =
            (part == 0 ? job.spec.topology : job.spec.groups[part - 1].topology).required;
        if (level.empty()) continue;
        const auto domain = domain_of(node, level);
        if (domain.empty()) say(text(id) + " is on a node of no " + level);
        if (domain_of_part.emplace(part, domain).first->second != domain)
          say(text(id) + " is spread over several of " + level);
      }
    }
  }

  void audit_capacity() {
    for (const auto& [id, gpu] : gpus) {
      int64_t compute = 0;
      int64_t memory = 0;
      bool whole = false;
      std::set<uint32_t> users;
      for (const auto& [key, held] : gpu.held) {
        compute += held.slice.compute.count();
        memory += held.slice.memory.count();
        whole = whole || held.slice.kind == SliceKind::whole;
        users.insert(held.uid);
      }
      const std::string where = "GPU " + std::to_string(id.value());
      if (compute > 1000) say(where + ": compute is over-committed");
      if (memory > gpu.gpu.memory_usable.count()) say(where + ": memory is over-committed");
      if (whole && gpu.held.size() > 1) say(where + ": shared though held as a whole");
      if (users.size() > 1 && !ever_shared_ && !policy.users_share_gpu) say(where + ": shared by users");
    }
    ever_shared_ = ever_shared_ || policy.users_share_gpu;
    for (const auto& [id, node] : nodes) {
      if (node.cpu_used > node.node.cpu.count())
        say("node " + std::to_string(id.value()) + ": CPUs over-committed");
      if (node.memory_used > node.node.memory.count())
        say("node " + std::to_string(id.value()) + ": memory over-committed");
    }
  }

  const char* rule_ = "contract";  // what is being held against
  std::set<TaskKey> executed_;
  std::map<uint64_t, uint32_t> running_max_;
  bool ever_shared_ = false;
};

}  // namespace tranche::scheduler::test
