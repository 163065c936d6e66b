#include <algorithm>

#include "base/quantity_text.h"
#include "codec/config.h"
#include "gpu/xid_policy.h"
#include "linux/files.h"
#include "linux/process_identity.h"
#include "machine/fences.h"
#include "machine/shares.h"
#include "machine/views.h"
#include "wire/launcher.h"

namespace tranche::machine {
namespace {

// Which job a process on a GPU belongs to, by the cgroup that it was born in: ".../j<job>/t<rank>.<attempt>".
// A task of a personal daemon has no cgroup; it was started with its mark, "<run
// folder>/<job>.<rank>.<attempt>", which only its own user may read.
std::optional<JobId> job_by_mark(int64_t pid) {
  static const std::string kMark = std::string(wire::kTaskMarkVariable) + "=";
  const auto text = read_file("/proc/" + std::to_string(pid) + "/environ", size_t{4} << 20);
  if (!text || !text->starts_with(kMark)) return std::nullopt;
  const std::string mark = text->substr(0, text->find('\0'));
  const std::string name = mark.substr(mark.rfind('/') + 1);
  const auto id = parse_integer(name.substr(0, name.find('.')), 1, INT64_MAX / 2, "job");
  if (!id) return std::nullopt;
  return JobId(static_cast<uint64_t>(*id));
}

std::optional<JobId> job_of_process(int64_t pid) {
  if (const auto marked = job_by_mark(pid)) return marked;
  const auto text = read_file("/proc/" + std::to_string(pid) + "/cgroup", 16 * 1024);
  if (!text) return std::nullopt;
  const size_t unified = text->find("0::");
  if (unified == std::string::npos) return std::nullopt;
  const std::string path = text->substr(unified + 3, text->find('\n', unified) - unified - 3);
  const size_t task = path.rfind("/t");
  const size_t job = path.rfind("/j", task == std::string::npos ? task : task - 1);
  if (task == std::string::npos || job == std::string::npos || path.find("/u") == std::string::npos) {
    return std::nullopt;
  }
  const auto id =
      parse_integer(std::string_view(path).substr(job + 2, task - job - 2), 1, INT64_MAX / 2, "job");
  if (!id) return std::nullopt;
  return JobId(static_cast<uint64_t>(*id));
}

// The sampler learns names a moment after the processes.
std::string user_of(const ViewSource& source, const GpuProcess& process) {
  if (!process.user.empty()) return process.user;
  return process.uid ? source.users.name(*process.uid) : "?";
}

// The job must also be one that holds the GPU, so that a cgroup of the same shape elsewhere claims nothing.
std::optional<JobId> job_on_gpu(int64_t pid, const scheduler::GpuView& view) {
  const auto job = job_of_process(pid);
  if (!job) return std::nullopt;
  const bool holds = std::any_of(view.tasks.begin(), view.tasks.end(),
                                 [&](const TaskKey& task) { return task.job == *job; });
  return holds ? job : std::nullopt;
}

api::SliceRow slice_row(const ViewSource& source, const JobRecord& job, const TaskKey& task,
                        const Slice& slice) {
  api::SliceRow row;
  row.job = job.id;
  row.display = job.display();
  row.user = job.spec->owner.user;
  row.kind = slice.kind;
  row.compute = slice.compute;
  row.memory = slice.memory;
  row.tier = slice_tier(source, task, slice);
  if (slice.kind != SliceKind::fraction) return row;
  const MiB limit = job.spec->task.gpu.memory_limit;
  if (limit > slice.memory) row.memory_limit = limit;
  const Gpu* gpu = source.gpus.find(slice.gpu);
  const ShareUsage* usage =
      source.shares == nullptr || gpu == nullptr ? nullptr : source.shares->find(task, *gpu);
  if (usage == nullptr) return row;
  row.memory_charged = MiB(static_cast<int64_t>((usage->charged + (1 << 20) - 1) >> 20));
  row.processes = usage->processes;
  return row;
}

std::vector<api::SliceRow> slices_on(const ViewSource& source, const scheduler::GpuView& view) {
  std::vector<api::SliceRow> rows;
  for (const TaskKey& key : view.tasks) {
    const JobRecord* job = source.engine.jobs().find(key.job);
    if (job == nullptr) continue;
    for (const TaskEntry& task : job->tasks) {
      if (task.key != key) continue;
      for (const Slice& slice : task.slices) {
        if (slice.gpu != view.gpu->id) continue;
        rows.push_back(slice_row(source, *job, key, slice));
      }
    }
  }
  return rows;
}

void add_reading(const ViewSource& source, const scheduler::GpuView& view, api::GpuStatus& status) {
  const GpuStatus* live = source.gpus.host().status(view.gpu->index);
  if (live != nullptr) status.let_go = live->let_go;
  if (live == nullptr || !live->reading) return;
  const GpuReading& reading = *live->reading;
  status.sample_age = std::max(Duration{}, source.clock.since_boot() - reading.taken_at);
  // What a GPU showed before it was lost says nothing of now.
  constexpr Duration kStale = 2 * kMinute;
  if (live->health == Health::lost || *status.sample_age > kStale) return;
  status.memory_used = reading.memory_used;
  status.utilisation_percent = reading.utilisation_percent;
  if (reading.temperature_celsius)
    status.temperature_celsius = static_cast<int32_t>(*reading.temperature_celsius);
  if (reading.power_milliwatts) status.power_milliwatts = *reading.power_milliwatts;
  if (!reading.processes) return;
  for (const GpuProcess& process : *reading.processes) {
    if (!process_exists(process)) continue;
    status.processes.push_back(
        {process.pid, user_of(source, process), process.memory, job_on_gpu(process.pid, view)});
  }
}

void add_description(const DiscoveredGpu& found, api::GpuStatus& status) {
  if (found.numa_node >= 0) status.numa_node = found.numa_node;
  status.cpu_affinity = found.cpu_affinity;
  for (const PeerLink& link : found.links) status.links.push_back({link.peer, link.kind});
  status.whole_only = found.virtual_guest;
  status.mig_enabled = found.mig_enabled;
  for (const MigDevice& device : found.mig_devices) {
    status.mig_devices.push_back(
        {device.uuid, device.gpu_instance, device.compute_instance, device.multiprocessors, device.memory});
  }
}

void add_faults(const ViewSource& source, GpuId id, api::GpuStatus& status) {
  for (const RecordedFault& fault : source.engine.faults().of(id)) {
    const Duration age = std::max(Duration{}, source.engine.now() - fault.time);
    std::vector<std::string> displays;
    for (const JobId job : fault.jobs) displays.push_back(source.engine.jobs().display(job));
    status.faults.push_back({age, fault.xid, xid_rule(fault.xid).class_of == XidClass::job,
                             xid_reason(fault.xid), fault.jobs, std::move(displays)});
  }
}

std::string arithmetic_of(const QueueShare& share) {
  std::string text = share.has_quota ? "quota " + format_gpus(share.quota) : "no quota";
  text += ", weight " + std::to_string(share.weight);
  if (share.has_limit) text += ", limit " + format_gpus(share.limit);
  text += ": asks for " + format_gpus(share.demand) + ", is entitled to " + format_gpus(share.fair_share) +
          " now and uses " + format_gpus(share.used);
  if (share.usage_milli_gpu_hours > 0) {
    text += "; past use " + format_thousandths(share.usage_milli_gpu_hours) + " GPU hours, decayed";
  }
  const auto add_host = [&](const std::string& used, const std::string& quota, const std::string& limit) {
    if (quota.empty() && limit.empty()) return;
    text += "; of the machine it uses " + used;
    if (!quota.empty()) text += ", its quota is " + quota;
    if (!limit.empty()) text += ", its limit is " + limit;
  };
  const auto cpus = [](const std::optional<MilliCpu>& amount) {
    return amount ? format_thousandths(amount->count()) + " CPUs" : std::string();
  };
  const auto memory = [](const std::optional<MiB>& amount) {
    return amount ? format_memory(*amount) + " of memory" : std::string();
  };
  add_host(cpus(share.used_cpu), cpus(share.quota_cpu), cpus(share.limit_cpu));
  add_host(memory(share.used_memory), memory(share.quota_memory), memory(share.limit_memory));
  return text;
}

}  // namespace

bool process_exists(const GpuProcess& process) {
  const auto ticks = process_start_ticks(process.pid);
  return ticks && (!process.start_ticks || *process.start_ticks == *ticks);
}

api::Tier slice_tier(const ViewSource& source, const TaskKey& task, const Slice& slice) {
  if (slice.kind != SliceKind::fraction) return source.fence.whole;
  const Gpu* gpu = source.gpus.find(slice.gpu);
  if (gpu == nullptr) return source.fence.tier;
  const ShareUsage* usage = source.shares == nullptr ? nullptr : source.shares->find(task, *gpu);
  if (usage != nullptr && usage->held_by_driver) return api::Tier::enforced;
  // What the driver does not hold for this very task, or is not known to, is no better than guarded.
  return std::max(source.fence.tier, api::Tier::guarded);
}

MiB held_outside_of_jobs(GpuManager& gpus, const scheduler::GpuView& view) {
  MiB held;
  const GpuStatus* status = gpus.host().status(view.gpu->index);
  if (status == nullptr || !status->reading || !status->reading->processes) return held;
  for (const GpuProcess& process : *status->reading->processes) {
    if (process.memory && process_exists(process) && !job_on_gpu(process.pid, view)) held += *process.memory;
  }
  return held;
}

api::GpuList gpu_list(const ViewSource& source) {
  api::GpuList list;
  for (const scheduler::GpuView& view : source.engine.scheduler().gpus()) {
    api::GpuStatus status;
    status.index = view.gpu->index;
    status.uuid = view.gpu->uuid;
    status.type = view.gpu->type;
    status.name = view.gpu->name;
    const DiscoveredGpu* found = source.gpus.discovered(view.gpu->index);
    status.memory_total = found != nullptr ? found->memory_total : view.gpu->memory_usable;
    status.memory_free_for_slices = view.memory_free;
    status.compute_free = view.compute_free;
    status.health = view.health;
    status.drained = view.drained;
    status.reason = view.reason;
    status.slices = slices_on(source, view);
    if (found != nullptr) add_description(*found, status);
    add_faults(source, view.gpu->id, status);
    add_reading(source, view, status);
    list.gpus.push_back(std::move(status));
  }
  return list;
}

api::ProcessList process_list(const ViewSource& source, const Caller& caller) {
  api::ProcessList list;
  for (const scheduler::GpuView& view : source.engine.scheduler().gpus()) {
    const GpuStatus* live = source.gpus.host().status(view.gpu->index);
    if (live == nullptr || !live->reading || !live->reading->processes) continue;
    for (const GpuProcess& process : *live->reading->processes) {
      if (!process_exists(process)) continue;
      api::ProcessRow row;
      row.gpu = view.gpu->index;
      row.pid = process.pid;
      row.user = user_of(source, process);
      row.uid = process.uid.value_or(UINT32_MAX);
      row.memory = process.memory;
      row.job = job_on_gpu(process.pid, view);
      row.managed = row.job.has_value();
      if (process.uid && caller.may_control(*process.uid)) {
        if (auto command = read_file("/proc/" + std::to_string(process.pid) + "/comm", 64)) {
          row.command = command->substr(0, command->find('\n'));
        }
      }
      list.processes.push_back(std::move(row));
    }
  }
  return list;
}

api::QueueList queue_list(const ViewSource& source, bool with_arithmetic) {
  api::QueueList list;
  for (QueueShare& share : source.engine.scheduler().shares()) {
    api::QueueRow row;
    if (with_arithmetic) row.arithmetic = arithmetic_of(share);
    static_cast<QueueShare&>(row) = std::move(share);
    list.queues.push_back(std::move(row));
  }
  return list;
}

}  // namespace tranche::machine
