// The NVML calls that the sampler makes, numbered, so that it can tell which one has not returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace tranche::nvml {

// Part of the sampler's protocol: append only.
#define TRANCHE_NVML_CALLS(X)                                    \
  X(none, "")                                                    \
  X(load_library, "loading libnvidia-ml.so.1")                   \
  X(init, "nvmlInit")                                            \
  X(driver_version, "nvmlSystemGetDriverVersion")                \
  X(device_count, "nvmlDeviceGetCount")                          \
  X(device_handle, "nvmlDeviceGetHandleByIndex")                 \
  X(uuid, "nvmlDeviceGetUUID")                                   \
  X(name, "nvmlDeviceGetName")                                   \
  X(minor_number, "nvmlDeviceGetMinorNumber")                    \
  X(pci_info, "nvmlDeviceGetPciInfo")                            \
  X(memory, "nvmlDeviceGetMemoryInfo")                           \
  X(utilization, "nvmlDeviceGetUtilizationRates")                \
  X(temperature, "nvmlDeviceGetTemperature")                     \
  X(power_usage, "nvmlDeviceGetPowerUsage")                      \
  X(power_limit, "nvmlDeviceGetEnforcedPowerLimit")              \
  X(compute_processes, "nvmlDeviceGetComputeRunningProcesses")   \
  X(graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses") \
  X(mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses")    \
  X(compute_capability, "nvmlDeviceGetCudaComputeCapability")    \
  X(mig_mode, "nvmlDeviceGetMigMode")                            \
  X(numa_node, "nvmlDeviceGetNumaNodeId")                        \
  X(cpu_affinity, "nvmlDeviceGetCpuAffinity")                    \
  X(common_ancestor, "nvmlDeviceGetTopologyCommonAncestor")      \
  X(p2p_status, "nvmlDeviceGetP2PStatus")                        \
  X(nvlink_state, "nvmlDeviceGetNvLinkState")                    \
  X(nvlink_remote, "nvmlDeviceGetNvLinkRemotePciInfo")           \
  X(clocks_reasons, "nvmlDeviceGetCurrentClocksEventReasons")    \
  X(remapped_rows, "nvmlDeviceGetRemappedRows")                  \
  X(event_set_create, "nvmlEventSetCreate")                      \
  X(register_events, "nvmlDeviceRegisterEvents")                 \
  X(event_wait, "nvmlEventSetWait")                              \
  X(virtualization_mode, "nvmlDeviceGetVirtualizationMode")      \
  X(field_values, "nvmlDeviceGetFieldValues")                    \
  X(mig_device, "nvmlDeviceGetMigDeviceHandleByIndex")           \
  X(mig_attributes, "nvmlDeviceGetAttributes")                   \
  X(mig_ids, "nvmlDeviceGetGpuInstanceId")

enum class Call : uint32_t {
#define TRANCHE_NVML_CALL_VALUE(name, text) name,
  TRANCHE_NVML_CALLS(TRANCHE_NVML_CALL_VALUE)
#undef TRANCHE_NVML_CALL_VALUE
};

// The function's name; "an NVML function" for a number that is none of these (it may come from outside).
constexpr std::string_view call_name(Call call) {
  switch (call) {
#define TRANCHE_NVML_CALL_NAME(name, text) \
  case Call::name:                         \
    return text;
    TRANCHE_NVML_CALLS(TRANCHE_NVML_CALL_NAME)
#undef TRANCHE_NVML_CALL_NAME
  }
  return "an NVML function";
}

// Which call one thread is in, written by it and read by the thread that reports. The two values may be of
// neighbouring calls for an instant, which costs nothing: what is looked for stays for seconds.
struct CallInFlight {
  std::atomic<Call> call{Call::none};
  std::atomic<int64_t> entered{0};  // CLOCK_BOOTTIME ns
};

}  // namespace tranche::nvml
