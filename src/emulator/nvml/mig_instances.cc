// GPU instances and compute instances: their profiles, placements, making and destroying.
//
// The number that profile-info calls take is an enumeration (`query`), and the one that create calls take is
// the profile's id: they are different numbers.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "emulator/nvml/mig_handles.h"

namespace tranche::emulator::nvml {
namespace {

struct Placement {
  uint32_t start, size;
};
struct GpuInstanceProfileInfo {
  uint32_t id, is_p2p_supported, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg,
      optical_flow;
  uint64_t memory_mib;
};
struct GpuInstanceProfileInfoV2 {
  uint32_t version, id, is_p2p_supported, slices, instances, multiprocessors, copy_engines, decoders,
      encoders, jpeg, optical_flow;
  uint64_t memory_mib;
  std::array<char, 96> name;
};
struct GpuInstanceProfileInfoV3 {
  uint32_t version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg,
      optical_flow;
  uint64_t memory_mib;
  std::array<char, 96> name;
  uint32_t capabilities;
};
struct GpuInstanceInfo {
  Device* device;
  uint32_t id, profile;
  Placement placement;
};
struct ComputeInstanceProfileInfo {
  uint32_t id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, optical_flow;
};
struct ComputeInstanceProfileInfoV2 {
  uint32_t version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg,
      optical_flow;
  std::array<char, 96> name;
};
struct ComputeInstanceInfo {
  Device* device;
  GpuInstance* gpu_instance;
  uint32_t id, profile;
  Placement placement;
};
static_assert(sizeof(GpuInstanceProfileInfo) == 48 && sizeof(GpuInstanceProfileInfoV2) == 152 &&
              sizeof(GpuInstanceProfileInfoV3) == 152 && sizeof(GpuInstanceInfo) == 24 &&
              sizeof(ComputeInstanceProfileInfo) == 36 && sizeof(ComputeInstanceProfileInfoV2) == 136 &&
              sizeof(ComputeInstanceInfo) == 32);

void write_name(const std::string& name, std::array<char, 96>& field) {
  field = {};
  name.copy(field.data(), field.size() - 1);
}

// NOT_SUPPORTED: the board lacks that profile, go on; INVALID_ARGUMENT: the enumeration has ended.
template <class Body>
Return with_profile(Device* device, uint32_t query, Body body) {
  return with_gpu(device, [&](const Gpu& gpu) {
    const MigBoard* const board = gpu.model.mig(gpu.number);
    if (board == nullptr) return Return::not_supported;
    if (query >= kGpuInstanceQueries) return Return::invalid_argument;
    const GpuInstanceProfile* const profile = profile_by_query(*board, query);
    return profile == nullptr ? Return::not_supported : body(gpu, *board, *profile);
  });
}

template <class Body>
Return with_profile_id(Device* device, uint32_t id, Body body) {
  return with_gpu(device, [&](const Gpu& gpu) {
    const MigBoard* const board = gpu.model.mig(gpu.number);
    if (board == nullptr) return Return::not_supported;
    const GpuInstanceProfile* const profile = profile_by_id(*board, id);
    return profile == nullptr ? Return::invalid_argument : body(gpu, *board, *profile);
  });
}

// Runs body(gpu, board, instance) for the GPU instance that the handle means.
template <class Body>
Return with_instance(const GpuInstance* handle, Body body) {
  const std::optional<MigPlace> place = place_of(handle);
  if (!place) return with_session([](const Session&) { return Return::invalid_argument; });
  return with_gpu(device_of_gpu(place->gpu), [&](const Gpu& gpu) {
    const MigBoard* const board = gpu.model.mig(gpu.number);
    const SharedMig layout = gpu.model.mig_layout(gpu.number);
    const auto slot = slot_of_instance(layout, place->gpu_instance);
    if (board == nullptr || !slot) return Return::not_found;
    return body(gpu, *board, layout.instances[*slot]);
  });
}

template <class Info>
void fill_engines(const GpuInstanceProfile& profile, Info& info) {
  info.copy_engines = profile.copy_engines;
  info.decoders = profile.decoders;
  info.encoders = profile.encoders;
  info.jpeg = profile.jpeg;
  info.optical_flow = profile.optical_flow;
}

template <class Info>
void fill(const GpuInstanceProfile& profile, Info& info) {
  info.id = profile.id;
  info.slices = profile.slices;
  info.instances = profile.most;
  info.multiprocessors = profile.multiprocessors;
  info.memory_mib = profile.memory_mib;
  fill_engines(profile, info);
}

template <class Info>
void fill(const ComputeInstanceProfile& compute, const GpuInstanceProfile& profile, Info& info) {
  info.id = compute.id;
  info.slices = compute.slices;
  info.instances = compute.most;
  info.multiprocessors = compute.multiprocessors;
  fill_engines(profile, info);
}

Return list_placements(uint32_t starts, uint32_t size, void* placements, uint32_t* count) {
  if (count == nullptr) return Return::invalid_argument;
  uint32_t written = 0;
  for (uint32_t start = 0; start < 32; ++start) {
    if ((starts >> start & 1u) == 0) continue;
    if (placements != nullptr) static_cast<Placement*>(placements)[written] = {start, size};
    ++written;
  }
  *count = written;
  return Return::success;
}

Return create(Device* device, uint32_t id, const Placement* placement, GpuInstance** instance) {
  return with_profile_id(device, id, [&](const Gpu& gpu, const MigBoard&, const GpuInstanceProfile& profile) {
    if (instance == nullptr || (placement != nullptr && placement->size != profile.units)) {
      return Return::invalid_argument;
    }
    if (!may_change_mig()) return Return::no_permission;
    uint32_t made = 0;
    const std::optional<uint32_t> start =
        placement == nullptr ? std::nullopt : std::optional(placement->start);
    const MigResult result = gpu.model.create_gpu_instance(gpu.number, profile.id, start, made);
    if (result == MigResult::done) *instance = gpu_instance_handle(gpu.number, made);
    return return_of(result);
  });
}

Return create_compute(GpuInstance* handle, uint32_t id, const Placement* placement,
                      ComputeInstance** instance) {
  return with_instance(handle, [&](const Gpu& gpu, const MigBoard&, const SharedGpuInstance& parent) {
    if (instance == nullptr) return Return::invalid_argument;
    if (!may_change_mig()) return Return::no_permission;
    uint32_t made = 0;
    const std::optional<uint32_t> start =
        placement == nullptr ? std::nullopt : std::optional(placement->start);
    const MigResult result = gpu.model.create_compute_instance(gpu.number, parent.id, id, start, made);
    if (result == MigResult::done) *instance = compute_instance_handle({gpu.number, parent.id, made});
    return return_of(result);
  });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetGpuInstanceProfileInfo(Device* device, uint32_t query, void* info) {
  return with_profile(device, query, [&](const Gpu&, const MigBoard&, const GpuInstanceProfile& profile) {
    if (info == nullptr) return Return::invalid_argument;
    auto& answer = *static_cast<GpuInstanceProfileInfo*>(info);
    answer.is_p2p_supported = 0;
    fill(profile, answer);
    return Return::success;
  });
}

namespace {

// The versioned forms, by the size and version in the first word.
Return describe_profile(const MigBoard& board, const GpuInstanceProfile& profile, void* info) {
  if (info == nullptr) return Return::invalid_argument;
  uint32_t version = 0;
  std::memcpy(&version, info, sizeof version);
  if (version == versioned<GpuInstanceProfileInfoV3>(3)) {
    auto& answer = *static_cast<GpuInstanceProfileInfoV3*>(info);
    fill(profile, answer);
    write_name("MIG " + profile_name(board, profile), answer.name);
    constexpr uint32_t kGraphics = 2;
    answer.capabilities = profile.suffix == "+gfx" ? kGraphics : 0;
    return Return::success;
  }
  if (version != versioned<GpuInstanceProfileInfoV2>(2)) return Return::argument_version_mismatch;
  auto& answer = *static_cast<GpuInstanceProfileInfoV2*>(info);
  fill(profile, answer);
  answer.is_p2p_supported = 0;
  write_name("MIG " + profile_name(board, profile), answer.name);
  return Return::success;
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetGpuInstanceProfileInfoV(Device* device, uint32_t query, void* info) {
  return with_profile(device, query,
                      [&](const Gpu&, const MigBoard& board, const GpuInstanceProfile& profile) {
                        return describe_profile(board, profile, info);
                      });
}
NVML_EXPORT Return nvmlDeviceGetGpuInstanceProfileInfoByIdV(Device* device, uint32_t id, void* info) {
  return with_profile_id(device, id,
                         [&](const Gpu&, const MigBoard& board, const GpuInstanceProfile& profile) {
                           return describe_profile(board, profile, info);
                         });
}

// A static table: it depends neither on what is taken nor on MIG being on.
NVML_EXPORT Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(Device* device, uint32_t id,
                                                                 void* placements, uint32_t* count) {
  return with_profile_id(device, id, [&](const Gpu&, const MigBoard&, const GpuInstanceProfile& profile) {
    return list_placements(profile.starts, profile.units, placements, count);
  });
}
NVML_EXPORT Return nvmlDeviceGetGpuInstancePossiblePlacements(Device* device, uint32_t id, void* placements,
                                                              uint32_t* count) {
  return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count);
}

NVML_EXPORT Return nvmlDeviceGetGpuInstanceRemainingCapacity(Device* device, uint32_t id, uint32_t* count) {
  return with_profile_id(device, id, [&](const Gpu& gpu, const MigBoard&, const GpuInstanceProfile& profile) {
    if (count == nullptr) return Return::invalid_argument;
    if (!gpu.model.mig_enabled(gpu.number)) return Return::not_supported;
    *count = gpu.model.mig_capacity(gpu.number, profile);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceCreateGpuInstance(Device* device, uint32_t id, GpuInstance** instance) {
  return create(device, id, nullptr, instance);
}
NVML_EXPORT Return nvmlDeviceCreateGpuInstanceWithPlacement(Device* device, uint32_t id,
                                                            const void* placement, GpuInstance** instance) {
  if (placement == nullptr) return with_session([](const Session&) { return Return::invalid_argument; });
  return create(device, id, static_cast<const Placement*>(placement), instance);
}

NVML_EXPORT Return nvmlGpuInstanceDestroy(GpuInstance* handle) {
  return with_instance(handle, [](const Gpu& gpu, const MigBoard&, const SharedGpuInstance& instance) {
    if (!may_change_mig()) return Return::no_permission;
    return return_of(gpu.model.destroy_gpu_instance(gpu.number, instance.id));
  });
}

NVML_EXPORT Return nvmlDeviceGetGpuInstances(Device* device, uint32_t id, GpuInstance** instances,
                                             uint32_t* count) {
  return with_profile_id(device, id, [&](const Gpu& gpu, const MigBoard&, const GpuInstanceProfile& profile) {
    if (any_null(instances, count)) return Return::invalid_argument;
    if (!gpu.model.mig_enabled(gpu.number)) return Return::not_supported;
    *count = 0;
    for (const SharedGpuInstance& instance : gpu.model.mig_layout(gpu.number).instances) {
      if (instance.exists == 0 || instance.profile != profile.id) continue;
      instances[(*count)++] = gpu_instance_handle(gpu.number, instance.id);
    }
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetGpuInstanceById(Device* device, uint32_t id, GpuInstance** instance) {
  return answer_one(device, instance, [&](const Gpu& gpu, GpuInstance*& answer) {
    if (!gpu.model.mig_enabled(gpu.number)) return Return::not_supported;
    if (!slot_of_instance(gpu.model.mig_layout(gpu.number), id)) return Return::not_found;
    answer = gpu_instance_handle(gpu.number, id);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlGpuInstanceGetInfo(GpuInstance* handle, void* info) {
  return with_instance(handle, [&](const Gpu& gpu, const MigBoard&, const SharedGpuInstance& instance) {
    if (info == nullptr) return Return::invalid_argument;
    *static_cast<GpuInstanceInfo*>(info) = {
        device_of_gpu(gpu.number), instance.id, instance.profile, {instance.start, instance.units}};
    return Return::success;
  });
}

namespace {

template <class Body>
Return with_compute_profile(GpuInstance* handle, uint32_t query, Body body) {
  return with_instance(handle, [&](const Gpu& gpu, const MigBoard& board, const SharedGpuInstance& instance) {
    const GpuInstanceProfile* const profile = profile_by_id(board, instance.profile);
    ComputeInstanceProfile compute{};
    if (query >= kComputeInstanceQueries) return Return::invalid_argument;
    if (profile == nullptr || !compute_profile(board, *profile, query, compute)) return Return::not_supported;
    return body(gpu, board, *profile, instance, compute);
  });
}

}  // namespace

NVML_EXPORT Return nvmlGpuInstanceGetComputeInstanceProfileInfo(GpuInstance* handle, uint32_t query,
                                                                uint32_t engine_profile, void* info) {
  return with_compute_profile(handle, query,
                              [&](const Gpu&, const MigBoard&, const GpuInstanceProfile& profile,
                                  const SharedGpuInstance&, const ComputeInstanceProfile& compute) {
                                if (info == nullptr || engine_profile != 0) return Return::invalid_argument;
                                fill(compute, profile, *static_cast<ComputeInstanceProfileInfo*>(info));
                                return Return::success;
                              });
}

NVML_EXPORT Return nvmlGpuInstanceGetComputeInstanceProfileInfoV(GpuInstance* handle, uint32_t query,
                                                                 uint32_t engine_profile, void* info) {
  return with_compute_profile(handle, query,
                              [&](const Gpu&, const MigBoard& board, const GpuInstanceProfile& profile,
                                  const SharedGpuInstance&, const ComputeInstanceProfile& compute) {
                                if (info == nullptr || engine_profile != 0) return Return::invalid_argument;
                                auto& answer = *static_cast<ComputeInstanceProfileInfoV2*>(info);
                                if (answer.version != versioned<ComputeInstanceProfileInfoV2>(2))
                                  return Return::argument_version_mismatch;
                                fill(compute, profile, answer);
                                const std::string part = compute.slices == profile.slices
                                                             ? ""
                                                             : std::to_string(compute.slices) + "c.";
                                write_name("MIG " + part + profile_name(board, profile), answer.name);
                                return Return::success;
                              });
}

NVML_EXPORT Return nvmlGpuInstanceGetComputeInstancePossiblePlacements(GpuInstance* handle, uint32_t query,
                                                                       void* placements, uint32_t* count) {
  return with_compute_profile(handle, query,
                              [&](const Gpu&, const MigBoard&, const GpuInstanceProfile&,
                                  const SharedGpuInstance&, const ComputeInstanceProfile& compute) {
                                return list_placements(compute.starts, compute.slices, placements, count);
                              });
}

NVML_EXPORT Return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(GpuInstance* handle, uint32_t query,
                                                                      uint32_t* count) {
  return with_compute_profile(handle, query,
                              [&](const Gpu&, const MigBoard&, const GpuInstanceProfile&,
                                  const SharedGpuInstance& instance, const ComputeInstanceProfile& compute) {
                                if (count == nullptr) return Return::invalid_argument;
                                uint32_t taken = 0;
                                for (const SharedComputeInstance& other : instance.compute) {
                                  if (other.exists != 0) taken |= ((1u << other.slices) - 1) << other.start;
                                }
                                *count = 0;
                                for (uint32_t start = 0; start < 8; ++start) {
                                  const uint32_t bits = ((1u << compute.slices) - 1) << start;
                                  if ((compute.starts >> start & 1u) != 0 && (taken & bits) == 0) ++*count;
                                }
                                return Return::success;
                              });
}

NVML_EXPORT Return nvmlGpuInstanceCreateComputeInstance(GpuInstance* handle, uint32_t id,
                                                        ComputeInstance** instance) {
  return create_compute(handle, id, nullptr, instance);
}
NVML_EXPORT Return nvmlGpuInstanceCreateComputeInstanceWithPlacement(GpuInstance* handle, uint32_t id,
                                                                     const void* placement,
                                                                     ComputeInstance** instance) {
  if (placement == nullptr) return with_session([](const Session&) { return Return::invalid_argument; });
  return create_compute(handle, id, static_cast<const Placement*>(placement), instance);
}

NVML_EXPORT Return nvmlGpuInstanceGetComputeInstances(GpuInstance* handle, uint32_t id,
                                                      ComputeInstance** instances, uint32_t* count) {
  return with_instance(handle, [&](const Gpu& gpu, const MigBoard&, const SharedGpuInstance& instance) {
    if (any_null(instances, count)) return Return::invalid_argument;
    *count = 0;
    for (uint32_t number = 0; number < kMaxComputeInstances; ++number) {
      const SharedComputeInstance& compute = instance.compute[number];
      if (compute.exists == 0 || compute.profile != id) continue;
      instances[(*count)++] = compute_instance_handle({gpu.number, instance.id, number});
    }
    return Return::success;
  });
}

NVML_EXPORT Return nvmlGpuInstanceGetComputeInstanceById(GpuInstance* handle, uint32_t id,
                                                         ComputeInstance** instance) {
  return with_instance(handle, [&](const Gpu& gpu, const MigBoard&, const SharedGpuInstance& parent) {
    if (instance == nullptr) return Return::invalid_argument;
    if (id >= kMaxComputeInstances || parent.compute[id].exists == 0) return Return::not_found;
    *instance = compute_instance_handle({gpu.number, parent.id, id});
    return Return::success;
  });
}

NVML_EXPORT Return nvmlComputeInstanceDestroy(ComputeInstance* handle) {
  const std::optional<MigPlace> place = place_of(handle);
  if (!place) return with_session([](const Session&) { return Return::invalid_argument; });
  return with_gpu(device_of_gpu(place->gpu), [&](const Gpu& gpu) {
    if (!may_change_mig()) return Return::no_permission;
    return return_of(
        gpu.model.destroy_compute_instance(gpu.number, place->gpu_instance, place->compute_instance));
  });
}

NVML_EXPORT Return nvmlComputeInstanceGetInfo_v2(ComputeInstance* handle, void* info) {
  const std::optional<MigPlace> place = place_of(handle);
  if (!place) return with_session([](const Session&) { return Return::invalid_argument; });
  return with_instance(gpu_instance_handle(place->gpu, place->gpu_instance),
                       [&](const Gpu&, const MigBoard&, const SharedGpuInstance& parent) {
                         if (info == nullptr) return Return::invalid_argument;
                         const SharedComputeInstance& compute = parent.compute[place->compute_instance];
                         if (compute.exists == 0) return Return::not_found;
                         *static_cast<ComputeInstanceInfo*>(info) = {
                             mig_device_handle(*place),
                             gpu_instance_handle(place->gpu, place->gpu_instance),
                             place->compute_instance,
                             compute.profile,
                             {compute.start, compute.slices}};
                         return Return::success;
                       });
}
NVML_EXPORT Return nvmlComputeInstanceGetInfo(ComputeInstance* handle, void* info) {
  return nvmlComputeInstanceGetInfo_v2(handle, info);
}

}  // namespace tranche::emulator::nvml
