#include "gpu/device_reader.h"

#include <unistd.h>

#include <algorithm>

#include "gpu/process_owner.h"
#include "gpu/topology.h"

namespace tranche {

using nvml::Call;
using nvml::Code;

namespace {

constexpr size_t kAffinityMax = sizeof(sampler::Gpu::cpu_affinity) - 1;

// FNV-1a over what tells one layout of a GPU from another.
class Fingerprint {
 public:
  void add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) mix(static_cast<unsigned char>(value >> shift));
  }
  void add(const std::string& text) {
    for (const char c : text) mix(static_cast<unsigned char>(c));
    mix(0);
  }
  uint64_t value() const { return hash_; }

 private:
  void mix(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001B3; }
  uint64_t hash_ = 0xCBF29CE484222325;
};

uint64_t layout_of(nvml::NvmlCaller& nvml, nvml::Device device, uint32_t minor) {
  Fingerprint layout;
  layout.add(minor);
  const auto mig = nvml.mig_mode(device);
  if (mig.ok()) layout.add((mig.value.current ? 1u : 0u) + (mig.value.pending ? 2u : 0u));
  for (uint32_t number = 0; mig.ok() && mig.value.current && number < nvml::kMigDevicesMax; ++number) {
    const auto uuid = nvml.mig_uuid(device, number);
    if (uuid.ok()) layout.add(uuid.value);
    if (!uuid.ok() && uuid.code != Code::not_found) break;
  }
  return layout.value();
}

void describe_place(nvml::NvmlCaller& nvml, nvml::Device device, const ReaderRoots& roots,
                    sampler::Gpu& gpu) {
  const PciPlace place = read_pci_place(roots.sysfs, sampler::field_text(gpu.pci_bus_id));
  const nvml::Answer<uint32_t> node = nvml.numa_node(device);
  // The driver answers its "none" as a huge number.
  if (node.ok() && node.value < 1024) {
    gpu.numa_node = static_cast<int32_t>(node.value);
    gpu.known |= sampler::kKnownNumaNode;
  } else if (place.numa_node) {
    gpu.numa_node = *place.numa_node;
    gpu.known |= sampler::kKnownNumaNode;
  }
  std::string affinity = place.cpu_list;
  if (affinity.empty()) {
    const auto set = nvml.cpu_affinity(device);
    if (set.ok()) affinity = cpu_list(set.value, kAffinityMax);
  }
  sampler::set_field(gpu.cpu_affinity, affinity);
}

void describe_board(nvml::NvmlCaller& nvml, nvml::Device device, sampler::Gpu& gpu) {
  const auto name = nvml.name(device);
  if (name.ok()) sampler::set_field(gpu.name, name.value);
  const auto minor = nvml.minor_number(device);
  if (minor.ok()) {
    gpu.minor = minor.value;
    gpu.known |= sampler::kKnownMinor;
    // Before the rest is asked: what changes while it is described is seen by the first reading.
    gpu.layout = layout_of(nvml, device, minor.value);
  }
  const auto capability = nvml.compute_capability(device);
  if (capability.ok() && capability.value.major > 0 && capability.value.minor >= 0) {
    gpu.compute_major = static_cast<uint32_t>(capability.value.major);
    gpu.compute_minor = static_cast<uint32_t>(capability.value.minor);
    gpu.known |= sampler::kKnownComputeCapability;
  }
  const auto limit = nvml.power_limit_milliwatts(device);
  if (limit.ok()) {
    gpu.power_limit_milliwatts = limit.value;
    gpu.known |= sampler::kKnownPowerLimit;
  }
  const auto mig = nvml.mig_mode(device);
  const bool incapable = mig.code == Code::not_supported || mig.code == Code::function_not_found;
  if (mig.ok() || incapable) gpu.known |= sampler::kKnownMigCapable;
  if (mig.ok()) gpu.known |= sampler::kKnownMig;
  gpu.mig_capable = mig.ok() ? 1 : 0;
  gpu.mig_enabled = mig.ok() && mig.value.current ? 1 : 0;
  gpu.mig_pending = mig.ok() && mig.value.pending ? 1 : 0;
  const auto virtualization = nvml.virtualization_mode(device);
  if (virtualization.ok()) {
    gpu.virtualization = virtualization.value;
    gpu.known |= sampler::kKnownVirtualization;
  }
}

// Remembers the first failure of a call that a reading cannot do without.
void note_failure(sampler::Reading& reading, Call call, Code code) {
  if (reading.code != 0) return;
  reading.code = static_cast<int32_t>(code);
  reading.call = static_cast<uint32_t>(call);
}

void read_memory(nvml::NvmlCaller& nvml, nvml::Device device, sampler::Reading& reading) {
  const auto memory = nvml.memory(device);
  if (!memory.ok()) return note_failure(reading, Call::memory, memory.code);
  // By subtraction, because versions differ in whether "used" includes the reserve.
  const uint64_t reserve = memory.value.reserved.value_or(assumed_reserve(memory.value.total));
  if (memory.value.free > memory.value.total || reserve > memory.value.total) {
    return note_failure(reading, Call::memory, Code::no_data);
  }
  const uint64_t away = memory.value.free + reserve;
  reading.memory_used = memory.value.total > away ? memory.value.total - away : 0;
  reading.known |= sampler::kKnownMemoryUsed;
}

void read_processes(nvml::NvmlCaller& nvml, nvml::Device device, const ReaderRoots& roots,
                    sampler::Reading& reading) {
  const auto list = nvml.processes(device);
  if (!list.ok()) return note_failure(reading, Call::compute_processes, list.code);
  if (list.value.size() > sampler::kProcessesMax) {
    return note_failure(reading, Call::compute_processes, Code::insufficient_size);
  }
  reading.known |= sampler::kKnownProcesses;
  for (const nvml::Process& process : list.value) {
    if (process.pid == 0 || process.pid > INT32_MAX) continue;  // the driver's own, or nonsense
    sampler::Process& entry = reading.processes[reading.process_count++];
    entry.pid = process.pid;
    if (process.used_memory) {
      entry.memory = *process.used_memory;
      entry.known |= sampler::kKnownMemory;
    }
    const ProcessOwner owner = read_process_owner(roots.proc, static_cast<pid_t>(process.pid));
    if (owner.start_ticks) {
      entry.start_ticks = *owner.start_ticks;
      entry.known |= sampler::kKnownStart;
    }
    if (owner.uid) {
      entry.uid = *owner.uid;
      entry.known |= sampler::kKnownUser;
    }
  }
}

void read_activity(nvml::NvmlCaller& nvml, nvml::Device device, sampler::Reading& reading) {
  const auto utilization = nvml.utilization(device);
  if (utilization.ok()) {
    reading.utilisation = utilization.value.gpu;
    reading.memory_utilisation = utilization.value.memory;
    reading.known |= sampler::kKnownUtilisation;
  }
  const auto temperature = nvml.temperature_celsius(device);
  if (temperature.ok()) {
    reading.temperature = temperature.value;
    reading.known |= sampler::kKnownTemperature;
  }
  const auto power = nvml.power_milliwatts(device);
  if (power.ok()) {
    reading.power_milliwatts = power.value;
    reading.known |= sampler::kKnownPower;
  }
  const auto reasons = nvml.clocks_event_reasons(device);
  if (reasons.ok()) {
    reading.clocks_event_reasons = reasons.value;
    reading.known |= sampler::kKnownClocks;
  }
  const auto rows = nvml.remapped_rows(device);
  if (rows.ok()) {
    reading.rows_pending = rows.value.pending ? 1 : 0;
    reading.rows_failure = rows.value.failure ? 1 : 0;
    reading.known |= sampler::kKnownRows;
  }
  const auto recovery = nvml.recovery_action(device);
  if (recovery.ok()) {
    reading.recovery_action = recovery.value;
    reading.known |= sampler::kKnownRecovery;
  }
}

// The node of the GPU is looked for under the number that it bears now.
void read_layout(nvml::NvmlCaller& nvml, nvml::Device device, const ReaderRoots& roots,
                 sampler::Reading& reading) {
  const auto minor = nvml.minor_number(device);
  if (!minor.ok()) return;
  reading.layout = layout_of(nvml, device, minor.value);
  reading.known |= sampler::kKnownLayout;
  if (roots.dev.empty()) return;
  const auto missing = [&](const std::string& name) {
    return ::access((roots.dev + "/" + name).c_str(), F_OK) != 0;
  };
  if (missing("nvidiactl")) reading.nodes_missing |= sampler::kMissingControlNode;
  if (missing("nvidia-uvm")) reading.nodes_missing |= sampler::kMissingMemoryNode;
  if (missing("nvidia" + std::to_string(minor.value))) reading.nodes_missing |= sampler::kMissingGpuNode;
}

}  // namespace

Code describe_device(nvml::NvmlCaller& nvml, nvml::Device device, const ReaderRoots& roots,
                     sampler::Gpu& gpu) {
  const auto memory = nvml.memory(device);
  if (!memory.ok() || memory.value.total == 0) return memory.ok() ? Code::no_data : memory.code;
  gpu.memory_total = memory.value.total;
  gpu.memory_reserve = memory.value.reserved.value_or(assumed_reserve(memory.value.total));
  if (memory.value.reserved) gpu.known |= sampler::kKnownReserve;
  const auto bus_id = nvml.pci_bus_id(device);
  if (bus_id.ok()) sampler::set_field(gpu.pci_bus_id, bus_id.value);
  describe_board(nvml, device, gpu);
  describe_place(nvml, device, roots, gpu);
  return Code::success;
}

void read_device(nvml::NvmlCaller& nvml, nvml::Device device, const ReaderRoots& roots, bool thorough,
                 sampler::Reading& reading) {
  read_memory(nvml, device, reading);
  read_processes(nvml, device, roots, reading);
  if (!thorough) return;
  read_activity(nvml, device, reading);
  read_layout(nvml, device, roots, reading);
}

uint64_t assumed_reserve(uint64_t memory_total) {
  // Reserves seen are 250 MiB of 15 GiB, 346 of 24, 612 of 45, 870 of 80: at most a sixtieth.
  constexpr uint64_t kMiB = 1024 * 1024;
  return std::min(memory_total, std::max(256 * kMiB, memory_total / 60));
}

}  // namespace tranche
