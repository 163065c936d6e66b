#include "emulator/cuda/mig_visible.h"

#include <algorithm>
#include <string>

namespace tranche::emulator::cuda {
namespace {

// "MIG-GPU-<uuid>/<gi>/<ci>"
std::string older_name(const DeviceModel& model, const MigDeviceInfo& device) {
  return std::string("MIG-") + model.identity(device.gpu).uuid_text.data() + "/" +
         std::to_string(device.gpu_instance) + "/" + std::to_string(device.compute_instance);
}

}  // namespace

std::optional<MigDeviceInfo> find_mig_device(DeviceModel& model, const std::vector<uint32_t>& gpus,
                                             std::string_view visible) {
  const std::string_view name = visible.substr(0, visible.find(','));
  std::optional<MigDeviceInfo> match;
  for (const uint32_t gpu : gpus) {
    for (const MigDeviceInfo& device : model.mig_devices(gpu)) {
      if (older_name(model, device) == name) return device;
      if (!std::string_view(device.uuid_text).starts_with(name)) continue;
      if (match) return std::nullopt;  // shortened too far
      match = device;
    }
  }
  return match;
}

std::optional<MigDeviceInfo> settle_mig(DeviceModel& model, std::vector<uint32_t>& gpus) {
  if (gpus.empty()) return std::nullopt;
  if (!model.mig_enabled(gpus.front())) {
    std::erase_if(gpus, [&](uint32_t gpu) { return model.mig_enabled(gpu); });
    return std::nullopt;
  }
  const std::vector<MigDeviceInfo> devices = model.mig_devices(gpus.front());
  if (devices.empty()) {
    gpus.clear();
    return std::nullopt;
  }
  gpus.resize(1);
  return devices.front();
}

}  // namespace tranche::emulator::cuda
