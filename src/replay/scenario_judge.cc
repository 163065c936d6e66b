#include "replay/scenario_judge.h"

#include <algorithm>
#include <set>

namespace tranche::replay {
namespace {

using Renaming = std::map<std::string, std::string>;  // the scheduler's node to the table's

class Judge {
 public:
  Judge(const Scenario& scenario, const ScenarioCluster& cluster, const ScenarioResult& result)
      : scenario_(scenario), cluster_(cluster), result_(result) {}

  std::vector<std::string> run() {
    judge_statuses();
    if (problems_.empty()) judge_nodes();
    judge_counts();
    if (!result_.quiescent) say("nothing settled in " + std::to_string(kRoundsMax) + " rounds");
    if (result_.after_match != RoundCounts{})
      say("after the match there were still " + std::to_string(result_.after_match.starts) + " starts and " +
          std::to_string(result_.after_match.stops) + " stops");
    for (const std::string& violation : result_.violations) say("invariant: " + violation);
    return std::move(problems_);
  }

 private:
  void say(std::string problem) { problems_.push_back(std::move(problem)); }
  bool is_integration() const { return scenario_.action == ScenarioAction::integration; }

  // --- statuses --------------------------------------------------------------------------------------------
  bool agrees(const TaskOutcome& task, ScenarioStatus expected) const {
    const bool runs = task.status == ScenarioStatus::running;
    if (is_integration()) {
      return expected == ScenarioStatus::binding || expected == ScenarioStatus::pipelined
                 ? runs
                 : task.status == expected;
    }
    switch (expected) {
      case ScenarioStatus::binding:
        return runs && task.was_started && !task.was_stopped;
      case ScenarioStatus::pipelined:
        return runs && task.was_started;
      case ScenarioStatus::releasing:
        return task.was_stopped || task.status == ScenarioStatus::releasing;
      case ScenarioStatus::running:
        return runs && !task.was_started;
      case ScenarioStatus::pending:
        return !task.was_started && !task.was_stopped && task.status == ScenarioStatus::pending;
      case ScenarioStatus::stuckinreleasing:
      case ScenarioStatus::failed:
      case ScenarioStatus::succeeded:
        return task.status == expected;
    }
    return false;
  }

  std::string actual(const TaskOutcome& task) const {
    std::string text(to_string(task.status));
    if (task.was_stopped)
      text += task.was_started ? ", moved" : ", evicted";
    else if (task.was_started)
      text += ", started";
    if (task.node.is_set()) text += " on " + cluster_.node_name(task.node);
    return text;
  }

  void judge_statuses() {
    for_each_expected([&](const std::string& name, const ExpectedStatus& expected, const ScenarioTask& task) {
      const TaskOutcome& outcome = result_.tasks.at(task.id);
      if (agrees(outcome, expected.status)) return;
      say(name + " should be " + std::string(to_string(expected.status)) + " and is " + actual(outcome));
    });
  }

  template <class Use>
  void for_each_expected(Use use) {
    for (const ScenarioJob& job : scenario_.jobs) {
      const auto whole = scenario_.expected.jobs.find(job.name);
      for (const ScenarioTask& task : job.tasks) {
        if (whole != scenario_.expected.jobs.end()) use(task.id, whole->second, task);
        const auto single = scenario_.expected.tasks.find(task.id);
        if (single != scenario_.expected.tasks.end()) use(task.id, single->second, task);
      }
    }
  }

  // --- nodes, up to names inside groups of nodes that are alike
  // ----------------------------------------------
  std::vector<std::string> node_problems(const Renaming& renaming) {
    std::vector<std::string> found;
    for_each_expected([&](const std::string& name, const ExpectedStatus& expected, const ScenarioTask& task) {
      const TaskOutcome& outcome = result_.tasks.at(task.id);
      // Where it was until it was evicted is the table's own input.
      if (expected.node.empty() || expected.status == ScenarioStatus::releasing || !outcome.node.is_set())
        return;
      std::string node = cluster_.node_name(outcome.node);
      if (const auto other = renaming.find(node); other != renaming.end()) node = other->second;
      if (node != expected.node)
        found.push_back(name + " should be on " + expected.node + " and is on " + node);
    });
    return found;
  }

  void judge_nodes() {
    Renaming renaming;
    std::vector<std::string> first = node_problems(renaming);
    if (first.empty() || try_renamings(0, renaming)) return;
    for (std::string& problem : first) say(std::move(problem));
  }

  bool try_renamings(size_t group, Renaming& renaming) {
    if (group == scenario_.interchangeable_nodes.size()) return node_problems(renaming).empty();
    std::vector<std::string> names = scenario_.interchangeable_nodes[group];
    if (names.size() > 8) names.resize(8);  // 8! is what a case is worth
    std::vector<std::string> other = names;
    std::sort(other.begin(), other.end());
    do {
      for (size_t i = 0; i < names.size(); ++i) renaming[names[i]] = other[i];
      if (try_renamings(group + 1, renaming)) return true;
    } while (std::next_permutation(other.begin(), other.end()));
    return false;
  }

  // --- counts
  // ------------------------------------------------------------------------------------------------ Rounds
  // are the tables' own, so a bound above zero is held against the whole run.
  void judge_counts() {
    RoundCounts total;
    for (const RoundCounts& round : result_.rounds) {
      total.starts += round.starts;
      total.stops += round.stops;
    }
    const Expectation& expected = scenario_.expected;
    const int64_t rounds = scenario_.rounds_until_match;
    if (expected.evictions_max && total.stops > *expected.evictions_max * rounds)
      say(std::to_string(total.stops) + " evictions, at most " +
          std::to_string(*expected.evictions_max * rounds) + " expected");
    const int64_t starts_max =
        (expected.binds_max.value_or(INT32_MAX) + expected.pipelines_max.value_or(INT32_MAX)) * rounds;
    if (total.starts > starts_max)
      say(std::to_string(total.starts) + " starts, at most " + std::to_string(starts_max) + " expected");
    for (const auto& [name, node] : expected.nodes) judge_idle(name, node);
  }

  void judge_idle(const std::string& name, const ExpectedNode& expected) {
    if (!expected.idle || !is_integration()) return;
    std::set<GpuId> busy;
    for (const auto& [id, task] : result_.tasks) {
      if (task.status != ScenarioStatus::running && task.status != ScenarioStatus::releasing) continue;
      for (const Slice& slice : task.slices) busy.insert(slice.gpu);
    }
    int64_t idle = 0;
    for (const Gpu& gpu : cluster_.gpus)
      idle += cluster_.node_name(gpu.node) == name && !busy.contains(gpu.id);
    if (idle != *expected.idle)
      say("node " + name + " should have " + std::to_string(*expected.idle) + " idle GPUs and has " +
          std::to_string(idle));
  }

  const Scenario& scenario_;
  const ScenarioCluster& cluster_;
  const ScenarioResult& result_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> judge(const Scenario& scenario, const ScenarioCluster& cluster,
                               const ScenarioResult& result) {
  return Judge(scenario, cluster, result).run();
}

}  // namespace tranche::replay
