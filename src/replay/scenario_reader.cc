#include <algorithm>

#include "replay/json_input.h"
#include "replay/scenario.h"

namespace tranche::replay {
namespace {

constexpr int64_t kBytesPerMb = 1'000'000;
constexpr size_t kNodesMax = 100'000;
constexpr int64_t kGpusPerNodeMax = 1'024;

std::optional<int64_t> bound(JsonInput& input, std::string_view name) {
  const int64_t value = input.integer(name, -1);
  return value < 0 ? std::nullopt : std::optional(value);
}

std::optional<int64_t> micro_bound(JsonInput& input, std::string_view name) {
  const int64_t value = input.micro(name, -kMicro);
  return value < 0 ? std::nullopt : std::optional(value);
}

template <class Enum>
Enum choice(JsonInput& input, std::string_view name, Enum otherwise) {
  const std::string text = input.text(name);
  if (text.empty()) return otherwise;
  if (const auto found = from_string<Enum>(text)) return *found;
  input.problem("\"" + std::string(name) + "\" is not known here: " + json::shown(text));
  return otherwise;
}

TopologyWish read_wish(JsonInput& parent) {
  TopologyWish wish;
  const auto object = parent.object("topology");
  if (!object) return wish;
  JsonInput input(*object, "topology");
  wish.topology = input.text("topology");
  wish.required_level = input.text("required_level");
  wish.preferred_level = input.text("preferred_level");
  input.finish();
  parent.adopt(input);
  return wish;
}

ScenarioNode read_node(JsonInput& input) {
  ScenarioNode node;
  node.name = input.text("name");
  node.gpus = input.integer("gpus", 0, 0, kGpusPerNodeMax);
  node.gpu_memory_mib = input.integer("gpu_memory_mib", node.gpu_memory_mib, 1);
  node.cpu_milli = input.integer("cpu_milli", node.cpu_milli, 0);
  // What there is rounds down, what is asked for rounds up.
  node.memory_mb = input.integer("mem_bytes", node.memory_mb * kBytesPerMb, 0) / kBytesPerMb;
  if (const auto labels = input.object("labels")) {
    json::Value child = labels->first();
    for (uint32_t i = 0; i < labels->size(); ++i, child = child.next())
      node.labels.emplace_back(std::string(child.key()), std::string(child.text()));
    std::sort(node.labels.begin(), node.labels.end());
  }
  return node;
}

ScenarioQueue read_queue(JsonInput& input) {
  ScenarioQueue queue;
  queue.name = input.text("name");
  queue.parent = input.text("parent");
  queue.deserved = micro_bound(input, "deserved_gpus");
  queue.limit = micro_bound(input, "limit_gpus");
  queue.weight = input.integer("weight", 0, 0);
  queue.priority = input.integer("priority", queue.priority);
  queue.created_order = input.integer("created_order", 0);
  queue.deserved_cpu_milli = bound(input, "deserved_cpu_milli");
  queue.limit_cpu_milli = bound(input, "limit_cpu_milli");
  queue.deserved_memory_mb = bound(input, "deserved_mem_mb");
  queue.limit_memory_mb = bound(input, "limit_mem_mb");
  return queue;
}

ScenarioTask read_task(JsonInput& input) {
  ScenarioTask task;
  task.id = input.text("id");
  task.whole = input.integer("gpus", 0, 0, kGpusPerNodeMax);
  task.fraction = input.micro("fraction", 0);
  task.memory_mib = input.integer("memory_mib", 0, 0);
  task.devices = input.integer("devices", 1, 1, kGpusPerNodeMax);
  task.state = choice(input, "state", ScenarioStatus::pending);
  task.node = input.text("node");
  task.devices_held = input.texts("gpu");
  task.subgroup = input.text("subgroup");
  task.priority = input.integer("task_priority", 0);
  if (input.has("allowed_nodes")) task.allowed_nodes = input.texts("allowed_nodes");
  return task;
}

ScenarioSubgroup read_subgroup(JsonInput& input) {
  ScenarioSubgroup group;
  group.name = input.text("name");
  group.parent = input.text("parent");
  group.is_group = input.text("kind") == "group";
  group.min_members = input.integer("min_members", 0, 0);
  if (input.has("min_subgroups")) group.min_subgroups = input.integer("min_subgroups", 0, 0);
  group.topology = read_wish(input);
  return group;
}

template <class Type, class Read>
std::vector<Type> read_list(JsonInput& parent, std::string_view name, Read read) {
  std::vector<Type> result;
  for (const json::Value& element : parent.list(name)) {
    JsonInput input(element, std::string(name) + "[" + std::to_string(result.size()) + "]");
    result.push_back(read(input));
    input.finish();
    parent.adopt(input);
    if (result.size() > kNodesMax) {
      parent.problem("\"" + std::string(name) + "\" is longer than " + std::to_string(kNodesMax));
      break;
    }
  }
  return result;
}

ScenarioJob read_job(JsonInput& input) {
  ScenarioJob job;
  job.name = input.text("name");
  job.queue = input.text("queue");
  job.priority = input.integer("priority", job.priority);
  job.preemptible = input.flag("preemptible", job.priority < 100);
  job.min_members = input.integer("min_members", 1, 0);
  job.age_seconds = input.micro("age_minutes", 0) * 60 / kMicro;
  job.created_order = input.integer("created_order", 0);
  job.task_cpu_milli = input.integer("task_cpu_milli", job.task_cpu_milli, 0);
  const int64_t bytes = input.integer("task_mem_bytes", job.task_memory_mb * kBytesPerMb, 0);
  job.task_memory_mb = (bytes + kBytesPerMb - 1) / kBytesPerMb;
  job.best_effort = input.flag("best_effort", false);
  job.subgroups = read_list<ScenarioSubgroup>(input, "subgroups", read_subgroup);
  if (input.has("min_subgroups")) job.min_subgroups = input.integer("min_subgroups", 0, 0);
  job.topology = read_wish(input);
  job.preemption_delay_s = input.integer("preemption_delay_s", 0);
  job.stale_for_s = input.integer("stale_for_s", 0);
  if (input.has("staleness_grace_s")) job.staleness_grace_s = input.integer("staleness_grace_s", 0);
  job.release_never_completes = input.flag("release_never_completes", false);
  job.tasks = read_list<ScenarioTask>(input, "tasks", read_task);
  if (job.tasks.empty()) input.problem("the job has no tasks");
  return job;
}

std::map<std::string, ExpectedStatus> read_statuses(JsonInput& parent, std::string_view name) {
  std::map<std::string, ExpectedStatus> result;
  const auto object = parent.object(name);
  if (!object) return result;
  json::Value child = object->first();
  for (uint32_t i = 0; i < object->size(); ++i, child = child.next()) {
    JsonInput input(child, std::string(name) + "." + std::string(child.key()));
    ExpectedStatus expected;
    expected.status = choice(input, "status", ScenarioStatus::pending);
    expected.node = input.text("node");
    if (input.has("gpus_accepted")) expected.accepted = input.micro("gpus_accepted", 0);
    // A repetition of the request, and a hint that the tables' own harness does not verify.
    for (const auto field : {"gpus", "cpu_milli", "mem_bytes", "gpu_hint"}) input.ignore(field);
    input.finish();
    parent.adopt(input);
    result[std::string(child.key())] = expected;
  }
  return result;
}

std::map<std::string, ExpectedNode> read_expected_nodes(JsonInput& parent) {
  std::map<std::string, ExpectedNode> result;
  const auto object = parent.object("nodes");
  if (!object) return result;
  json::Value child = object->first();
  for (uint32_t i = 0; i < object->size(); ++i, child = child.next()) {
    JsonInput input(child, "nodes." + std::string(child.key()));
    ExpectedNode& node = result[std::string(child.key())];
    for (const auto field : {"idle", "idle_gpus"}) {
      if (input.has(field)) node.idle = input.integer(field, 0);
    }
    for (const auto field : {"releasing", "releasing_gpus"}) {
      if (input.has(field)) node.releasing = input.integer(field, 0);
    }
    input.finish();
    parent.adopt(input);
  }
  return result;
}

Expectation read_expectation(JsonInput& input) {
  Expectation expected;
  expected.jobs = read_statuses(input, "jobs");
  expected.tasks = read_statuses(input, "tasks");
  expected.nodes = read_expected_nodes(input);
  if (const auto calls = input.object("max_calls_per_round")) {
    JsonInput limits(*calls, "max_calls_per_round");
    if (limits.has("binds")) expected.binds_max = limits.integer("binds", 0);
    if (limits.has("evictions")) expected.evictions_max = limits.integer("evictions", 0);
    if (limits.has("pipelines")) expected.pipelines_max = limits.integer("pipelines", 0);
    limits.finish();
    input.adopt(limits);
  }
  return expected;
}

ScenarioTopology read_topology(JsonInput& input) {
  ScenarioTopology topology;
  topology.name = input.text("name");
  topology.levels = input.texts("levels");
  return topology;
}

std::string read_plugin(JsonInput& input) {
  std::string plugin = input.text("name");
  if (const auto arguments = input.object("args")) {
    JsonInput given(*arguments);
    const std::string strategy = given.text("gpu");
    if (!strategy.empty()) plugin += "=" + strategy;
  }
  return plugin;
}

void read_expected(JsonInput& input, Scenario& scenario) {
  std::optional<json::Value> value = input.object("expected");
  if (const auto rejected = input.object("rejected")) {
    JsonInput reason(*rejected, "rejected");
    if (const auto preferred = reason.object("preferred")) value = preferred;
  }
  if (!value) return input.problem("\"expected\" is missing");
  JsonInput expected(*value, "expected");
  scenario.expected = read_expectation(expected);
  expected.finish();
  input.adopt(expected);
}

}  // namespace

Result<Scenario> read_scenario(json::Value value) {
  JsonInput input(value);
  Scenario scenario;
  scenario.id = input.text("id");
  for (const auto field : {"source", "test", "tier"}) input.ignore(field);
  scenario.action = choice(input, "action", ScenarioAction::integration);
  scenario.features = input.texts("features");
  scenario.has_plugins = input.has("plugins");
  scenario.plugins = read_list<std::string>(input, "plugins", read_plugin);
  if (const auto rounds = input.object("rounds")) {
    JsonInput counts(*rounds, "rounds");
    scenario.rounds_until_match = counts.integer("until_match", 1, 1, 1000);
    scenario.rounds_after_match = counts.integer("after_match", 0, 0, 1000);
    input.adopt(counts);
  }
  if (input.has("staleness_grace_s")) scenario.staleness_grace_s = input.integer("staleness_grace_s", 0);
  scenario.topologies = read_list<ScenarioTopology>(input, "topologies", read_topology);
  scenario.nodes = read_list<ScenarioNode>(input, "nodes", read_node);
  scenario.queues = read_list<ScenarioQueue>(input, "queues", read_queue);
  scenario.jobs = read_list<ScenarioJob>(input, "jobs", read_job);
  for (const json::Value& group : input.list("interchangeable_nodes")) {
    std::vector<std::string> names;
    json::Value child = group.first();
    for (uint32_t i = 0; i < group.size(); ++i, child = child.next()) names.emplace_back(child.text());
    scenario.interchangeable_nodes.push_back(std::move(names));
  }
  read_expected(input, scenario);
  input.finish();
  if (!input.problem().empty()) return fail(ErrorCode::corrupt, scenario.id + ": " + input.problem());
  return scenario;
}

}  // namespace tranche::replay
