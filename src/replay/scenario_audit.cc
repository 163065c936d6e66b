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
  if (stop.reason == StopReason::gang || stop.reason == StopReason::node_failed) return;
  if (!placed(job).spec.preemptible && is_inside_quota(job))
    violations.push_back("job " + name(job) + " is not preemptible and inside its quota, and was evicted");
  if (!stop.beneficiary.is_set()) {
    violations.push_back("job " + name(job) + " was evicted for nobody");
  } else {
    beneficiaries_.insert(stop.beneficiary);
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
