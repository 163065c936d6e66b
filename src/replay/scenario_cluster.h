// A scenario in the model's words: policy, nodes, GPUs, job specifications, and where the tasks that run at
// the start are. Names of the table are kept here and decide nothing: the scheduler sees numbers.
//
// One user owns all jobs and users share GPUs, since the tables know queues only. Host memory is told in MB
// in the place of MiB, on both sides, so that sums stay exact.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/decision.h"
#include "model/event.h"
#include "replay/scenario.h"

namespace tranche::replay {

inline constexpr Time kScenarioStart{1'700'000'000'000'000'000};

// A task of the table as the scheduler knows it: its rank, and where it is if it holds something at the
// start.
struct PlacedTask {
  size_t task = 0;  // index in ScenarioJob::tasks
  NodeId node;
  std::vector<Slice> slices;
};

struct PlacedJob {
  size_t job = 0;  // index in Scenario::jobs
  JobId id;
  JobSpec spec;
  Time submitted;
  std::vector<PlacedTask> ranks;  // of each group: those that hold something come first, then by priority
};

class ScenarioCluster {
 public:
  // Errors: corrupt for a contradiction in the table, not_available_yet for what the model cannot say yet.
  static Result<ScenarioCluster> build(const Scenario& scenario, Policy policy);

  Policy policy;
  std::vector<Node> nodes;
  std::vector<Gpu> gpus;
  std::vector<PlacedJob> jobs;                     // by id, which rise in the order in which jobs were made
  std::map<std::string, std::string> queue_paths;  // by the table's name

  std::string node_name(NodeId id) const;

 private:
  void set_policy(const Scenario& scenario);
  Result<void> add_queues(const Scenario& scenario);
  void add_nodes(const Scenario& scenario);
  Result<void> add_jobs(const Scenario& scenario);
  Result<void> place(const Scenario& scenario);
};

}  // namespace tranche::replay
