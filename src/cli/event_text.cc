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

// Enough of a UUID to tell the GPUs of a machine apart.
std::string short_uuid(std::string_view uuid) {
  constexpr size_t kBytes = std::string_view("GPU-01234567").size();
  return printable(uuid.substr(0, kBytes));
}

std::string name(std::string_view text) { return printable(text); }

// One overload a kind: what happened, without its kind's name.
std::string text_of(const PolicyChanged& event, const GpuNames&) {
  const size_t queues = event.policy.queues.size();
  return std::to_string(queues) + (queues == 1 ? " queue" : " queues");
}
std::string text_of(const NodeAdded& event, const GpuNames&) { return name(event.node.name); }
std::string text_of(const NodeRemoved& event, const GpuNames&) {
  return "node " + std::to_string(event.node.value());
}
std::string text_of(const GpuAdded& event, const GpuNames&) {
  return "GPU " + std::to_string(event.gpu.index) + " (id " + std::to_string(event.gpu.id.value()) + ") " +
         name(event.gpu.type) + " " + name(event.gpu.uuid) + " " + format_memory(event.gpu.memory_usable);
}
std::string text_of(const GpuRemoved& event, const GpuNames& gpus) { return gpus.name_of(event.gpu); }
std::string text_of(const HealthChanged& event, const GpuNames& gpus) {
  return gpus.name_of(event.gpu) + " " + std::string(to_string(event.health)) + " " + name(event.reason);
}
std::string text_of(const GpuFaulted& event, const GpuNames& gpus) {
  std::string jobs;
  for (const JobId job : event.jobs) jobs += " " + job_of(job);
  return gpus.name_of(event.gpu) + " XID " + std::to_string(event.xid) + jobs;
}
std::string text_of(const GpuDrained& event, const GpuNames& gpus) {
  return gpus.name_of(event.gpu) + " by " + name(event.by) + ": " + name(event.reason);
}
std::string text_of(const GpuUndrained& event, const GpuNames& gpus) {
  return gpus.name_of(event.gpu) + " by " + name(event.by);
}
std::string text_of(const Tick&, const GpuNames&) { return {}; }
std::string text_of(const WallClockStepped& event, const GpuNames&) {
  return std::to_string(event.by.count()) + "ns";
}
std::string text_of(const JobSubmitted& event, const GpuNames&) {
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
// "job 7 by ada", "jobs 7-9 by ada".
template <class Change>
std::string change_text(const Change& event) {
  if (event.more == 0) return job_of(event.job) + " by " + name(event.by);
  const uint64_t first = event.job.value();
  return "jobs " + std::to_string(first) + "-" + std::to_string(first + event.more) + " by " + name(event.by);
}
std::string text_of(const JobCancelled& event, const GpuNames&) { return change_text(event); }
std::string text_of(const JobHeld& event, const GpuNames&) { return change_text(event); }
std::string text_of(const JobReleased& event, const GpuNames&) { return change_text(event); }
std::string text_of(const JobUpdated& event, const GpuNames&) {
  std::string text = job_of(event.job) + " by " + name(event.by);
  if (event.time_limit) text += ", limit " + format_duration(*event.time_limit);
  if (event.grace) text += ", grace " + format_duration(*event.grace);
  if (event.priority) text += ", priority " + std::to_string(*event.priority);
  if (event.begin) text += ", not before " + format_time(*event.begin);
  if (event.dependencies) text += ", after " + std::to_string(event.dependencies->size()) + " others";
  if (event.gpu_memory != MiB()) text += ", GPU memory " + format_memory(event.gpu_memory);
  if (event.gpu_memory_limit != MiB()) text += ".." + format_memory(event.gpu_memory_limit);
  if (!event.name_hash.empty()) text += ", another name";
  if (event.first) text += ", first of its queue";
  return text;
}
std::string text_of(const JobRequeued& event, const GpuNames&) {
  return job_of(event.job) + " by " + name(event.by);
}
std::string text_of(const TaskStarted& event, const GpuNames&) { return task_of(event.task); }
std::string text_of(const TaskStartFailed& event, const GpuNames&) {
  return task_of(event.task) + (event.retry ? ", will be tried again: " : ": ") + name(event.reason);
}
std::string text_of(const TaskExited& event, const GpuNames&) {
  std::string text = task_of(event.task) + " " + std::string(to_string(event.cause));
  if (event.signal > 0) return text + ", signal " + std::to_string(event.signal);
  return text + ", code " + std::to_string(event.code);
}
std::string text_of(const SliceReleased& event, const GpuNames& gpus) {
  return task_of(event.task) + " " + gpus.name_of(event.gpu);
}

std::string text_of(const Start& decision, const GpuNames& gpus) {
  std::string text = task_of(decision.task);
  for (const Slice& slice : decision.slices) {
    text += ", " + gpus.name_of(slice.gpu);
    if (slice.kind != SliceKind::whole) {
      text += " " + format_thousandths(slice.compute.count()) + " " + format_memory(slice.memory);
    }
  }
  return text;
}
std::string text_of(const Stop& decision, const GpuNames&) {
  std::string text = task_of(decision.task) + " " + std::string(to_string(decision.reason));
  if (decision.beneficiary.is_set()) text += " for " + job_of(decision.beneficiary);
  return text;
}
std::string text_of(const End& decision, const GpuNames&) {
  return job_of(decision.job) + " " + std::string(to_string(decision.state));
}
std::string text_of(const Requeue& decision, const GpuNames&) {
  return job_of(decision.job) + " attempt " + std::to_string(decision.attempt) + " " +
         std::string(to_string(decision.reason)) +
         (decision.begin.is_set() ? ", not before " + format_time(decision.begin) : "");
}
std::string text_of(const WakeAt& decision, const GpuNames&) { return format_time(decision.time); }

std::string described(const auto& variant, const GpuNames& gpus) {
  return std::visit([&](const auto& value) { return text_of(value, gpus); }, variant);
}

}  // namespace

void GpuNames::learn(const JournalRow& row) {
  const auto* added = std::get_if<GpuAdded>(&row.event.payload);
  if (added == nullptr) return;
  names_[added->gpu.id] =
      "GPU " + std::to_string(added->gpu.index) + " (" + short_uuid(added->gpu.uuid) + ")";
}

std::string GpuNames::name_of(GpuId gpu) const {
  const auto found = names_.find(gpu);
  return found != names_.end() ? found->second : "GPU id " + std::to_string(gpu.value());
}

std::string event_text(const JournalRow& row, GpuNames& gpus) {
  gpus.learn(row);
  const Event& event = row.event;
  std::string text = format_time(event.time) + " " + std::to_string(event.seq.value()) + " " +
                     std::string(event_kind(event.payload));
  const std::string what = described(event.payload, gpus);
  if (!what.empty()) text += " " + what;
  text += "\n";
  for (const Decision& decision : row.decisions) {
    text += "    -> " + std::string(decision_kind(decision)) + " " + described(decision, gpus) + "\n";
  }
  return text;
}

}  // namespace tranche::cli
