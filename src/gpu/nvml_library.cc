#include "gpu/nvml_library.h"

#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace tranche::nvml {

struct Functions {
  int32_t (*init)();
  int32_t (*driver_version)(char*, uint32_t);
  int32_t (*device_count)(uint32_t*);
  int32_t (*device_handle)(uint32_t, Device*);
  int32_t (*uuid)(Device, char*, uint32_t);
  int32_t (*name)(Device, char*, uint32_t);
  int32_t (*minor_number)(Device, uint32_t*);
  int32_t (*pci_info)(Device, PciInfo*);
  int32_t (*memory_v1)(Device, MemoryV1*);
  int32_t (*memory_v2)(Device, MemoryV2*);
  int32_t (*utilization)(Device, Utilization*);
  int32_t (*temperature)(Device, uint32_t, uint32_t*);
  int32_t (*power_usage)(Device, uint32_t*);
  int32_t (*power_limit)(Device, uint32_t*);
  int32_t (*compute_processes)(Device, uint32_t*, void*);
  int32_t (*graphics_processes)(Device, uint32_t*, void*);
  int32_t (*mps_processes)(Device, uint32_t*, void*);
  bool compute_first_layout, graphics_first_layout;  // only the oldest version of the list is there
  bool long_layout_possible;                         // as in drivers 535.43 to 535.86
  int32_t (*compute_capability)(Device, int32_t*, int32_t*);
  int32_t (*mig_mode)(Device, uint32_t*, uint32_t*);
  int32_t (*numa_node)(Device, uint32_t*);
  int32_t (*cpu_affinity)(Device, uint32_t, unsigned long*);
  int32_t (*common_ancestor)(Device, Device, uint32_t*);
  int32_t (*p2p_status)(Device, Device, uint32_t, uint32_t*);
  int32_t (*nvlink_state)(Device, uint32_t, uint32_t*);
  int32_t (*nvlink_remote)(Device, uint32_t, PciInfo*);
  int32_t (*clocks_reasons)(Device, unsigned long long*);
  int32_t (*remapped_rows)(Device, uint32_t*, uint32_t*, uint32_t*, uint32_t*);
  int32_t (*virtualization_mode)(Device, uint32_t*);
  int32_t (*field_values)(Device, int32_t, FieldValue*);
  int32_t (*mig_device)(Device, uint32_t, Device*);
  int32_t (*attributes)(Device, Attributes*);
  int32_t (*gpu_instance_id)(Device, uint32_t*);
  int32_t (*compute_instance_id)(Device, uint32_t*);
  int32_t (*event_set_create)(EventSet*);
  int32_t (*register_events)(Device, unsigned long long, EventSet);
  int32_t (*event_wait)(EventSet, EventData*, uint32_t);
};

namespace {

constexpr size_t kTextMax = 128;

// Fills `target` with the first of `names` that the library has; returns which, or names.size().
template <class Function>
size_t resolve(void* library, Function*& target, std::initializer_list<const char*> names) {
  size_t position = 0;
  for (const char* name : names) {
    if (void* const symbol = dlsym(library, name)) {
      // POSIX promises that an object pointer from dlsym can hold a function's address.
      static_assert(sizeof(symbol) == sizeof(target));
      std::memcpy(&target, &symbol, sizeof target);
      return position;
    }
    ++position;
  }
  return position;
}

void resolve_all(void* library, Functions& f) {
  resolve(library, f.init, {"nvmlInit_v2", "nvmlInit"});
  resolve(library, f.driver_version, {"nvmlSystemGetDriverVersion"});
  resolve(library, f.device_count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
  resolve(library, f.device_handle, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
  resolve(library, f.uuid, {"nvmlDeviceGetUUID"});
  resolve(library, f.name, {"nvmlDeviceGetName"});
  resolve(library, f.minor_number, {"nvmlDeviceGetMinorNumber"});
  resolve(library, f.pci_info,
          {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"});
  resolve(library, f.memory_v1, {"nvmlDeviceGetMemoryInfo"});
  resolve(library, f.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
  resolve(library, f.utilization, {"nvmlDeviceGetUtilizationRates"});
  resolve(library, f.temperature, {"nvmlDeviceGetTemperature"});
  resolve(library, f.power_usage, {"nvmlDeviceGetPowerUsage"});
  resolve(library, f.power_limit, {"nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"});
  f.compute_first_layout =
      resolve(library, f.compute_processes,
              {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
               "nvmlDeviceGetComputeRunningProcesses"}) == 2;
  f.graphics_first_layout =
      resolve(library, f.graphics_processes,
              {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
               "nvmlDeviceGetGraphicsRunningProcesses"}) == 2;
  // MPS lists came after the first layout had gone: their plain symbol has the second one.
  resolve(library, f.mps_processes,
          {"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
           "nvmlDeviceGetMPSComputeRunningProcesses"});
  // The field came with confidential computing and left again when the detail list got it.
  f.long_layout_possible = dlsym(library, "nvmlDeviceGetConfComputeMemSizeInfo") != nullptr &&
                           dlsym(library, "nvmlDeviceGetRunningProcessDetailList") == nullptr;
  resolve(library, f.compute_capability, {"nvmlDeviceGetCudaComputeCapability"});
  resolve(library, f.mig_mode, {"nvmlDeviceGetMigMode"});
  resolve(library, f.numa_node, {"nvmlDeviceGetNumaNodeId"});
  resolve(library, f.cpu_affinity, {"nvmlDeviceGetCpuAffinity"});
  resolve(library, f.common_ancestor, {"nvmlDeviceGetTopologyCommonAncestor"});
  resolve(library, f.p2p_status, {"nvmlDeviceGetP2PStatus"});
  resolve(library, f.nvlink_state, {"nvmlDeviceGetNvLinkState"});
  resolve(library, f.nvlink_remote,
          {"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"});
  resolve(library, f.clocks_reasons,
          {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  resolve(library, f.remapped_rows, {"nvmlDeviceGetRemappedRows"});
  resolve(library, f.virtualization_mode, {"nvmlDeviceGetVirtualizationMode"});
  resolve(library, f.field_values, {"nvmlDeviceGetFieldValues"});
  resolve(library, f.mig_device, {"nvmlDeviceGetMigDeviceHandleByIndex"});
  resolve(library, f.attributes, {"nvmlDeviceGetAttributes_v2"});
  resolve(library, f.gpu_instance_id, {"nvmlDeviceGetGpuInstanceId"});
  resolve(library, f.compute_instance_id, {"nvmlDeviceGetComputeInstanceId"});
  resolve(library, f.event_set_create, {"nvmlEventSetCreate"});
  resolve(library, f.register_events, {"nvmlDeviceRegisterEvents"});
  resolve(library, f.event_wait, {"nvmlEventSetWait_v2", "nvmlEventSetWait"});
}

int64_t boot_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Printable ASCII of a buffer that may lack its end.
std::string clean_text(const char* buffer, size_t size) {
  std::string text(buffer, strnlen(buffer, size));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

// Where two layouts are possible, how far apart the processes of a list lie is measured, not assumed: the
// buffer is filled with this before the call, and what the driver has not touched tells the layout.
constexpr unsigned char kUntouched = 0xA7;

size_t measured_stride(const std::vector<unsigned char>& buffer, size_t count) {
  const size_t short_end = count * sizeof(ProcessV2);
  const size_t long_end = count * sizeof(ProcessV3Long);
  const auto untouched = [](unsigned char byte) { return byte == kUntouched; };
  const bool short_layout = std::all_of(buffer.begin() + static_cast<ptrdiff_t>(short_end),
                                        buffer.begin() + static_cast<ptrdiff_t>(long_end), untouched);
  return short_layout ? sizeof(ProcessV2) : sizeof(ProcessV3Long);
}

}  // namespace

NvmlLibrary::NvmlLibrary() : functions_(new Functions{}) {}
NvmlLibrary::~NvmlLibrary() = default;

Result<std::unique_ptr<NvmlLibrary>> NvmlLibrary::open(const std::string& directory) {
  constexpr std::string_view kName = "libnvidia-ml.so.1";
  const std::string path = directory.empty() ? std::string(kName) : directory + "/" + std::string(kName);
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    return fail(ErrorCode::unavailable, "cannot load " + path + " (" + (reason != nullptr ? reason : "?") +
                                            "); install the NVIDIA driver or set driver.library_dir");
  }
  std::unique_ptr<NvmlLibrary> library(new NvmlLibrary());
  resolve_all(handle, *library->functions_);
  const Functions& f = *library->functions_;
  if (f.init == nullptr || f.device_count == nullptr || f.device_handle == nullptr || f.uuid == nullptr ||
      (f.memory_v1 == nullptr && f.memory_v2 == nullptr)) {
    return fail(ErrorCode::unavailable,
                path + " lacks functions that every NVML has; reinstall the NVIDIA driver");
  }
  return library;
}

template <class Function, class... Arguments>
Code NvmlCaller::invoke(Call call, Function* function, Arguments... arguments) {
  if (function == nullptr) return Code::function_not_found;
  in_flight_.entered.store(boot_nanoseconds(), std::memory_order_relaxed);
  in_flight_.call.store(call, std::memory_order_release);
  const Code code = static_cast<Code>(function(arguments...));
  in_flight_.call.store(Call::none, std::memory_order_release);
  return code;
}

template <class Function>
Answer<std::string> NvmlCaller::text(Call call, Function* function, Device device) {
  char buffer[kTextMax] = {};
  const Code code = invoke(call, function, device, &buffer[0], static_cast<uint32_t>(sizeof buffer));
  return {code, clean_text(buffer, sizeof buffer)};
}

Code NvmlCaller::init() { return invoke(Call::init, functions_.init); }

Answer<std::string> NvmlCaller::driver_version() {
  char buffer[kTextMax] = {};
  const Code code = invoke(Call::driver_version, functions_.driver_version, &buffer[0],
                           static_cast<uint32_t>(sizeof buffer));
  return {code, clean_text(buffer, sizeof buffer)};
}

Answer<uint32_t> NvmlCaller::device_count() {
  Answer<uint32_t> answer;
  answer.code = invoke(Call::device_count, functions_.device_count, &answer.value);
  return answer;
}

Answer<Device> NvmlCaller::device(uint32_t index) {
  Answer<Device> answer;
  answer.code = invoke(Call::device_handle, functions_.device_handle, index, &answer.value);
  return answer;
}

Answer<std::string> NvmlCaller::uuid(Device device) { return text(Call::uuid, functions_.uuid, device); }
Answer<std::string> NvmlCaller::name(Device device) { return text(Call::name, functions_.name, device); }

Answer<uint32_t> NvmlCaller::minor_number(Device device) {
  Answer<uint32_t> answer;
  answer.code = invoke(Call::minor_number, functions_.minor_number, device, &answer.value);
  return answer;
}

Answer<std::string> NvmlCaller::pci_bus_id(Device device) {
  PciInfo info{};
  const Code code = invoke(Call::pci_info, functions_.pci_info, device, &info);
  std::string bus_id = clean_text(info.bus_id, sizeof info.bus_id);
  if (bus_id.empty()) bus_id = clean_text(info.bus_id_legacy, sizeof info.bus_id_legacy);
  return {code, std::move(bus_id)};
}

Answer<Memory> NvmlCaller::memory(Device device) {
  MemoryV2 second{};
  second.version = kMemoryV2Version;
  const Code second_code = invoke(Call::memory, functions_.memory_v2, device, &second);
  if (second_code == Code::success) return {second_code, {second.total, second.free, second.reserved}};
  // Only a driver that does not know the newer question is asked the older one.
  if (second_code != Code::function_not_found && second_code != Code::argument_version_mismatch &&
      second_code != Code::not_supported && second_code != Code::invalid_argument) {
    return {second_code, {}};
  }
  MemoryV1 first{};
  const Code first_code = invoke(Call::memory, functions_.memory_v1, device, &first);
  return {first_code == Code::function_not_found ? second_code : first_code,
          {first.total, first.free, std::nullopt}};
}

Answer<Utilization> NvmlCaller::utilization(Device device) {
  Answer<Utilization> answer;
  answer.code = invoke(Call::utilization, functions_.utilization, device, &answer.value);
  if (answer.ok() && (answer.value.gpu > 100 || answer.value.memory > 100)) answer.code = Code::no_data;
  return answer;
}

Answer<uint32_t> NvmlCaller::temperature_celsius(Device device) {
  Answer<uint32_t> answer;
  answer.code =
      invoke(Call::temperature, functions_.temperature, device, kTemperatureSensorGpu, &answer.value);
  return answer;
}

Answer<uint32_t> NvmlCaller::power_milliwatts(Device device) {
  Answer<uint32_t> answer;
  answer.code = invoke(Call::power_usage, functions_.power_usage, device, &answer.value);
  return answer;
}

Answer<uint32_t> NvmlCaller::power_limit_milliwatts(Device device) {
  Answer<uint32_t> answer;
  answer.code = invoke(Call::power_limit, functions_.power_limit, device, &answer.value);
  return answer;
}

Answer<std::vector<Process>> NvmlCaller::process_list(Call call, ProcessFunction* function, bool first_layout,
                                                      Device device) {
  if (function == nullptr) return {Code::function_not_found, {}};
  // Room for 64 serves nearly always. A list that grows between two calls is asked for again, with room to
  // spare and a bound: the buffer is sized for the longest layout whatever the driver uses.
  size_t capacity = 64;
  std::vector<unsigned char> buffer;
  uint32_t count = 0;
  Code code = Code::insufficient_size;
  for (int attempt = 0; attempt < 4 && code == Code::insufficient_size; ++attempt) {
    buffer.assign(capacity * sizeof(ProcessV3Long), kUntouched);
    count = static_cast<uint32_t>(capacity);
    code = invoke(call, function, device, &count, static_cast<void*>(buffer.data()));
    if (code == Code::insufficient_size) {
      if (count > kProcessesMax) return {code, {}};
      capacity = std::min(kProcessesMax, std::max<size_t>(capacity * 2, size_t{count} + 32));
    }
  }
  if (code != Code::success) return {code, {}};
  if (count > capacity) return {Code::insufficient_size, {}};  // more than it can have written

  const size_t stride = first_layout                      ? sizeof(ProcessV1)
                        : functions_.long_layout_possible ? measured_stride(buffer, count)
                                                          : sizeof(ProcessV2);
  std::vector<Process> processes;
  processes.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    ProcessV1 entry;  // what every layout begins with
    std::memcpy(&entry, buffer.data() + i * stride, sizeof entry);
    const bool known = entry.used_memory != kNotAvailable;
    processes.push_back({entry.pid, known ? std::optional(entry.used_memory) : std::nullopt});
  }
  return {code, std::move(processes)};
}

Answer<std::vector<Process>> NvmlCaller::processes(Device device) {
  const Functions& f = functions_;
  std::map<uint32_t, Process> by_pid;
  const auto merge = [&](const Answer<std::vector<Process>>& list) {
    for (const Process& process : list.value) {
      const auto [found, added] = by_pid.emplace(process.pid, process);
      // A process in two lists shows the same memory in both.
      if (!added && process.used_memory > found->second.used_memory) {
        found->second.used_memory = process.used_memory;
      }
    }
  };
  const auto compute =
      process_list(Call::compute_processes, f.compute_processes, f.compute_first_layout, device);
  if (!compute.ok()) return {compute.code, {}};
  merge(compute);
  // A board without graphics or MPS says so; any other failure leaves the list unknown, not short.
  const auto absent = [](Code code) {
    return code == Code::not_supported || code == Code::function_not_found;
  };
  const auto graphics =
      process_list(Call::graphics_processes, f.graphics_processes, f.graphics_first_layout, device);
  if (!graphics.ok() && !absent(graphics.code)) return {graphics.code, {}};
  merge(graphics);
  const auto mps = process_list(Call::mps_processes, f.mps_processes, false, device);
  if (!mps.ok() && !absent(mps.code)) return {mps.code, {}};
  merge(mps);

  Answer<std::vector<Process>> answer{Code::success, {}};
  for (const auto& [pid, process] : by_pid) answer.value.push_back(process);
  return answer;
}

Answer<ComputeCapability> NvmlCaller::compute_capability(Device device) {
  Answer<ComputeCapability> answer;
  answer.code = invoke(Call::compute_capability, functions_.compute_capability, device, &answer.value.major,
                       &answer.value.minor);
  return answer;
}

Answer<MigMode> NvmlCaller::mig_mode(Device device) {
  uint32_t current = 0, pending = 0;
  const Code code = invoke(Call::mig_mode, functions_.mig_mode, device, &current, &pending);
  return {code, {current == 1, pending == 1}};
}

Answer<uint32_t> NvmlCaller::numa_node(Device device) {
  Answer<uint32_t> answer;
  answer.code = invoke(Call::numa_node, functions_.numa_node, device, &answer.value);
  return answer;
}

Answer<std::array<uint64_t, kCpuSetWords>> NvmlCaller::cpu_affinity(Device device) {
  static_assert(sizeof(unsigned long) == sizeof(uint64_t));
  std::array<unsigned long, kCpuSetWords> words{};
  Answer<std::array<uint64_t, kCpuSetWords>> answer;
  answer.code = invoke(Call::cpu_affinity, functions_.cpu_affinity, device,
                       static_cast<uint32_t>(words.size()), words.data());
  std::copy(words.begin(), words.end(), answer.value.begin());
  return answer;
}

Answer<uint32_t> NvmlCaller::common_ancestor(Device first, Device second) {
  Answer<uint32_t> answer;
  answer.code = invoke(Call::common_ancestor, functions_.common_ancestor, first, second, &answer.value);
  return answer;
}

Answer<bool> NvmlCaller::joined_by_nvlink(Device first, Device second) {
  uint32_t status = 0;
  const Code code = invoke(Call::p2p_status, functions_.p2p_status, first, second, kP2pIndexNvlink, &status);
  if (code == Code::success) return {code, status == kP2pStatusOk};
  // Older drivers: a link whose far end is the other GPU. (Links through a switch are not seen this way.)
  const Answer<std::string> peer = pci_bus_id(second);
  if (!peer.ok()) return {peer.code, false};
  for (uint32_t link = 0; link < kNvlinksMax; ++link) {
    uint32_t active = 0;
    const Code state = invoke(Call::nvlink_state, functions_.nvlink_state, first, link, &active);
    if (state != Code::success) return {link == 0 ? state : Code::success, false};
    PciInfo remote{};
    if (active != 1 ||
        invoke(Call::nvlink_remote, functions_.nvlink_remote, first, link, &remote) != Code::success) {
      continue;
    }
    if (clean_text(remote.bus_id, sizeof remote.bus_id) == peer.value) return {Code::success, true};
  }
  return {Code::success, false};
}

Answer<uint64_t> NvmlCaller::clocks_event_reasons(Device device) {
  unsigned long long reasons = 0;
  const Code code = invoke(Call::clocks_reasons, functions_.clocks_reasons, device, &reasons);
  return {code, reasons};
}

Answer<RemappedRows> NvmlCaller::remapped_rows(Device device) {
  uint32_t correctable = 0, uncorrectable = 0, pending = 0, failure = 0;
  const Code code = invoke(Call::remapped_rows, functions_.remapped_rows, device, &correctable,
                           &uncorrectable, &pending, &failure);
  return {code, {pending == 1, failure == 1}};
}

Answer<uint32_t> NvmlCaller::virtualization_mode(Device device) {
  Answer<uint32_t> answer;
  answer.code = invoke(Call::virtualization_mode, functions_.virtualization_mode, device, &answer.value);
  return answer;
}

Answer<uint32_t> NvmlCaller::recovery_action(Device device) {
  FieldValue value{};
  value.field = kFieldRecoveryAction;
  const Code code = invoke(Call::field_values, functions_.field_values, device, 1, &value);
  return {code == Code::success ? static_cast<Code>(value.code) : code, value.value.u32};
}

Answer<std::string> NvmlCaller::mig_uuid(Device device, uint32_t number) {
  Device instance = nullptr;
  const Code code = invoke(Call::mig_device, functions_.mig_device, device, number, &instance);
  if (code != Code::success) return {code, {}};
  return uuid(instance);
}

Answer<std::vector<MigDevice>> NvmlCaller::mig_devices(Device device) {
  Answer<std::vector<MigDevice>> answer{Code::success, {}};
  for (uint32_t number = 0; number < kMigDevicesMax; ++number) {
    Device instance = nullptr;
    const Code code = invoke(Call::mig_device, functions_.mig_device, device, number, &instance);
    if (code == Code::not_found) continue;  // a hole
    if (code != Code::success) break;       // the end, or no MIG here
    MigDevice found;
    const Answer<std::string> name = uuid(instance);
    if (!name.ok()) continue;  // destroyed since
    found.uuid = name.value;
    invoke(Call::mig_ids, functions_.gpu_instance_id, instance, &found.gpu_instance);
    invoke(Call::mig_ids, functions_.compute_instance_id, instance, &found.compute_instance);
    invoke(Call::mig_attributes, functions_.attributes, instance, &found.attributes);
    answer.value.push_back(std::move(found));
  }
  return answer;
}

Answer<EventSet> NvmlCaller::event_set() {
  Answer<EventSet> answer;
  answer.code = invoke(Call::event_set_create, functions_.event_set_create, &answer.value);
  return answer;
}

Code NvmlCaller::register_xids(Device device, EventSet set) {
  return invoke(Call::register_events, functions_.register_events, device, kEventXid, set);
}

Answer<Xid> NvmlCaller::wait_for_xid(EventSet set, uint32_t timeout_milliseconds) {
  EventData data{};
  const Code code = invoke(Call::event_wait, functions_.event_wait, set, &data, timeout_milliseconds);
  if (code == Code::success && (data.type & kEventXid) == 0) return {Code::timeout, {}};  // of another kind
  return {code, {data.device, data.data}};
}

}  // namespace tranche::nvml
