#include "scheduler/check.h"

#include <algorithm>
#include <map>

#include "base/quantity_text.h"
#include "scheduler/gang.h"
#include "scheduler/task_step.h"
#include "scheduler/text.h"

namespace tranche::scheduler {
namespace {

MilliGpu least_charge(const State& state, const JobSpec& spec);

// "4 GPUs of type h100-80 and 2 GPUs of type t4".
std::string installed_text(const Capacity& idle) {
  std::map<std::string, int64_t> counts;
  for (const NodeRoom& home : idle.nodes()) {
    for (const GpuRoom& room : home.gpus) {
      if (home.present && room.installed) ++counts[idle.type_name(room.type)];
    }
  }
  if (counts.empty()) return "no GPU";
  std::vector<std::string> parts;
  for (const auto& [type, count] : counts) parts.push_back(counted(count, "GPU") + " of type " + type);
  return listed(parts, 8);
}

// "is 1 GPU of type t4", "are 4 GPUs of type h100-80".
std::string is_installed(const Capacity& idle) {
  const std::string what = installed_text(idle);
  return (what.starts_with("1 ") || what.starts_with("no ") ? "is " : "are ") + what;
}

// What tasks without GPUs share: "2 CPUs and 16G of memory".
std::string host_text(const Capacity& idle) {
  MilliCpu cpu;
  MiB memory;
  for (const NodeRoom& home : idle.nodes()) {
    cpu += home.cpu;
    memory += home.memory;
  }
  return format_thousandths(cpu.count()) + (cpu.count() == 1000 ? " CPU" : " CPUs") + " and " +
         format_memory(memory) + " of memory";
}

std::string installed_types(const Capacity& idle) {
  std::vector<std::string> types;
  for (const NodeRoom& home : idle.nodes()) {
    for (const GpuRoom& room : home.gpus) {
      const std::string& type = idle.type_name(room.type);
      if (room.installed && std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
  }
  std::sort(types.begin(), types.end());
  return types.empty() ? "none" : listed(types, 8);
}

Result<void> check_queue(const State& state, const JobSpec& spec) {
  const std::string& path = spec.queue;
  const size_t slash = path.rfind('/');
  const bool is_user_leaf = slash != std::string::npos && path.substr(slash + 1) == spec.owner.user &&
                            state.queues.is_known(path.substr(0, slash));
  if (is_user_leaf) return {};
  if (const auto found = state.queues.find(path); found && state.queues.is_known(path)) {
    const auto& children = state.queues.at(*found).children;
    const bool is_leaf = std::none_of(children.begin(), children.end(),
                                      [&](QueueIndex child) { return state.queues.at(child).configured; });
    if (is_leaf) return {};
    return fail(ErrorCode::not_found, "queue '" + path + "' has queues below it; name one of those");
  }
  const std::string asked =
      slash != std::string::npos && path.substr(slash + 1) == spec.owner.user ? path.substr(0, slash) : path;
  std::vector<std::pair<size_t, std::string>> near;
  for (QueueIndex i = 1; i < state.queues.size(); ++i) {
    const Queue& queue = state.queues.at(i);
    if (queue.configured) near.push_back({edit_distance(asked, queue.path), queue.path});
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < near.size() && i < 3; ++i) names.push_back("'" + near[i].second + "'");
  return fail(ErrorCode::not_found, "there is no queue '" + asked + "'; the nearest are " + listed(names));
}

Result<void> check_user_and_time(const State& state, const JobSpec& spec, size_t count) {
  const auto user = state.jobs_of_user.find(spec.owner.uid);
  const uint64_t live = user == state.jobs_of_user.end() ? 0 : user->second;
  if (live + count > state.policy.jobs_per_user_max) {
    return fail(ErrorCode::over_limit, "you have " + counted(static_cast<int64_t>(live), "live job") +
                                           " and may have " + std::to_string(state.policy.jobs_per_user_max) +
                                           ", and this would make " + std::to_string(live + count) +
                                           "; wait for some to end, cancel some or submit fewer");
  }
  const Duration most = state.policy.for_class(spec.job_class).time_limit_max;
  if (spec.time_limit > most) {
    return fail(ErrorCode::over_limit, "a time limit of " + format_duration(spec.time_limit) +
                                           " is above the " + format_duration(most) + " that class " +
                                           std::string(to_string(spec.job_class)) +
                                           " may have; ask for less");
  }
  return {};
}

Result<void> check_dependencies(const State& state, const JobSpec& spec) {
  for (const Dependency& dependency : spec.dependencies) {
    if (state.find(dependency.job) != nullptr || state.ended.state(dependency.job)) continue;
    return fail(ErrorCode::not_found, "job " + std::to_string(dependency.job.value()) +
                                          " of the dependency was never submitted; check its number");
  }
  return {};
}

Result<void> check_limits(const State& state, const JobSpec& spec) {
  const MilliGpu charge = least_charge(state, spec);
  // The leaf may not exist yet: it would get its parent's limit for users.
  std::string_view path = spec.queue;
  while (!path.empty()) {
    const auto found = state.queues.find(path);
    const size_t slash = path.rfind('/');
    const std::string_view parent = slash == std::string_view::npos ? "" : path.substr(0, slash);
    std::optional<MilliGpu> limit;
    std::optional<MilliGpu> quota;
    if (found) {
      limit = state.queues.at(*found).limit;
      quota = state.queues.at(*found).quota;
    } else if (const auto above = state.queues.find(parent)) {
      limit = state.queues.at(*above).user_limit;
    }
    if (limit && charge > *limit) {
      return fail(ErrorCode::over_limit, "the job needs " + gpus_text(charge) + " at once, and queue '" +
                                             std::string(path) + "' may use " + gpus_text(*limit) +
                                             "; ask for less or use another queue");
    }
    if (!spec.preemptible && quota && charge > *quota) {
      return fail(ErrorCode::over_limit, "the job needs " + gpus_text(charge) +
                                             " and cannot be preempted, so it must fit the quota of queue '" +
                                             std::string(path) + "', which is " + gpus_text(*quota) +
                                             "; ask for less or make it preemptible");
    }
    path = parent;
  }
  return {};
}

// One reason after the other is ruled out, so that the sentence names the dimension that fails.
Result<void> check_task(const Shape& shape, const JobSpec& spec, const Capacity& idle) {
  Shape one_whole;
  one_whole.gpu_count = 1;
  one_whole.type = shape.type;
  if (shape.gpu_count > 0 && !shape.type.empty() && choices_for(one_whole, idle).empty()) {
    return fail(ErrorCode::never_fits,
                "there is no GPU of type '" + shape.type + "'; installed types: " + installed_types(idle));
  }
  if (shape.kind != SliceKind::whole && shape.gpu_count > 0) {
    if (shape.compute <= 0 && shape.memory <= 0) {
      return fail(ErrorCode::invalid_argument,
                  "a fraction of a GPU needs compute or memory; ask for -G 0.5 or --gpu-mem 8G");
    }
    if (shape.compute > kWholeGpu.count()) {
      return fail(ErrorCode::never_fits, "a fraction is at most 1 GPU, and the job asks for " +
                                             gpus_text(MilliGpu(shape.compute)) +
                                             "; ask for whole GPUs instead");
    }
    int64_t most = 0;
    for (const NodeRoom& home : idle.nodes()) {
      for (const GpuRoom& room : home.gpus) {
        if (shape.type.empty() || idle.type_name(room.type) == shape.type)
          most = std::max(most, room.memory_usable.count());
      }
    }
    if (shape.memory > most && most > 0) {
      return fail(ErrorCode::never_fits, "the job asks for " + format_memory(MiB(shape.memory)) +
                                             " of one GPU, and the largest has " + format_memory(MiB(most)) +
                                             " usable; ask for less memory");
    }
  }
  Shape gpus_only = shape;
  gpus_only.cpu = 0;
  gpus_only.host_memory = 0;
  gpus_only.pool.clear();
  const View view(idle);
  if (!place_gang(gpus_only, 1, {&view})) {
    const std::string what = shape.type.empty() ? "GPU" : "GPU of type " + shape.type;
    if (gpus_only.topology != GpuTopology::any) {
      gpus_only.topology = GpuTopology::any;
      if (place_gang(gpus_only, 1, {&view})) {
        return fail(ErrorCode::never_fits,
                    "no machine has " + std::to_string(shape.gpu_count) + " x " + what +
                        (shape.topology == GpuTopology::nvlink ? " that are joined by NVLink with each other"
                                                               : " on one NUMA node") +
                        "; ask for fewer, or without that");
      }
    }
    return fail(ErrorCode::never_fits, "a task asks for " + std::to_string(shape.gpu_count) + " x " + what +
                                           " on one machine, and there " + is_installed(idle) +
                                           "; ask for fewer");
  }
  int64_t cpu = 0;
  int64_t memory = 0;
  for (const NodeRoom& home : idle.nodes()) {
    cpu = std::max(cpu, home.cpu.count());
    memory = std::max(memory, home.memory.count());
  }
  if (shape.cpu > cpu) {
    return fail(ErrorCode::never_fits, "a task asks for " + format_thousandths(shape.cpu) +
                                           " CPUs, and the largest machine has " + format_thousandths(cpu) +
                                           "; ask for fewer");
  }
  if (shape.host_memory > memory) {
    return fail(ErrorCode::never_fits, "a task asks for " + format_memory(spec.task.memory) +
                                           " of memory, and the largest machine has " +
                                           format_memory(MiB(memory)) + "; ask for less");
  }
  return {};
}

}  // namespace

const Capacity& IdleMachine::of(const State& state) const {
  if (capacity_ && machine_version_ == state.capacity.machine_version()) return *capacity_;
  machine_version_ = state.capacity.machine_version();
  Capacity idle;
  for (const NodeRoom& home : state.capacity.nodes()) {
    if (home.present) idle.add_node(state.nodes.at(home.id));
  }
  for (const auto& [id, record] : state.gpus) {
    const bool gone = record.removed || record.health == Health::lost;
    if (!gone && idle.node(record.gpu.node) != nullptr) idle.add_gpu(record.gpu);
  }
  capacity_ = std::move(idle);
  return *capacity_;
}

const Capacity& everything_idle(const State& state) { return state.idle_machine.of(state); }

namespace {

Result<void> check_step(const State& state, const JobSpec& spec, const Capacity& capacity) {
  if (std::string problem = check_groups(spec); !problem.empty())
    return fail(ErrorCode::invalid_argument, std::move(problem));
  const View idle(capacity);
  if (first_step_of(state, std::make_shared<const JobSpec>(spec), capacity).place({&idle})) return {};
  return fail(ErrorCode::never_fits,
              "the tasks that the job needs at once do not fit together even when everything is idle: what "
              "they ask for, the nodes that they name and the domains that they must share leave no place; "
              "ask for less or allow more nodes");
}

MilliGpu least_charge(const State& state, const JobSpec& spec) {
  if (is_structured(spec))
    return first_step_of(state, std::make_shared<const JobSpec>(spec), everything_idle(state)).charge();
  const Shape shape = shape_of(spec, state.policy);
  return charge_at_least(shape, everything_idle(state), shape.tasks_min);
}

}  // namespace

Result<void> check_fits(const State& state, const JobSpec& spec) {
  const Capacity& capacity = everything_idle(state);
  const View idle(capacity);
  if (is_structured(spec)) return check_step(state, spec, capacity);
  const Shape shape = shape_of(spec, state.policy);
  if (place_gang(shape, shape.tasks_min, {&idle})) return {};
  TRY(check_task(shape, spec, capacity));
  if (!spec.node_pool.empty()) {
    Shape anywhere = shape;
    anywhere.pool.clear();
    if (place_gang(anywhere, shape.tasks_min, {&idle})) {
      return fail(ErrorCode::never_fits,
                  "node pool '" + spec.node_pool +
                      "' has no room for the job even when it is idle; ask for less or name another pool");
    }
  }
  const uint32_t fitting = tasks_that_fit(shape, shape.tasks_min, {&idle});
  if (fitting == 0) {
    return fail(ErrorCode::never_fits,
                "no machine has the GPUs, CPUs and memory of one task together; there " +
                    is_installed(capacity) + "; ask for less");
  }
  return fail(ErrorCode::never_fits,
              "the job needs " + counted(shape.tasks_min, "task") + " at once, and at most " +
                  std::to_string(fitting) + " fit on what is installed (" +
                  (shape.gpu_count > 0 ? installed_text(capacity) : host_text(capacity)) +
                  "); ask for fewer or smaller tasks");
}

Result<void> check_request(const State& state, const JobSpec& spec) {
  TRY(check_fits(state, spec));
  return check_limits(state, spec);
}

Result<void> check_job(const State& state, const JobSpec& spec, const ArraySpec& array) {
  TRY(check_queue(state, spec));
  TRY(check_request(state, spec));
  TRY(check_user_and_time(state, spec, std::max<size_t>(array.indices.size(), 1)));
  return check_dependencies(state, spec);
}

}  // namespace tranche::scheduler
