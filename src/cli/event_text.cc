#include "cli/event_text.h"

#include "base/quantity_text.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

std::string job_of(JobId job) { return "job " + std::to_string(job.value()); }

std::string task_of(const TaskKey& task) {
  std::string text = job_of(task.job);
  if (task.rank > 0) text += " task " + std::to_string(task.rank);
  if (task.attempt > 1) text += " attempt " + std::to_string(task.attempt);
  return text;
}

std::string gpu_of(GpuId gpu) { return "GPU " + std::to_string(gpu.value()); }

std::string name(std::string_view text) { return printable(text); }

// One overload a kind: what happened, without its kind's name.
std::string text_of(const PolicyChanged& event) {
  return std::to_string(event.policy.queues.size()) + " queues";
}
std::string text_of(const NodeAdded& event) { return name(event.node.name); }
std::string text_of(const NodeRemoved& event) { return "node " + std::to_string(event.node.value()); }
std::string text_of(const GpuAdded& event) {
  return gpu_of(event.gpu.id) + " " + name(event.gpu.type) + " " + name(event.gpu.uuid) + " " +
         format_memory(event.gpu.memory_usable);
}
std::string text_of(const GpuRemoved& event) { return gpu_of(event.gpu); }
std::string text_of(const HealthChanged& event) {
  return gpu_of(event.gpu) + " " + std::string(to_string(event.health)) + " " + name(event.reason);
}
std::string text_of(const GpuDrained& event) {
  return gpu_of(event.gpu) + " by " + name(event.by) + ": " + name(event.reason);
}
std::string text_of(const GpuUndrained& event) { return gpu_of(event.gpu) + " by " + name(event.by); }
std::string text_of(const Tick&) { return {}; }
std::string text_of(const WallClockStepped& event) { return std::to_string(event.by.count()) + "ns"; }
std::string text_of(const JobSubmitted& event) {
  const JobSpec& spec = event.spec;
  std::string text = job_of(event.job) + " " + name(spec.owner.user) + " " + name(spec.queue) + " " +
                     std::string(to_string(spec.job_class));
  const GpuRequest& gpu = spec.task.gpu;
  const bool whole = gpu.kind == SliceKind::whole;
  text += ", GPU " + (whole ? std::to_string(gpu.count) : format_thousandths(gpu.compute.count()));
  if (spec.tasks_max > 1) {
    text += ", tasks " + std::to_string(spec.tasks_min);
    if (spec.tasks_max > spec.tasks_min) text += "-" + std::to_string(spec.tasks_max);
  }
  if (!event.array.indices.empty()) text += ", array of " + std::to_string(event.array.indices.size());
  return text + ", limit " + format_duration(spec.time_limit);
}
std::string text_of(const JobCancelled& event) { return job_of(event.job) + " by " + name(event.by); }
std::string text_of(const JobHeld& event) { return job_of(event.job) + " by " + name(event.by); }
std::string text_of(const JobReleased& event) { return job_of(event.job) + " by " + name(event.by); }
std::string text_of(const TaskStarted& event) { return task_of(event.task); }
std::string text_of(const TaskStartFailed& event) {
  return task_of(event.task) + (event.retry ? ", will be tried again: " : ": ") + name(event.reason);
}
std::string text_of(const TaskExited& event) {
  std::string text = task_of(event.task) + " " + std::string(to_string(event.cause));
  if (event.signal > 0) return text + ", signal " + std::to_string(event.signal);
  return text + ", code " + std::to_string(event.code);
}
std::string text_of(const SliceReleased& event) { return task_of(event.task) + " " + gpu_of(event.gpu); }

std::string text_of(const Start& decision) {
  std::string text = task_of(decision.task);
  for (const Slice& slice : decision.slices) {
    text += ", " + gpu_of(slice.gpu);
    if (slice.kind != SliceKind::whole) {
      text += " " + format_thousandths(slice.compute.count()) + " " + format_memory(slice.memory);
    }
  }
  return text;
}
std::string text_of(const Stop& decision) {
  std::string text = task_of(decision.task) + " " + std::string(to_string(decision.reason));
  if (decision.beneficiary.is_set()) text += " for " + job_of(decision.beneficiary);
  return text;
}
std::string text_of(const End& decision) {
  return job_of(decision.job) + " " + std::string(to_string(decision.state));
}
std::string text_of(const Requeue& decision) {
  return job_of(decision.job) + " attempt " + std::to_string(decision.attempt) + " " +
         std::string(to_string(decision.reason));
}
std::string text_of(const WakeAt& decision) { return format_time(decision.time); }

std::string described(const auto& variant) {
  return std::visit([](const auto& value) { return text_of(value); }, variant);
}

}  // namespace

std::string event_text(const JournalRow& row) {
  const Event& event = row.event;
  std::string text = format_time(event.time) + " " + std::to_string(event.seq.value()) + " " +
                     std::string(event_kind(event.payload));
  const std::string what = described(event.payload);
  if (!what.empty()) text += " " + what;
  text += "\n";
  for (const Decision& decision : row.decisions) {
    text += "    -> " + std::string(decision_kind(decision)) + " " + described(decision) + "\n";
  }
  return text;
}

}  // namespace tranche::cli
