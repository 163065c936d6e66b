#include "replay/scenario_audit.h"

#include <algorithm>

namespace tranche::replay {
namespace {

// "a/b/c", "a/b", "a".
std::vector<std::string> with_ancestors(std::string path) {
  std::vector<std::string> paths;
  while (!path.empty()) {
    paths.push_back(path);
    const size_t slash = path.rfind('/');
    path = slash == std::string::npos ? "" : path.substr(0, slash);
  }
  return paths;
}

}  // namespace

ScenarioAudit::ScenarioAudit(const Scenario& scenario, const ScenarioCluster& cluster)
    : scenario_(scenario), cluster_(cluster) {
  for (const Gpu& gpu : cluster.gpus) memory_[gpu.id] = gpu.memory_usable;
}

void ScenarioAudit::started(const Start& start, bool initially) {
  Held held{start.slices, MilliGpu()};
  for (const Slice& slice : start.slices) {
    auto& [compute, memory] = used_[slice.gpu];
    compute += slice.compute;
    memory += slice.memory;
    const MiB usable = memory_[slice.gpu];
    if (compute > kWholeGpu || memory > usable)
      violations.push_back("a device of node " + cluster_.node_name(start.node) +
                           " is promised beyond what it has");
    const int64_t of_memory =
        (slice.memory.count() * kWholeGpu.count() + usable.count() - 1) / usable.count();
    held.charge += slice.kind == SliceKind::whole ? kWholeGpu : std::max(slice.compute, MilliGpu(of_memory));
  }
  charge(start.task.job, held.charge);
  held_[start.task] = std::move(held);
  if (initially) return;
  started_.insert(start.task.job);
  for (const std::string& path : with_ancestors(placed(start.task.job).spec.queue)) {
    for (const QueuePolicy& queue : cluster_.policy.queues) {
      if (queue.path == path && queue.limit && used_by_queue_[path] > *queue.limit)
        violations.push_back("job " + name(start.task.job) + " takes a queue beyond its limit");
    }
  }
}

void ScenarioAudit::charge(JobId job, MilliGpu amount) {
  const JobSpec& spec = placed(job).spec;
  for (const std::string& path : with_ancestors(spec.queue)) {
    used_by_queue_[path] += amount;
    if (!spec.preemptible) used_fixed_[path] += amount;
  }
}

bool ScenarioAudit::is_inside_quota(JobId job) const {
  for (const std::string& path : with_ancestors(placed(job).spec.queue)) {
    for (const QueuePolicy& queue : cluster_.policy.queues) {
      const auto used = used_fixed_.find(path);
      if (queue.path == path && queue.quota && used != used_fixed_.end() && used->second > *queue.quota)
        return false;
    }
  }
  return true;
}

void ScenarioAudit::stopped(const Stop& stop) {
  const JobId job = stop.task.job;
  // A gang that has lost a member is ended for its own sake, and what it was when the case began is the
  // table's.
  if (stop.reason == StopReason::gang || stop.reason == StopReason::node_failed ||
      stop.reason == StopReason::stale)
    return;
  if (!placed(job).spec.preemptible && is_inside_quota(job))
    violations.push_back("job " + name(job) + " is not preemptible and inside its quota, and was evicted");
  if (!stop.beneficiary.is_set()) {
    violations.push_back("job " + name(job) + " was evicted for nobody");
    return;
  }
  if (victims_.empty()) held_before_ = held_;
  victims_.insert(job);
  beneficiaries_.insert(stop.beneficiary);
}

int64_t ScenarioAudit::tasks_on(const Node& node, const JobSpec& spec, const std::set<JobId>& evicted) const {
  const GpuRequest& request = spec.task.gpu;
  int64_t slots = 0;
  for (const Gpu& gpu : cluster_.gpus) {
    if (gpu.node != node.id) continue;
    int64_t compute = kWholeGpu.count();
    int64_t memory = gpu.memory_usable.count();
    for (const auto& [task, held] : held_before_) {
      if (evicted.contains(task.job)) continue;
      for (const Slice& slice : held.slices) {
        if (slice.gpu != gpu.id) continue;
        compute -= slice.compute.count();
        memory -= slice.memory.count();
      }
    }
    const bool is_idle = compute == kWholeGpu.count() && memory == gpu.memory_usable.count();
    const int64_t by_compute = request.compute.count() > 0 ? compute / request.compute.count() : INT32_MAX;
    const int64_t by_memory = request.memory.count() > 0 ? memory / request.memory.count() : INT32_MAX;
    slots += request.kind == SliceKind::whole ? int64_t{is_idle} : std::min(by_compute, by_memory);
  }
  return request.count == 0 ? INT32_MAX : slots / int64_t{request.count};
}

bool ScenarioAudit::fits_without(JobId claimant, const std::set<JobId>& evicted) const {
  const JobSpec& spec = placed(claimant).spec;
  int64_t tasks = 0;
  for (const Node& node : cluster_.nodes) tasks += tasks_on(node, spec, evicted);
  return tasks >= spec.tasks_min;
}

// By room alone, so only where one job gained and no bound of a queue can have been why: an account of its
// own of what every rule together needs would be another scheduler.
void ScenarioAudit::judge_victims() {
  if (beneficiaries_.size() != 1 || victims_.size() < 2) return;
  const JobId claimant = *beneficiaries_.begin();
  const JobSpec& spec = placed(claimant).spec;
  const bool is_bounded = std::any_of(
      cluster_.policy.queues.begin(), cluster_.policy.queues.end(),
      [&](const QueuePolicy& queue) { return queue.limit || (!spec.preemptible && queue.quota); });
  // Tasks that differ, or go one by one, are more than this account of room can tell.
  const bool is_special = !spec.groups.empty() || !spec.nodes.empty() || spec.topology.is_set() ||
                          std::any_of(victims_.begin(), victims_.end(),
                                      [&](JobId victim) { return placed(victim).spec.elastic; });
  if (is_special) return;
  if (is_bounded || (spec.task.gpu.kind != SliceKind::whole && spec.task.gpu.count > 1)) return;
  for (const JobId victim : victims_) {
    std::set<JobId> others = victims_;
    others.erase(victim);
    if (fits_without(claimant, others))
      violations.push_back("job " + name(victim) + " was evicted and need not have been");
  }
}

void ScenarioAudit::released(const TaskKey& task) {
  const auto found = held_.find(task);
  if (found == held_.end()) return;
  for (const Slice& slice : found->second.slices) {
    used_[slice.gpu].first -= slice.compute;
    used_[slice.gpu].second -= slice.memory;
  }
  charge(task.job, -found->second.charge);
  held_.erase(found);
}

void ScenarioAudit::quiet() {
  judge_victims();
  for (const JobId job : beneficiaries_) {
    if (!started_.contains(job))
      violations.push_back("room was made for job " + name(job) + ", and it did not start");
  }
  std::map<JobId, uint32_t> running;
  for (const auto& [task, held] : held_) ++running[task.job];
  for (const auto& [job, count] : running) {
    // A job that no decision touched is as the table has put it there.
    if (started_.contains(job) && count < placed(job).spec.tasks_min)
      violations.push_back("job " + name(job) + " runs in part");
  }
}

}  // namespace tranche::replay
