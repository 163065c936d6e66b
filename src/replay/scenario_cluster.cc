#include "replay/scenario_cluster.h"

#include <algorithm>
#include <set>

#include "base/quantity_text.h"
#include "replay/json_input.h"
#include "replay/scenario_parts.h"

namespace tranche::replay {
namespace {

constexpr uint32_t kOwner = 1000;
constexpr int64_t kMicroPerMilli = kMicro / 1000;

MilliGpu milli_of(int64_t micro) { return MilliGpu((micro + kMicroPerMilli / 2) / kMicroPerMilli); }

std::string gpu_type(const ScenarioNode& node) {
  return node.gpu_memory_mib == 100 ? "gpu" : "gpu-" + std::to_string(node.gpu_memory_mib);
}

// The GPUs of one node while the tasks of the start are put on them.
struct Devices {
  std::vector<GpuId> ids;
  std::map<std::string, size_t> by_label;
  std::vector<bool> taken;  // has a label, or belongs to a whole task or to one alone
  int64_t memory_mib = 0;

  std::optional<size_t> take_free() {
    for (size_t i = 0; i < taken.size(); ++i) {
      if (taken[i]) continue;
      taken[i] = true;
      return i;
    }
    return std::nullopt;
  }
  std::optional<size_t> take_label(const std::string& label) {
    const auto found = by_label.find(label);
    if (found != by_label.end()) return found->second;
    // A label that is a free device's number means that device.
    size_t wanted = taken.size();
    if (!label.empty() && label.size() < 4 && label.find_first_not_of("0123456789") == std::string::npos)
      wanted = static_cast<size_t>(std::stoul(label));
    std::optional<size_t> device;
    if (wanted < taken.size() && !taken[wanted]) {
      taken[wanted] = true;
      device = wanted;
    } else {
      device = take_free();
    }
    if (device) by_label[label] = *device;
    return device;
  }
};

Slice slice_of(const ScenarioTask& task, GpuId gpu, int64_t gpu_memory_mib) {
  if (!task.is_shared()) return {gpu, SliceKind::whole, kWholeGpu, MiB(gpu_memory_mib)};
  Slice slice{gpu, SliceKind::fraction, {}, {}};
  if (task.fraction > 0) {
    slice.compute = milli_of(task.fraction);
    slice.memory = MiB(gpu_memory_mib * slice.compute.count() / kWholeGpu.count());
  } else {
    slice.memory = MiB(task.memory_mib);
    slice.compute = MilliGpu((task.memory_mib * kWholeGpu.count() + gpu_memory_mib - 1) / gpu_memory_mib);
  }
  return slice;
}

}  // namespace

Result<ScenarioCluster> ScenarioCluster::build(const Scenario& scenario, Policy base) {
  ScenarioCluster cluster;
  cluster.policy = std::move(base);
  cluster.set_policy(scenario);
  TRY(cluster.add_queues(scenario));
  cluster.add_nodes(scenario);
  TRY(cluster.add_jobs(scenario));
  TRY(cluster.place(scenario));
  return cluster;
}

std::string ScenarioCluster::node_name(NodeId id) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return node.id == id; });
  return found == nodes.end() ? "" : found->name;
}

// Of the single actions, those that must not be followed by others in what the table expects.
void ScenarioCluster::set_policy(const Scenario& scenario) {
  switch (scenario.action) {
    case ScenarioAction::allocate:
      policy.only_action = SchedulerAction::allocate;
      break;
    case ScenarioAction::consolidation:
      policy.only_action = SchedulerAction::consolidate;
      break;
    case ScenarioAction::reclaim:
      policy.only_action = SchedulerAction::reclaim;
      break;
    case ScenarioAction::preempt:
      policy.only_action = SchedulerAction::preempt;
      break;
    case ScenarioAction::stalegangeviction:
      policy.only_action = SchedulerAction::stale_gang;
      break;
    case ScenarioAction::integration:
      break;
  }
  for (const ScenarioTopology& topology : scenario.topologies) {
    for (const std::string& level : topology.levels) {
      auto& levels = policy.topology_levels;
      if (std::find(levels.begin(), levels.end(), level) == levels.end()) levels.push_back(level);
    }
  }
  for (const std::string& plugin : scenario.plugins) {
    if (plugin == "gpuspread") policy.gpu_placement = PlacementStrategy::spread;
    if (plugin == "nodeplacement=spread") policy.placement = PlacementStrategy::spread;
  }
}

Result<void> ScenarioCluster::add_queues(const Scenario& scenario) {
  // Parents first, however the table lists them.
  std::vector<const ScenarioQueue*> open;
  for (const ScenarioQueue& queue : scenario.queues) open.push_back(&queue);
  while (!open.empty()) {
    const size_t before = open.size();
    for (const ScenarioQueue*& queue : open) {
      if (!queue->parent.empty() && !queue_paths.contains(queue->parent)) continue;
      const std::string above = queue->parent.empty() ? "" : queue_paths.at(queue->parent) + "/";
      // Padded, so that paths sort as the queues were made; names themselves decide nothing.
      const std::string number = std::to_string(10'000 + queue_paths.size());
      queue_paths[queue->name] = above + "q" + number;
      QueuePolicy made;
      made.path = queue_paths[queue->name];
      // Without that part of the upstream scheduler its queues bound nothing.
      const bool is_bounded =
          !scenario.has_plugins ||
          std::find(scenario.plugins.begin(), scenario.plugins.end(), "proportion") != scenario.plugins.end();
      if (!is_bounded) {
        policy.queues.push_back(std::move(made));
        queue = nullptr;
        continue;
      }
      if (queue->deserved) made.quota = milli_of(*queue->deserved);
      if (queue->limit) made.limit = milli_of(*queue->limit);
      made.weight = queue->weight;
      if (queue->deserved_cpu_milli) made.quota_cpu = MilliCpu(*queue->deserved_cpu_milli);
      if (queue->limit_cpu_milli) made.limit_cpu = MilliCpu(*queue->limit_cpu_milli);
      if (queue->deserved_memory_mb) made.quota_memory = MiB(*queue->deserved_memory_mb);
      if (queue->limit_memory_mb) made.limit_memory = MiB(*queue->limit_memory_mb);
      made.priority = static_cast<int32_t>(queue->priority);
      policy.queues.push_back(std::move(made));
      queue = nullptr;
    }
    std::erase(open, nullptr);
    if (open.size() == before)
      return fail(ErrorCode::corrupt, "a queue has a parent that is not in the table");
  }
  std::sort(policy.queues.begin(), policy.queues.end(),
            [](const QueuePolicy& a, const QueuePolicy& b) { return a.path < b.path; });
  return {};
}

void ScenarioCluster::add_nodes(const Scenario& scenario) {
  for (const ScenarioNode& listed : scenario.nodes) {
    Node node;
    node.id = NodeId(static_cast<uint32_t>(nodes.size() + 1));
    node.name = listed.name;
    node.cpu = MilliCpu(listed.cpu_milli);
    node.memory = MiB(listed.memory_mb);
    node.labels = listed.labels;
    for (int64_t index = 0; index < listed.gpus; ++index) {
      Gpu gpu;
      gpu.id = GpuId(static_cast<uint32_t>(gpus.size() + 1));
      gpu.node = node.id;
      gpu.uuid = "GPU-" + std::to_string(gpus.size() + 1);
      gpu.index = static_cast<uint32_t>(index);
      gpu.type = gpu_type(listed);
      gpu.memory_usable = MiB(listed.gpu_memory_mib);
      gpus.push_back(std::move(gpu));
    }
    nodes.push_back(std::move(node));
  }
}

Result<void> ScenarioCluster::add_jobs(const Scenario& scenario) {
  std::vector<size_t> order(scenario.jobs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return scenario.jobs[a].created_order < scenario.jobs[b].created_order;
  });
  Time last;
  for (const size_t index : order) {
    const ScenarioJob& listed = scenario.jobs[index];
    if (!queue_paths.contains(listed.queue))
      return fail(ErrorCode::corrupt, "job " + listed.name + " is in no queue");
    PlacedJob job;
    job.job = index;
    job.id = JobId(jobs.size() + 1);
    job.submitted =
        std::max(last + kNanosecond, kScenarioStart - Duration(listed.age_seconds * kSecond.count()));
    last = job.submitted;
    JobSpec& spec = job.spec;
    spec.owner = {kOwner, kOwner, "tables"};
    spec.queue = queue_paths.at(listed.queue);
    spec.priority = static_cast<int32_t>(listed.priority);
    spec.preemptible = listed.preemptible;
    spec.time_limit = kDay;
    const int64_t grace = listed.staleness_grace_s.value_or(scenario.staleness_grace_s.value_or(60));
    spec.gang_grace = grace < 0 ? kDurationMax : Duration(grace * kSecond.count());
    spec.preemption_delay = Duration(listed.preemption_delay_s * kSecond.count());
    set_parts(listed, job);
    jobs.push_back(std::move(job));
  }
  return {};
}

Result<void> ScenarioCluster::place(const Scenario& scenario) {
  std::map<std::string, Devices> devices;
  for (size_t n = 0; n < scenario.nodes.size(); ++n) {
    Devices& here = devices[scenario.nodes[n].name];
    here.memory_mib = scenario.nodes[n].gpu_memory_mib;
    for (const Gpu& gpu : gpus) {
      if (gpu.node == nodes[n].id) here.ids.push_back(gpu.id);
    }
    here.taken.resize(here.ids.size());
  }
  // Labelled devices first: whole tasks take what is left.
  for (const bool labelled : {true, false}) {
    for (PlacedJob& job : jobs) {
      const ScenarioJob& listed = scenario.jobs[job.job];
      for (PlacedTask& placed : job.ranks) {
        const ScenarioTask& task = listed.tasks[placed.task];
        if (task.node.empty() || task.devices_held.empty() == labelled) continue;
        const auto found = devices.find(task.node);
        if (found == devices.end())
          return fail(ErrorCode::corrupt, "task " + task.id + " is on no node of the table");
        for (const Node& node : nodes) {
          if (node.name == task.node) placed.node = node.id;
        }
        const int64_t count = task.is_shared() ? task.devices : task.whole;
        for (int64_t i = 0; i < count; ++i) {
          const bool has_label = i < static_cast<int64_t>(task.devices_held.size());
          const auto device = has_label ? found->second.take_label(task.devices_held[static_cast<size_t>(i)])
                                        : found->second.take_free();
          if (!device)
            return fail(ErrorCode::corrupt, "node " + task.node + " has no device left for task " + task.id);
          placed.slices.push_back(slice_of(task, found->second.ids[*device], found->second.memory_mib));
        }
        std::sort(placed.slices.begin(), placed.slices.end(),
                  [](const Slice& a, const Slice& b) { return a.gpu < b.gpu; });
      }
    }
  }
  return {};
}

}  // namespace tranche::replay
