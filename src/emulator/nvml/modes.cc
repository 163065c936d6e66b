// Modes of a GPU that cannot be changed here, and the refusal to change them.
#include <unistd.h>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

Return fixed(Device* device, uint32_t* answer, uint32_t value) {
  return answer_one(device, answer, [&](const Gpu&, uint32_t& mode) {
    mode = value;
    return Return::success;
  });
}

// Changing a GPU takes root on a real server; here nobody can.
Return refuse_change(Device* device) {
  return with_gpu(device,
                  [](const Gpu&) { return geteuid() == 0 ? Return::not_supported : Return::no_permission; });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetPersistenceMode(Device* device, uint32_t* mode) {
  return fixed(device, mode, kEnabled);
}
NVML_EXPORT Return nvmlDeviceGetComputeMode(Device* device, uint32_t* mode) { return fixed(device, mode, 0); }
NVML_EXPORT Return nvmlDeviceGetDisplayMode(Device* device, uint32_t* mode) {
  return fixed(device, mode, kDisabled);
}
NVML_EXPORT Return nvmlDeviceGetDisplayActive(Device* device, uint32_t* mode) {
  return fixed(device, mode, kDisabled);
}
NVML_EXPORT Return nvmlDeviceGetVirtualizationMode(Device* device, uint32_t* mode) {
  return fixed(device, mode, 0);
}
NVML_EXPORT Return nvmlDeviceGetAccountingMode(Device* device, uint32_t* mode) {
  return fixed(device, mode, kDisabled);
}

#define NVML_SETTER(name) \
  NVML_EXPORT Return name(Device* device) { return refuse_change(device); }
NVML_SETTER(nvmlDeviceSetPersistenceMode)
NVML_SETTER(nvmlDeviceSetComputeMode)
NVML_SETTER(nvmlDeviceSetEccMode)
NVML_SETTER(nvmlDeviceClearEccErrorCounts)
NVML_SETTER(nvmlDeviceSetDriverModel)
NVML_SETTER(nvmlDeviceSetGpuLockedClocks)
NVML_SETTER(nvmlDeviceResetGpuLockedClocks)
NVML_SETTER(nvmlDeviceSetMemoryLockedClocks)
NVML_SETTER(nvmlDeviceResetMemoryLockedClocks)
NVML_SETTER(nvmlDeviceSetApplicationsClocks)
NVML_SETTER(nvmlDeviceResetApplicationsClocks)
NVML_SETTER(nvmlDeviceSetAutoBoostedClocksEnabled)
NVML_SETTER(nvmlDeviceSetDefaultAutoBoostedClocksEnabled)
NVML_SETTER(nvmlDeviceSetFanSpeed_v2)
NVML_SETTER(nvmlDeviceSetDefaultFanSpeed_v2)
NVML_SETTER(nvmlDeviceSetFanControlPolicy)
NVML_SETTER(nvmlDeviceSetTemperatureThreshold)
NVML_SETTER(nvmlDeviceSetPowerManagementLimit)
NVML_SETTER(nvmlDeviceSetPowerManagementLimit_v2)
NVML_SETTER(nvmlDeviceSetGpuOperationMode)
NVML_SETTER(nvmlDeviceSetAPIRestriction)
NVML_SETTER(nvmlDeviceSetAccountingMode)
NVML_SETTER(nvmlDeviceClearAccountingPids)
NVML_SETTER(nvmlDeviceSetVirtualizationMode)
NVML_SETTER(nvmlDeviceSetGpcClkVfOffset)
NVML_SETTER(nvmlDeviceSetMemClkVfOffset)
NVML_SETTER(nvmlDeviceSetNvLinkDeviceLowPowerThreshold)
NVML_SETTER(nvmlDeviceResetNvLinkErrorCounters)
NVML_SETTER(nvmlDeviceResetNvLinkUtilizationCounter)
NVML_SETTER(nvmlDeviceSetNvLinkUtilizationControl)
NVML_SETTER(nvmlDeviceFreezeNvLinkUtilizationCounter)
#undef NVML_SETTER

}  // namespace tranche::emulator::nvml
