#include "replay/scenario_parts.h"

#include <algorithm>
#include <map>

#include "model/task_groups.h"
#include "replay/json_input.h"

namespace tranche::replay {
namespace {

// A name that no node has: the table allows none.
constexpr std::string_view kNoNode = "(none)";

TopologyRequest topology_of(const TopologyWish& wish) { return {wish.required_level, wish.preferred_level}; }

std::vector<std::string> nodes_of(const ScenarioTask& task) {
  if (!task.allowed_nodes) return {};
  if (task.allowed_nodes->empty()) return {std::string(kNoNode)};
  return *task.allowed_nodes;
}

// The tasks of one group in the order in which they get ranks: those that hold something, then by priority.
std::vector<size_t> in_order(const ScenarioJob& listed, const std::string& subgroup) {
  std::vector<size_t> tasks;
  for (size_t i = 0; i < listed.tasks.size(); ++i)
    if (listed.tasks[i].subgroup == subgroup) tasks.push_back(i);
  std::stable_sort(tasks.begin(), tasks.end(), [&](size_t a, size_t b) {
    const ScenarioTask& first = listed.tasks[a];
    const ScenarioTask& second = listed.tasks[b];
    if (first.node.empty() != second.node.empty()) return second.node.empty();
    return first.priority > second.priority;
  });
  return tasks;
}

class Builder {
 public:
  Builder(const ScenarioJob& listed, PlacedJob& job) : listed_(listed), job_(job) {}

  void build() {
    JobSpec& spec = job_.spec;
    spec.topology = topology_of(listed_.topology);
    spec.groups_min = static_cast<uint32_t>(listed_.min_subgroups.value_or(0));
    if (listed_.subgroups.empty()) {
      const std::vector<size_t> tasks = in_order(listed_, "");
      if (are_alike(tasks)) return build_plain(tasks);
      add_tasks(0, tasks, std::clamp<int64_t>(listed_.min_members, 1, static_cast<int64_t>(tasks.size())));
    }
    for (const ScenarioSubgroup& group : listed_.subgroups) add_group(group);
    finish();
  }

 private:
  bool are_alike(const std::vector<size_t>& tasks) const {
    return std::all_of(tasks.begin(), tasks.end(),
                       [&](size_t task) { return key_of(task) == key_of(tasks.front()); });
  }
  std::pair<TaskRequest, std::vector<std::string>> key_of(size_t task) const {
    TaskRequest request;
    request.gpu = request_of(listed_.tasks[task]);
    request.cpu = MilliCpu(listed_.best_effort ? 0 : listed_.task_cpu_milli);
    request.memory = MiB(listed_.best_effort ? 0 : listed_.task_memory_mb);
    return {request, nodes_of(listed_.tasks[task])};
  }

  void build_plain(const std::vector<size_t>& tasks) {
    JobSpec& spec = job_.spec;
    std::tie(spec.task, spec.nodes) = key_of(tasks.front());
    spec.tasks_max = static_cast<uint32_t>(tasks.size());
    spec.tasks_min = static_cast<uint32_t>(std::clamp<int64_t>(listed_.min_members, 1, spec.tasks_max));
    spec.elastic = spec.tasks_min < spec.tasks_max;
    for (const size_t task : tasks) job_.ranks.push_back({task, {}, {}});
  }

  // Tasks that are alike make one group each; the first `least` of all of them are needed.
  void add_tasks(uint32_t parent, const std::vector<size_t>& tasks, int64_t least) {
    std::vector<std::vector<size_t>> kinds;
    std::vector<uint32_t> needed;
    for (size_t i = 0; i < tasks.size(); ++i) {
      size_t kind = 0;
      while (kind < kinds.size() && key_of(kinds[kind].front()) != key_of(tasks[i])) ++kind;
      if (kind == kinds.size()) {
        kinds.emplace_back();
        needed.push_back(0);
      }
      kinds[kind].push_back(tasks[i]);
      needed[kind] += static_cast<int64_t>(i) < least ? 1 : 0;
    }
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      TaskGroup group;
      group.parent = parent;
      std::tie(group.task, group.nodes) = key_of(kinds[kind].front());
      group.tasks_max = static_cast<uint32_t>(kinds[kind].size());
      group.tasks_min = needed[kind];
      job_.spec.groups.push_back(std::move(group));
      ranks_.push_back(kinds[kind]);
    }
  }

  // Parents come first, however the table lists them.
  void add_group(const ScenarioSubgroup& listed) {
    if (numbers_.contains(listed.name)) return;
    uint32_t parent = 0;
    if (!listed.parent.empty()) {
      for (const ScenarioSubgroup& other : listed_.subgroups)
        if (other.name == listed.parent) add_group(other);
      parent = numbers_[listed.parent];
    }
    const std::vector<size_t> tasks = in_order(listed_, listed.name);
    const int64_t least = std::min<int64_t>(listed.min_members, static_cast<int64_t>(tasks.size()));
    if (!listed.is_group && !tasks.empty() && are_alike(tasks)) {
      add_tasks(parent, tasks, least);
      job_.spec.groups.back().topology = topology_of(listed.topology);
      numbers_[listed.name] = static_cast<uint32_t>(job_.spec.groups.size());
      return;
    }
    TaskGroup group;
    group.parent = parent;
    group.topology = topology_of(listed.topology);
    group.groups_min = static_cast<uint32_t>(listed.min_subgroups.value_or(0));
    job_.spec.groups.push_back(std::move(group));
    ranks_.emplace_back();
    numbers_[listed.name] = static_cast<uint32_t>(job_.spec.groups.size());
    if (!listed.is_group) add_tasks(numbers_[listed.name], tasks, least);
  }

  void finish() {
    JobSpec& spec = job_.spec;
    spec.tasks_max = 0;
    for (size_t i = 0; i < spec.groups.size(); ++i) {
      spec.tasks_max += spec.groups[i].tasks_max;
      for (const size_t task : ranks_[i]) job_.ranks.push_back({task, {}, {}});
    }
    spec.tasks_min =
        static_cast<uint32_t>(TaskGroups(spec).missing(TaskGroups::RankSet(spec.tasks_max)).size());
    spec.elastic = spec.tasks_min < spec.tasks_max;
  }

  const ScenarioJob& listed_;
  PlacedJob& job_;
  std::map<std::string, uint32_t> numbers_;
  std::vector<std::vector<size_t>> ranks_;  // by group of the specification
};

}  // namespace

GpuRequest request_of(const ScenarioTask& task) {
  constexpr int64_t kMicroPerMilli = kMicro / 1000;
  GpuRequest request;
  if (task.is_shared()) {
    request.kind = SliceKind::fraction;
    request.count = static_cast<uint32_t>(task.devices);
    request.compute = MilliGpu((task.fraction + kMicroPerMilli / 2) / kMicroPerMilli);
    request.memory = MiB(task.memory_mib);
  } else {
    request.count = static_cast<uint32_t>(task.whole);
  }
  return request;
}

void set_parts(const ScenarioJob& listed, PlacedJob& job) { Builder(listed, job).build(); }

}  // namespace tranche::replay
