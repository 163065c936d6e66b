// A scheduling case as a table of expected answers states it: a cluster, queues, jobs, and what must become
// of them. The schema is that of the conformance tables (docs/replay.md): facts only, nothing of how they are
// met.
//
// Units: GPU amounts in millionths (kMicro is one GPU), memory of a GPU in MiB, host memory in MB (10^6
// bytes, as the tables state quotas), times in seconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/json_document.h"
#include "model/enums.h"

namespace tranche::replay {

// What a task is at the start, and what it is expected to be. `binding` starts on idle room, `pipelined` on
// room that leaves; both are starts.
#define TRANCHE_SCENARIO_STATUS(X) \
  X(running) X(pending) X(releasing) X(stuckinreleasing) X(pipelined) X(failed) X(succeeded) X(binding)
TRANCHE_ENUM(ScenarioStatus, TRANCHE_SCENARIO_STATUS)

#define TRANCHE_SCENARIO_ACTION(X) \
  X(integration) X(allocate) X(consolidation) X(reclaim) X(preempt) X(stalegangeviction)
TRANCHE_ENUM(ScenarioAction, TRANCHE_SCENARIO_ACTION)

struct TopologyWish {
  std::string topology;
  std::string required_level;
  std::string preferred_level;
  bool is_set() const { return !required_level.empty() || !preferred_level.empty(); }
};

struct ScenarioTopology {
  std::string name;
  std::vector<std::string> levels;  // label keys, widest first
};

struct ScenarioNode {
  std::string name;
  int64_t gpus = 0;
  int64_t gpu_memory_mib = 100;
  int64_t cpu_milli = 20'000'000;
  int64_t memory_mb = 20'000;
  std::vector<std::pair<std::string, std::string>> labels;
};

// Unset bounds are unlimited.
struct ScenarioQueue {
  std::string name;
  std::string parent;
  std::optional<int64_t> deserved;  // micro-GPU
  std::optional<int64_t> limit;
  int64_t weight = 0;
  int64_t priority = 100;
  int64_t created_order = 0;
  std::optional<int64_t> deserved_cpu_milli;
  std::optional<int64_t> limit_cpu_milli;
  std::optional<int64_t> deserved_memory_mb;
  std::optional<int64_t> limit_memory_mb;
};

struct ScenarioTask {
  std::string id;
  int64_t whole = 0;       // whole GPUs; or
  int64_t fraction = 0;    // micro of one device; or
  int64_t memory_mib = 0;  // of one device
  int64_t devices = 1;     // number of devices that each give the fraction or the memory
  ScenarioStatus state = ScenarioStatus::pending;
  std::string node;                       // where it holds resources
  std::vector<std::string> devices_held;  // labels
  std::string subgroup;
  int64_t priority = 0;
  std::optional<std::vector<std::string>> allowed_nodes;

  bool is_shared() const { return fraction > 0 || memory_mib > 0; }
  bool holds() const {
    return state == ScenarioStatus::running || state == ScenarioStatus::releasing ||
           state == ScenarioStatus::stuckinreleasing;
  }
};

struct ScenarioSubgroup {
  std::string name;
  std::string parent;  // "" is the job itself
  bool is_group = false;
  int64_t min_members = 0;               // of pods
  std::optional<int64_t> min_subgroups;  // of a group; all if unset
  TopologyWish topology;
};

struct ScenarioJob {
  std::string name;
  std::string queue;
  int64_t priority = 50;
  bool preemptible = true;
  int64_t min_members = 1;
  int64_t age_seconds = 0;
  int64_t created_order = 0;
  int64_t task_cpu_milli = 1000;
  int64_t task_memory_mb = 1000;
  bool best_effort = false;
  std::vector<ScenarioSubgroup> subgroups;
  std::optional<int64_t> min_subgroups;
  TopologyWish topology;
  int64_t preemption_delay_s = 0;
  int64_t stale_for_s = 0;
  std::optional<int64_t> staleness_grace_s;  // negative: never
  bool release_never_completes = false;
  std::vector<ScenarioTask> tasks;
};

struct ExpectedStatus {
  ScenarioStatus status = ScenarioStatus::pending;
  std::string node;                 // "" is free
  std::optional<int64_t> accepted;  // micro-GPU charged
};

struct ExpectedNode {
  std::optional<int64_t> idle;
  std::optional<int64_t> releasing;
};

struct Expectation {
  std::map<std::string, ExpectedStatus> jobs;
  std::map<std::string, ExpectedStatus> tasks;
  std::map<std::string, ExpectedNode> nodes;
  std::optional<int64_t> binds_max;
  std::optional<int64_t> evictions_max;
  std::optional<int64_t> pipelines_max;
};

struct Scenario {
  std::string id;
  ScenarioAction action = ScenarioAction::integration;
  std::vector<std::string> features;
  std::vector<std::string> plugins;  // as "name" or "name=strategy"; empty: the default ones
  bool has_plugins = false;
  int64_t rounds_until_match = 1;
  int64_t rounds_after_match = 0;
  std::optional<int64_t> staleness_grace_s;
  std::vector<ScenarioTopology> topologies;
  std::vector<ScenarioNode> nodes;
  std::vector<ScenarioQueue> queues;
  std::vector<ScenarioJob> jobs;
  Expectation expected;  // the preferred one where the table rejects its own
  std::vector<std::vector<std::string>> interchangeable_nodes;
};

// One case. Errors: corrupt, with the field; a field that is not of the schema is one.
Result<Scenario> read_scenario(json::Value value);

}  // namespace tranche::replay
