// Device nodes of MIG instances: /dev/nvidia-caps/nvidia-cap<N>, one for each GPU instance and one for each
// compute instance. Who may open both, and the GPU's own, may use the instance.
//
// N is the driver's own numbering (its mig-minors table): 1 for the configuration, 2 for monitoring, and from
// 3 on nine for each of fifteen GPU instances of each GPU: its own access and that of its eight compute
// instances. The last of 32 GPUs is 4322.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "emulator/device_model.h"

namespace tranche::emulator {

inline constexpr uint32_t kConfigCapability = 1, kMonitorCapability = 2;

constexpr uint32_t gpu_instance_capability(uint32_t gpu, uint32_t gpu_instance) {
  return 3 + gpu * 135 + gpu_instance * 9;
}
constexpr uint32_t compute_instance_capability(uint32_t gpu, uint32_t gpu_instance,
                                               uint32_t compute_instance) {
  return gpu_instance_capability(gpu, gpu_instance) + 1 + compute_instance;
}
static_assert(compute_instance_capability(31, 14, 7) == 4322);

// Makes the nodes of what exists in `directory`/nvidia-caps and removes the others; nothing where the
// server's nodes are stand-ins that could not be made.
Result<void> refresh_mig_nodes(DeviceModel& model, const std::string& directory);
void remove_mig_nodes(const std::string& directory);
// Opens the access nodes of the device and keeps them open; false if one is there that the process may not
// open.
bool open_mig_device(const MigDeviceInfo& device);

}  // namespace tranche::emulator
