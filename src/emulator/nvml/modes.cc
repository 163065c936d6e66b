// Modes of a GPU that its administrator can change, and those that are what they are.
#include <unistd.h>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

namespace compute_mode {
constexpr uint32_t default_mode = 0, prohibited = 2, exclusive_process = 3;  // 1, by thread, is gone
}

Return fixed(Device* device, uint32_t* answer, uint32_t value) {
  return answer_one(device, answer, [&](const Gpu&, uint32_t& mode) {
    mode = value;
    return Return::success;
  });
}

// body(gpu) changes the GPU, which takes root.
template <class Body>
Return change(Device* device, Body body) {
  return with_gpu(device, [&](const Gpu& gpu) { return geteuid() == 0 ? body(gpu) : Return::no_permission; });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetPersistenceMode(Device* device, uint32_t* mode) {
  return answer_one(device, mode, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.model.settings(gpu.number).no_persistence.load() == 0 ? kEnabled : kDisabled;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceSetPersistenceMode(Device* device, uint32_t mode) {
  return change(device, [&](const Gpu& gpu) {
    if (mode > kEnabled) return Return::invalid_argument;
    gpu.model.settings(gpu.number).no_persistence.store(mode == kEnabled ? 0 : 1);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetComputeMode(Device* device, uint32_t* mode) {
  return answer_one(device, mode, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.model.settings(gpu.number).compute_mode.load();
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceSetComputeMode(Device* device, uint32_t mode) {
  return change(device, [&](const Gpu& gpu) {
    if (mode > compute_mode::exclusive_process) return Return::invalid_argument;
    if (mode != compute_mode::default_mode && mode != compute_mode::prohibited &&
        mode != compute_mode::exclusive_process) {
      return Return::not_supported;
    }
    gpu.model.settings(gpu.number).compute_mode.store(mode);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetDisplayMode(Device* device, uint32_t* mode) {
  return fixed(device, mode, kDisabled);
}
NVML_EXPORT Return nvmlDeviceGetDisplayActive(Device* device, uint32_t* mode) {
  return fixed(device, mode, kDisabled);
}

NVML_EXPORT Return nvmlDeviceGetPowerManagementLimit(Device* device, uint32_t* milliwatts) {
  return answer_one(device, milliwatts, [](const Gpu& gpu, uint32_t& answer) {
    if (gpu.is_share()) return Return::not_supported;
    answer = gpu.power_limit_mw();
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetEnforcedPowerLimit(Device* device, uint32_t* milliwatts) {
  return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}
NVML_EXPORT Return nvmlDeviceSetPowerManagementLimit(Device* device, uint32_t milliwatts) {
  return change(device, [&](const Gpu& gpu) {
    if (gpu.is_share()) return Return::not_supported;
    if (milliwatts < gpu.detail.power_min_mw || milliwatts > gpu.detail.power_max_mw)
      return Return::invalid_argument;
    gpu.model.settings(gpu.number).power_limit_mw.store(milliwatts);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceSetGpuLockedClocks(Device* device, uint32_t least_mhz, uint32_t most_mhz) {
  return change(device, [&](const Gpu& gpu) {
    if (gpu.is_share()) return Return::not_supported;
    if (least_mhz > most_mhz || most_mhz == 0) return Return::invalid_argument;
    gpu.model.lock_clocks(gpu.number, least_mhz, most_mhz);
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceResetGpuLockedClocks(Device* device) {
  return change(device, [](const Gpu& gpu) {
    gpu.model.lock_clocks(gpu.number, 0, 0);
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
