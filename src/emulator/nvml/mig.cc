// MIG mode, and MIG devices by handle. How GPUs are cut up is in mig_instances.cc.
#include "emulator/nvml/mig_handles.h"

namespace tranche::emulator::nvml {
namespace {

struct Attributes {
  uint32_t multiprocessors, copy_engines, decoders, encoders, jpeg, optical_flow;
  uint32_t gpu_instance_slices, compute_instance_slices;
  uint64_t memory_mib;
};
static_assert(sizeof(Attributes) == 40);

Return attributes(Device* device, void* answer) {
  return with_mig_device(device, [&](const Gpu&, const MigDeviceInfo& info) {
    if (answer == nullptr || info.profile == nullptr) return Return::invalid_argument;
    const GpuInstanceProfile& profile = *info.profile;
    *static_cast<Attributes*>(answer) = {.multiprocessors = info.multiprocessors,
                                         .copy_engines = profile.copy_engines,
                                         .decoders = profile.decoders,
                                         .encoders = profile.encoders,
                                         .jpeg = profile.jpeg,
                                         .optical_flow = profile.optical_flow,
                                         .gpu_instance_slices = info.slices,
                                         .compute_instance_slices = info.compute_slices,
                                         .memory_mib = info.memory_bytes >> 20};
    return Return::success;
  });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetMigMode(Device* device, uint32_t* current, uint32_t* pending) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(current, pending)) return Return::invalid_argument;
    if (gpu.model.mig(gpu.number) == nullptr) return Return::not_supported;
    *current = gpu.model.mig_enabled(gpu.number) ? kEnabled : kDisabled;
    *pending = gpu.model.mig_pending(gpu.number) ? kEnabled : kDisabled;
    return Return::success;
  });
}

// The answer is about the request; `activation` says whether it has taken effect.
NVML_EXPORT Return nvmlDeviceSetMigMode(Device* device, uint32_t mode, uint32_t* activation) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (activation == nullptr || mode > kEnabled) return Return::invalid_argument;
    if (gpu.model.mig(gpu.number) == nullptr) return Return::not_supported;
    if (!may_change_mig()) return Return::no_permission;
    *activation = static_cast<uint32_t>(return_of(gpu.model.set_mig_mode(gpu.number, mode == kEnabled)));
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetMaxMigDeviceCount(Device* device, uint32_t* count) {
  return answer_one(device, count, [](const Gpu& gpu, uint32_t& answer) {
    const MigBoard* const board = gpu.model.mig(gpu.number);
    // Zero if MIG is not supported or not enabled, as NVML documents.
    answer = board == nullptr || !gpu.model.mig_enabled(gpu.number) ? 0 : board->slices;
    return Return::success;
  });
}

// Numbers are given without holes here; clients must expect some.
NVML_EXPORT Return nvmlDeviceGetMigDeviceHandleByIndex(Device* device, uint32_t number, Device** instance) {
  return answer_one(device, instance, [&](const Gpu& gpu, Device*& answer) {
    const MigBoard* const board = gpu.model.mig(gpu.number);
    if (board == nullptr) return Return::not_supported;
    if (number >= board->slices) return Return::invalid_argument;
    const std::vector<MigDeviceInfo> devices = gpu.model.mig_devices(gpu.number);
    if (number >= devices.size()) return Return::not_found;
    answer = mig_device_handle({gpu.number, devices[number].gpu_instance, devices[number].compute_instance});
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceIsMigDeviceHandle(Device* device, uint32_t* is_instance) {
  if (is_mig_device(device)) {
    return with_mig_device(device, [&](const Gpu&, const MigDeviceInfo&) {
      if (is_instance == nullptr) return Return::invalid_argument;
      *is_instance = 1;
      return Return::success;
    });
  }
  return answer_one(device, is_instance, [](const Gpu&, uint32_t& answer) {
    answer = 0;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device* instance, Device** device) {
  if (!is_mig_device(instance)) return with_session([](const Session&) { return Return::invalid_argument; });
  return with_mig_device(instance, [&](const Gpu& gpu, const MigDeviceInfo&) {
    if (device == nullptr) return Return::invalid_argument;
    *device = device_of_gpu(gpu.number);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetGpuInstanceId(Device* device, uint32_t* id) {
  return with_mig_device(device, [&](const Gpu&, const MigDeviceInfo& info) {
    if (id == nullptr) return Return::invalid_argument;
    *id = info.gpu_instance;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetComputeInstanceId(Device* device, uint32_t* id) {
  return with_mig_device(device, [&](const Gpu&, const MigDeviceInfo& info) {
    if (id == nullptr) return Return::invalid_argument;
    *id = info.compute_instance;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetAttributes_v2(Device* device, void* answer) {
  return attributes(device, answer);
}

}  // namespace tranche::emulator::nvml
