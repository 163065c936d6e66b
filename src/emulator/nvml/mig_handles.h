// Handles of MIG: devices, GPU instances, compute instances. Each stands for a place (GPU, ids), so that a
// handle is reused when another instance gets the same ids, as the driver does it; whether one exists is
// asked at each use.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {

struct MigPlace {
  uint32_t gpu = 0;  // the device model's number
  uint32_t gpu_instance = 0, compute_instance = 0;
};

Device* mig_device_handle(const MigPlace& place);
GpuInstance* gpu_instance_handle(uint32_t gpu, uint32_t gpu_instance);
ComputeInstance* compute_instance_handle(const MigPlace& place);
// Where a handle points to; nothing if it is none of these.
std::optional<MigPlace> place_of(const Device* device);
std::optional<MigPlace> place_of(const GpuInstance* instance);
std::optional<MigPlace> place_of(const ComputeInstance* instance);

inline bool is_mig_device(const Device* device) { return place_of(device).has_value(); }

// Runs body(gpu, info) for the MIG device that the handle means; a whole GPU's handle is not supported.
template <class Body>
Return with_mig_device(const Device* device, Body body) {
  const std::optional<MigPlace> place = place_of(device);
  if (!place) return with_gpu(device, [](const Gpu&) { return Return::not_supported; });
  return with_gpu(device_of_gpu(place->gpu), [&](const Gpu& gpu) {
    for (const MigDeviceInfo& info : gpu.model.mig_devices(gpu.number)) {
      if (info.gpu_instance == place->gpu_instance && info.compute_instance == place->compute_instance) {
        return body(gpu, info);
      }
    }
    return Return::not_found;  // destroyed
  });
}

Return return_of(MigResult result);
bool may_change_mig();  // root

// What functions for whole GPUs answer for a MIG device.
Return mig_memory(Device* device, uint64_t& total, uint64_t& used);
Return mig_uuid(Device* device, char* uuid, uint32_t length);
Return mig_name(Device* device, char* name, uint32_t length);

}  // namespace tranche::emulator::nvml
