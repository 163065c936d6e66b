// The processes on a GPU: their memory and their share of its time.
//
// Three layouts of the list have existed. The unsuffixed functions fill the first, without instances; _v2
// and _v3 the second. A client that mixes them up sees scrambled process ids, so each has its own code.
#include <string>
#include <string_view>
#include <vector>

#include "emulator/nvml/mig_handles.h"
#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

// Those that the caller can name: one in a PID namespace out of sight has no id here.
std::vector<ProcessReading> visible_processes(const Gpu& gpu) {
  std::vector<ProcessReading> processes = gpu.model.processes(gpu.number);
  std::erase_if(processes, [](const ProcessReading& process) { return process.pid <= 0; });
  return processes;
}

ProcessInfoV1 info_v1(const ProcessReading& process) {
  return {.pid = static_cast<uint32_t>(process.pid), .used_bytes = process.used_bytes};
}
ProcessInfoV2 info_v2(const ProcessReading& process) {
  return {.pid = static_cast<uint32_t>(process.pid),
          .used_bytes = process.used_bytes,
          .gpu_instance = process.gpu_instance,
          .compute_instance = process.compute_instance};
}
ProcessDetail detail(const ProcessReading& process) {
  return {.pid = static_cast<uint32_t>(process.pid),
          .used_bytes = process.used_bytes,
          .gpu_instance = process.gpu_instance,
          .compute_instance = process.compute_instance,
          .used_protected_bytes = 0};
}

bool has_wide_process_list(std::string_view driver_version) {
  constexpr std::string_view kBranch = "535.";
  if (driver_version.substr(0, kBranch.size()) != kBranch) return false;
  uint32_t minor = 0;
  for (const char c : driver_version.substr(kBranch.size())) {
    if (c < '0' || c > '9') break;
    minor = minor * 10 + static_cast<uint32_t>(c - '0');
  }
  return minor >= 43 && minor < 98;
}

template <class Info>
Return compute_processes(Device* device, uint32_t* count, Info* infos, Info (*info)(const ProcessReading&)) {
  const auto list = [&](const Gpu& gpu, const MigDeviceInfo* instance) {
    std::vector<ProcessReading> processes = visible_processes(gpu);
    std::erase_if(processes, [&](const ProcessReading& process) {
      return instance != nullptr && (process.gpu_instance != instance->gpu_instance ||
                                     process.compute_instance != instance->compute_instance);
    });
    return copy_list(count, infos, static_cast<uint32_t>(processes.size()),
                     [&](uint32_t i) { return info(processes[i]); });
  };
  if (is_mig_device(device)) {
    return with_mig_device(device, [&](const Gpu& gpu, const MigDeviceInfo& it) { return list(gpu, &it); });
  }
  return with_gpu(device, [&](const Gpu& gpu) { return list(gpu, nullptr); });
}

// Nothing draws on an emulated GPU.
template <class Info>
Return no_processes(Device* device, uint32_t* count, Info* infos) {
  const Device* const parent = is_mig_device(device) ? device_of_gpu(place_of(device)->gpu) : device;
  return with_gpu(parent,
                  [&](const Gpu&) { return copy_list(count, infos, 0, [](uint32_t) { return Info{}; }); });
}

// On a GPU that is shared as under MPS every process is a client: nvidia-smi shows it as M+C, in both lists.
// There is no process of an MPS server.
template <class Info>
Return mps_processes(Device* device, uint32_t* count, Info* infos, Info (*info)(const ProcessReading&)) {
  if (is_mig_device(device)) return no_processes(device, count, infos);
  return with_gpu(device, [&](const Gpu& gpu) {
    std::vector<ProcessReading> processes;
    if (gpu.model.is_mps(gpu.number)) processes = visible_processes(gpu);
    return copy_list(count, infos, static_cast<uint32_t>(processes.size()),
                     [&](uint32_t i) { return info(processes[i]); });
  });
}

std::vector<ProcessReading> busy_since(const Gpu& gpu, uint64_t last_seen_us) {
  std::vector<ProcessReading> busy =
      gpu.model.busy_processes(gpu.number, monotonic_ns(gpu.model, last_seen_us));
  std::erase_if(busy, [](const ProcessReading& process) { return process.pid <= 0; });
  return busy;
}

// The model's part of memory utilisation that belongs to a process: as its share of the time.
uint32_t memory_percent(const GpuReading& gpu, const ProcessReading& process) {
  if (gpu.utilisation_percent == 0) return 0;
  return gpu.memory_utilisation_percent * process.utilisation_percent / gpu.utilisation_percent;
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetComputeRunningProcesses(Device* device, uint32_t* count,
                                                        ProcessInfoV1* infos) {
  return compute_processes(device, count, infos, info_v1);
}
NVML_EXPORT Return nvmlDeviceGetComputeRunningProcesses_v2(Device* device, uint32_t* count,
                                                           ProcessInfoV2* infos) {
  return compute_processes(device, count, infos, info_v2);
}
// Releases 535.43 to 535.86 wrote the entries of the later detail list here: 8 bytes more each than the
// caller's structure has, so that every second process id is scrambled.
NVML_EXPORT Return nvmlDeviceGetComputeRunningProcesses_v3(Device* device, uint32_t* count,
                                                           ProcessInfoV2* infos) {
  bool is_too_wide = false;
  const Return asked = with_session([&](const Session& session) {
    is_too_wide = has_wide_process_list(session.model().driver_version());
    return Return::success;
  });
  if (asked == Return::success && is_too_wide) {
    return compute_processes(device, count, reinterpret_cast<ProcessDetail*>(infos), detail);
  }
  return compute_processes(device, count, infos, info_v2);
}

NVML_EXPORT Return nvmlDeviceGetGraphicsRunningProcesses(Device* device, uint32_t* count,
                                                         ProcessInfoV1* infos) {
  return no_processes(device, count, infos);
}
NVML_EXPORT Return nvmlDeviceGetGraphicsRunningProcesses_v2(Device* device, uint32_t* count,
                                                            ProcessInfoV2* infos) {
  return no_processes(device, count, infos);
}
NVML_EXPORT Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device* device, uint32_t* count,
                                                            ProcessInfoV2* infos) {
  return no_processes(device, count, infos);
}
NVML_EXPORT Return nvmlDeviceGetMPSComputeRunningProcesses(Device* device, uint32_t* count,
                                                           ProcessInfoV1* infos) {
  return mps_processes(device, count, infos, info_v1);
}
NVML_EXPORT Return nvmlDeviceGetMPSComputeRunningProcesses_v2(Device* device, uint32_t* count,
                                                              ProcessInfoV2* infos) {
  return mps_processes(device, count, infos, info_v2);
}
NVML_EXPORT Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Device* device, uint32_t* count,
                                                              ProcessInfoV2* infos) {
  return mps_processes(device, count, infos, info_v2);
}

NVML_EXPORT Return nvmlDeviceGetRunningProcessDetailList(Device* device, ProcessDetailList* list) {
  constexpr uint32_t kCompute = 0, kMps = 2, kModes = 3;
  return answer_one(device, list, [](const Gpu& gpu, ProcessDetailList& answer) {
    if (answer.version != versioned<ProcessDetailList>(1)) return Return::argument_version_mismatch;
    if (answer.mode >= kModes) return Return::invalid_argument;
    std::vector<ProcessReading> processes;
    const bool lists_all = answer.mode == kCompute || (answer.mode == kMps && gpu.model.is_mps(gpu.number));
    if (lists_all) processes = visible_processes(gpu);
    return copy_list(&answer.count, answer.processes, static_cast<uint32_t>(processes.size()),
                     [&](uint32_t i) { return detail(processes[i]); });
  });
}

// Only processes that were busy after `last_seen_us`, each with its newest period; not_found when none was.
NVML_EXPORT Return nvmlDeviceGetProcessUtilization(Device* device, ProcessUtilizationSample* samples,
                                                   uint32_t* count, uint64_t last_seen_us) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (count == nullptr) return Return::invalid_argument;
    if (gpu.model.mig_enabled(gpu.number)) return Return::not_supported;
    const std::vector<ProcessReading> busy = busy_since(gpu, last_seen_us);
    if (busy.empty()) {
      *count = 0;
      return Return::not_found;
    }
    if (samples == nullptr) *count = 0;
    const GpuReading reading = gpu.read();
    return copy_list(count, samples, static_cast<uint32_t>(busy.size()), [&](uint32_t i) {
      return ProcessUtilizationSample{.pid = static_cast<uint32_t>(busy[i].pid),
                                      .timestamp_us = wall_us(gpu.model, busy[i].sample_time_ns),
                                      .sm = busy[i].utilisation_percent,
                                      .memory = memory_percent(reading, busy[i]),
                                      .encoder = 0,
                                      .decoder = 0};
    });
  });
}

NVML_EXPORT Return nvmlDeviceGetProcessesUtilizationInfo(Device* device, ProcessesUtilization* list) {
  return answer_one(device, list, [](const Gpu& gpu, ProcessesUtilization& answer) {
    if (answer.version != versioned<ProcessesUtilization>(1)) return Return::argument_version_mismatch;
    const std::vector<ProcessReading> busy = busy_since(gpu, answer.last_seen_us);
    if (busy.empty()) {
      answer.count = 0;
      return Return::not_found;
    }
    if (answer.processes == nullptr) answer.count = 0;
    const GpuReading reading = gpu.read();
    return copy_list(&answer.count, answer.processes, static_cast<uint32_t>(busy.size()), [&](uint32_t i) {
      return ProcessUtilizationInfo{.timestamp_us = wall_us(gpu.model, busy[i].sample_time_ns),
                                    .pid = static_cast<uint32_t>(busy[i].pid),
                                    .sm = busy[i].utilisation_percent,
                                    .memory = memory_percent(reading, busy[i]),
                                    .encoder = 0,
                                    .decoder = 0,
                                    .jpeg = 0,
                                    .optical_flow = 0};
    });
  });
}

}  // namespace tranche::emulator::nvml
