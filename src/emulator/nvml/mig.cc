// MIG before it is emulated: boards that can do it have it switched off, and there are no instances.
#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {

NVML_EXPORT Return nvmlDeviceGetMigMode(Device* device, uint32_t* current, uint32_t* pending) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(current, pending)) return Return::invalid_argument;
    if (!gpu.board.mig_capable) return Return::not_supported;
    *current = *pending = 0;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetMaxMigDeviceCount(Device* device, uint32_t* count) {
  return answer_one(device, count, [](const Gpu&, uint32_t& answer) {
    answer = 0;  // also where MIG is off or not possible, as NVML documents
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetMigDeviceHandleByIndex(Device* device, uint32_t, Device** instance) {
  return answer_one(device, instance, [](const Gpu& gpu, Device*&) {
    return gpu.board.mig_capable ? Return::not_found : Return::not_supported;
  });
}

NVML_EXPORT Return nvmlDeviceIsMigDeviceHandle(Device* device, uint32_t* is_instance) {
  return answer_one(device, is_instance, [](const Gpu&, uint32_t& answer) {
    answer = 0;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device* instance, Device** device) {
  return answer_one(instance, device, [](const Gpu&, Device*&) { return Return::invalid_argument; });
}

}  // namespace tranche::emulator::nvml
