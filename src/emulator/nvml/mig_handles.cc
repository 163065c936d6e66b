#include "emulator/nvml/mig_handles.h"

#include <unistd.h>

#include <array>
#include <string>

namespace tranche::emulator::nvml {
namespace {

constexpr uint32_t kGpuInstanceIds = 15;  // 0..14
constexpr size_t kPlaces = size_t{kMaxGpus} * kGpuInstanceIds * kMaxComputeInstances;

// What handles point at: an address each, nothing more.
std::array<char, kPlaces> g_mig_devices, g_compute_instances;
std::array<char, size_t{kMaxGpus} * kGpuInstanceIds> g_gpu_instances;

size_t offset_of(const MigPlace& place) {
  return (size_t{place.gpu % kMaxGpus} * kGpuInstanceIds + place.gpu_instance % kGpuInstanceIds) *
             kMaxComputeInstances +
         place.compute_instance % kMaxComputeInstances;
}

template <size_t Count>
std::optional<MigPlace> place_in(const std::array<char, Count>& handles, const void* handle, uint32_t parts) {
  const auto address = reinterpret_cast<uintptr_t>(handle),
             begin = reinterpret_cast<uintptr_t>(handles.data());
  if (address < begin || address >= begin + Count) return std::nullopt;
  const auto index = static_cast<uint32_t>(address - begin);
  return MigPlace{.gpu = index / parts / kGpuInstanceIds,
                  .gpu_instance = index / parts % kGpuInstanceIds,
                  .compute_instance = index % parts};
}

}  // namespace

Device* mig_device_handle(const MigPlace& place) {
  return reinterpret_cast<Device*>(&g_mig_devices[offset_of(place)]);
}
GpuInstance* gpu_instance_handle(uint32_t gpu, uint32_t gpu_instance) {
  return reinterpret_cast<GpuInstance*>(
      &g_gpu_instances[size_t{gpu % kMaxGpus} * kGpuInstanceIds + gpu_instance % kGpuInstanceIds]);
}
ComputeInstance* compute_instance_handle(const MigPlace& place) {
  return reinterpret_cast<ComputeInstance*>(&g_compute_instances[offset_of(place)]);
}

std::optional<MigPlace> place_of(const Device* device) {
  return place_in(g_mig_devices, device, kMaxComputeInstances);
}
std::optional<MigPlace> place_of(const GpuInstance* instance) {
  return place_in(g_gpu_instances, instance, 1);
}
std::optional<MigPlace> place_of(const ComputeInstance* instance) {
  return place_in(g_compute_instances, instance, kMaxComputeInstances);
}

Return return_of(MigResult result) {
  switch (result) {
    case MigResult::done:
      return Return::success;
    case MigResult::not_supported:
      return Return::not_supported;
    case MigResult::invalid:
      return Return::invalid_argument;
    case MigResult::not_found:
      return Return::not_found;
    case MigResult::no_room:
      return Return::insufficient_resources;
    case MigResult::in_use:
      return Return::in_use;
  }
  return Return::unknown;
}

bool may_change_mig() { return geteuid() == 0; }

Return mig_memory(Device* device, uint64_t& total, uint64_t& used) {
  return with_mig_device(device, [&](const Gpu& gpu, const MigDeviceInfo& info) {
    total = info.memory_bytes;
    used = gpu.model.used_bytes(gpu.number, info.gpu_instance);
    return Return::success;
  });
}

Return mig_uuid(Device* device, char* uuid, uint32_t length) {
  return with_mig_device(
      device, [&](const Gpu&, const MigDeviceInfo& info) { return copy_text(info.uuid_text, uuid, length); });
}

Return mig_name(Device* device, char* name, uint32_t length) {
  return with_mig_device(device, [&](const Gpu& gpu, const MigDeviceInfo& info) {
    return copy_text(std::string(gpu.board.name) + " MIG " + info.name, name, length);
  });
}

}  // namespace tranche::emulator::nvml
