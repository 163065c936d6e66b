// What is built into a board beside its GPU: firmware, fabric, protected memory.
#include <algorithm>
#include <string>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint64_t kBytesPerKiB = 1024;
constexpr uint8_t kFabricProbeCompleted = 3;

// GPUs behind NVSwitch, which from Hopper on register with a fabric.
bool is_in_fabric(const Gpu& gpu) {
  return gpu.board.architecture >= Architecture::Hopper && gpu.board.nvlinks > 0;
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetVbiosVersion(Device* device, char* version, uint32_t length) {
  return with_gpu(device, [&](const Gpu& gpu) { return copy_text(gpu.detail.vbios, version, length); });
}

NVML_EXPORT Return nvmlDeviceGetInforomImageVersion(Device* device, char* version, uint32_t length) {
  return with_gpu(device, [&](const Gpu& gpu) { return copy_text(gpu.detail.inforom, version, length); });
}

// The GPU system processor runs the firmware of the driver's own release; GeForce boards use it from the
// release on whose kernel modules are the open ones.
NVML_EXPORT Return nvmlDeviceGetGspFirmwareVersion(Device* device, char* version) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (version == nullptr) return Return::invalid_argument;
    if (gpu.board.brand == Brand::GeForce && gpu.model.level().branch() < 570) return Return::not_supported;
    constexpr uint32_t kBufferBytes = 64;
    return copy_text(gpu.model.driver_version(), version, kBufferBytes);
  });
}
NVML_EXPORT Return nvmlDeviceGetGspFirmwareMode(Device* device, uint32_t* is_enabled, uint32_t* by_default) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(is_enabled, by_default)) return Return::invalid_argument;
    const bool is_used = gpu.board.brand != Brand::GeForce || gpu.model.level().branch() >= 570;
    *is_enabled = *by_default = is_used ? 1 : 0;
    return Return::success;
  });
}

// Boards on a base board have a place there; cards in slots have none.
NVML_EXPORT Return nvmlDeviceGetModuleId(Device* device, uint32_t* module) {
  return answer_one(device, module, [](const Gpu& gpu, uint32_t& answer) {
    if (gpu.board.nvlinks == 0) return Return::not_supported;
    answer = gpu.number + 1;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetMinMaxFanSpeed(Device* device, uint32_t* least, uint32_t* most) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(least, most)) return Return::invalid_argument;
    if (!gpu.board.fan) return Return::not_supported;
    *least = 30;
    *most = 100;
    return Return::success;
  });
}

// The list ends with the number that stands for "unknown".
NVML_EXPORT Return nvmlDeviceGetSupportedPerformanceStates(Device* device, uint32_t* states, uint32_t bytes) {
  constexpr uint32_t kUnknown = 32, kStates = 16;
  return with_gpu(device, [&](const Gpu& gpu) {
    if (states == nullptr) return Return::invalid_argument;
    if (bytes < kStates * sizeof *states) return Return::insufficient_size;
    std::fill_n(states, kStates, kUnknown);
    states[0] = 0;
    if (gpu.board.memory_clock_idle_mhz != gpu.board.memory_clock_mhz) states[1] = 8;
    return Return::success;
  });
}

// Confidential computing is off: all memory is unprotected.
NVML_EXPORT Return nvmlDeviceGetConfComputeMemSizeInfo(Device* device, ConfidentialMemory* memory) {
  return answer_one(device, memory, [](const Gpu& gpu, ConfidentialMemory& answer) {
    if (gpu.board.architecture < Architecture::Hopper) return Return::not_supported;
    answer = {.protected_kib = 0, .unprotected_kib = gpu.identity.memory_bytes / kBytesPerKiB};
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetRowRemapperHistogram(Device* device, RowHistogram* histogram) {
  return answer_one(device, histogram, [](const Gpu& gpu, RowHistogram& answer) {
    if (!tells_remapped_rows(gpu)) return Return::not_supported;
    answer = {.max = gpu.detail.memory_banks, .high = 0, .partial = 0, .low = 0, .none = 0};
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetGpuFabricInfo(Device* device, GpuFabric* fabric) {
  return answer_one(device, fabric, [](const Gpu& gpu, GpuFabric& answer) {
    if (!is_in_fabric(gpu)) return Return::not_supported;
    answer = {.cluster = {}, .status = Return::success, .clique = 0, .state = kFabricProbeCompleted};
    return Return::success;
  });
}

// The second form is a beginning of the third, which has a summary of health more.
NVML_EXPORT Return nvmlDeviceGetGpuFabricInfoV(Device* device, GpuFabricV3* fabric) {
  constexpr uint32_t kSecondFormBytes = 36;
  return answer_one(device, fabric, [](const Gpu& gpu, GpuFabricV3& answer) {
    const uint32_t version = answer.version;
    const bool is_third = version == versioned<GpuFabricV3>(3);
    if (!is_third && version != (kSecondFormBytes | 2u << 24)) return Return::argument_version_mismatch;
    if (!is_in_fabric(gpu)) return Return::not_supported;
    answer.cluster = {};
    answer.status = Return::success;
    answer.clique = 0;
    answer.state = kFabricProbeCompleted;
    answer.health_mask = 0;
    if (is_third) answer.health_summary = 0;
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
