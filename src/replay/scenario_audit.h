// What must hold in every scenario whatever its table expects, judged from starts and stops alone: no device
// beyond what it has, no gang in part once all is quiet, no queue beyond its limit, no eviction without
// somebody who gains by it, no victim that was not needed, nothing non-preemptible evicted inside its queue's
// quota.
//
// An account of its own; it shares nothing with the scheduler.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "replay/scenario_cluster.h"

namespace tranche::replay {

class ScenarioAudit {
 public:
  ScenarioAudit(const Scenario& scenario, const ScenarioCluster& cluster);

  void started(const Start& start, bool initially);
  void stopped(const Stop& stop);
  void released(const TaskKey& task);  // has exited, and its GPUs are free
  // When nothing is decided any more.
  void quiet();

  std::vector<std::string> violations;

 private:
  struct Held {
    std::vector<Slice> slices;
    MilliGpu charge;
  };
  void charge(JobId job, MilliGpu amount);
  void judge_victims();
  bool fits_without(JobId claimant, const std::set<JobId>& evicted) const;
  int64_t tasks_on(const Node& node, const JobSpec& spec, const std::set<JobId>& evicted) const;
  bool is_inside_quota(JobId job) const;
  const PlacedJob& placed(JobId job) const { return cluster_.jobs[job.value() - 1]; }
  std::string name(JobId job) const { return scenario_.jobs[placed(job).job].name; }

  const Scenario& scenario_;
  const ScenarioCluster& cluster_;
  std::map<GpuId, MiB> memory_;
  std::map<GpuId, std::pair<MilliGpu, MiB>> used_;
  std::map<TaskKey, Held> held_;
  std::map<std::string, MilliGpu> used_by_queue_;  // by path, with all below
  std::map<std::string, MilliGpu> used_fixed_;     // of it, not preemptible
  std::set<JobId> started_;
  std::set<JobId> beneficiaries_;
  std::set<JobId> victims_;
  std::map<TaskKey, Held> held_before_;  // when the first eviction was decided
};

}  // namespace tranche::replay
