#include "emulator/mig_devices.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/random.h"
#include "emulator/gpu_lock.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kBytesPerMiB = uint64_t{1} << 20;

// Another UUID for each instance that is ever made, of the GPU's own and how many there were.
void name_instance(SharedComputeInstance& instance, const GpuIdentity& gpu, uint64_t made) {
  uint64_t seed = 0;
  std::memcpy(&seed, gpu.uuid.data(), sizeof seed);
  Random random(seed ^ (made * 0x9E3779B97F4A7C15));
  for (size_t word = 0; word < 2; ++word) {
    const uint64_t bits = random.next();
    std::memcpy(instance.uuid.data() + 8 * word, &bits, sizeof bits);
  }
  instance.uuid[6] = static_cast<uint8_t>((instance.uuid[6] & 0x0F) | 0x50);  // RFC 9562 version 5
  instance.uuid[8] = static_cast<uint8_t>((instance.uuid[8] & 0x3F) | 0x80);
  std::string text = "MIG-";
  for (size_t i = 0; i < instance.uuid.size(); ++i) {
    std::array<char, 3> hex;
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned>(instance.uuid[i]));
    text += hex.data();
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  text.copy(instance.uuid_text.data(), instance.uuid_text.size() - 1);
}

MigDeviceInfo describe(const MigBoard& board, uint32_t gpu, const SharedGpuInstance& instance, uint32_t id) {
  const SharedComputeInstance& compute = instance.compute[id];
  MigDeviceInfo info;
  info.gpu = gpu;
  info.gpu_instance = instance.id;
  info.compute_instance = id;
  info.uuid_text.assign(compute.uuid_text.data(),
                        strnlen(compute.uuid_text.data(), compute.uuid_text.size()));
  info.uuid = compute.uuid;
  info.multiprocessors = compute.multiprocessors;
  info.executor = compute.executor % kMaxExecutors;
  info.compute_slices = compute.slices;
  info.profile = profile_by_id(board, instance.profile);
  if (info.profile == nullptr) return info;  // somebody has spoilt the shared memory
  info.slices = info.profile->slices;
  info.memory_bytes = info.profile->memory_mib * kBytesPerMiB;
  info.name = profile_name(board, *info.profile);
  if (compute.slices != info.profile->slices) info.name = std::to_string(compute.slices) + "c." + info.name;
  return info;
}

}  // namespace

uint64_t DeviceModel::instance_bytes(uint32_t gpu, uint32_t gpu_instance) const {
  const MigBoard* const board = mig(gpu);
  const SharedMig& layout = state_->gpus[gpu].mig;
  const auto slot = slot_of_instance(layout, gpu_instance);
  if (board == nullptr || !slot) return 0;  // destroyed under a process that cannot have been there
  const GpuInstanceProfile* const profile = profile_by_id(*board, layout.instances[*slot].profile);
  return profile == nullptr ? 0 : profile->memory_mib * kBytesPerMiB;
}

uint64_t DeviceModel::used_in_instance(uint32_t gpu, uint32_t gpu_instance) const {
  uint64_t used = 0;
  each_process([&](uint32_t slot) {
    const SharedUse& use = state_->uses[slot][gpu];
    if (use.gpu_instance_plus_one.load() == gpu_instance + 1) used += use.context_bytes + use.memory_bytes;
  });
  return used;
}

uint64_t DeviceModel::instance_room(uint32_t slot, uint32_t gpu) const {
  const uint32_t instance = state_->uses[slot][gpu].gpu_instance_plus_one.load();
  if (instance == 0) return UINT64_MAX;
  const uint64_t size = instance_bytes(gpu, instance - 1);
  return size - std::min(size, used_in_instance(gpu, instance - 1));
}

uint64_t DeviceModel::used_bytes(uint32_t gpu, uint32_t gpu_instance) {
  reap();
  GpuLock lock(*this, gpu);
  return used_in_instance(gpu, gpu_instance);
}

uint32_t DeviceModel::executor_of(uint32_t slot, const SharedGpu& gpu) const {
  if (gpu.mig.enabled == 0) return kMaxExecutors;
  const auto number = static_cast<size_t>(&gpu - state_->gpus.data());
  const uint32_t own = state_->uses[slot % kMaxProcesses][number].executor_plus_one.load();
  return own == 0 ? kMaxExecutors : (own - 1) % kMaxExecutors;
}

GpuWork DeviceModel::on_own_multiprocessors(uint32_t slot, uint32_t gpu, const GpuWork& work) const {
  const uint64_t own = state_->uses[slot][gpu].multiprocessors.load();
  if (own == 0 || work.copy || !mig_enabled(gpu)) return work;
  const uint64_t there = own * 1000, needed = uint64_t{board(gpu).multiprocessors} * work.demand;
  GpuWork scaled = work;
  scaled.demand = static_cast<uint32_t>(std::clamp<uint64_t>(needed * 1000 / there, 1, 1000));
  const uint64_t ns = std::min(work.ns, kBacklogMaxNs);
  if (needed > there) scaled.ns = ns / there * needed + ns % there * needed / there;
  return scaled;
}

uint64_t DeviceModel::busy_ns(uint32_t gpu) const {
  const SharedGpu& shared = state_->gpus[gpu];
  uint64_t busy = shared.timeline.busy_ns + shared.retired_busy_ns;
  each_executor(gpu, [&](const Timeline& timeline, uint64_t multiprocessors) {
    busy += timeline.busy_ns / board(gpu).multiprocessors * multiprocessors;
  });
  return busy;
}

uint64_t DeviceModel::busy_in(uint32_t gpu, uint64_t period) const {
  uint64_t busy = state_->gpus[gpu].timeline.history.busy_in(period);
  each_executor(gpu, [&](const Timeline& timeline, uint64_t multiprocessors) {
    busy += timeline.history.busy_in(period) * multiprocessors / board(gpu).multiprocessors;
  });
  return busy;
}

uint64_t DeviceModel::instance_busy_ns(const MigDeviceInfo& device) {
  GpuLock lock(*this, device.gpu);
  lock.advance_to_now();
  return lock.gpu().instance_timelines[device.executor % kMaxExecutors].busy_ns;
}

bool DeviceModel::has_contexts(uint32_t gpu, std::optional<uint32_t> gpu_instance,
                               std::optional<uint32_t> compute_instance) const {
  bool found = false;
  each_process([&](uint32_t slot) {
    const SharedUse& use = state_->uses[slot][gpu];
    if (use.contexts == 0) return;
    if (gpu_instance && use.gpu_instance_plus_one.load() != *gpu_instance + 1) return;
    if (compute_instance && use.compute_instance_plus_one.load() != *compute_instance + 1) return;
    found = true;
  });
  return found;
}

void DeviceModel::retire_instances(GpuLock& lock) const {
  const auto gpu = static_cast<uint32_t>(&lock.gpu() - state_->gpus.data());
  lock.gpu().retired_busy_ns = busy_ns(gpu) - lock.timeline().busy_ns;
  for (Timeline& timeline : lock.gpu().instance_timelines) timeline = {};
}

MigResult DeviceModel::set_mig_mode(uint32_t gpu, bool on) {
  if (mig(gpu) == nullptr) return MigResult::not_supported;
  reap();
  GpuLock lock(*this, gpu);
  SharedMig& layout = lock.gpu().mig;
  layout.pending = on ? 1 : 0;
  if (layout.enabled == layout.pending) return MigResult::done;
  if (has_contexts(gpu, {}, {}) || occupied_units(layout) != 0) return MigResult::in_use;
  retire_instances(lock);
  reset_layout(layout);
  return MigResult::done;
}

SharedMig DeviceModel::mig_layout(uint32_t gpu) {
  GpuLock lock(*this, gpu);
  return lock.gpu().mig;
}

MigResult DeviceModel::create_gpu_instance(uint32_t gpu, uint32_t profile_id, std::optional<uint32_t> start,
                                           uint32_t& id) {
  const MigBoard* const board = mig(gpu);
  if (board == nullptr) return MigResult::not_supported;
  const GpuInstanceProfile* const profile = profile_by_id(*board, profile_id);
  if (profile == nullptr) return MigResult::invalid;
  GpuLock lock(*this, gpu);
  uint32_t slot = 0;
  const MigResult result = emulator::create_gpu_instance(lock.gpu().mig, *board, *profile, start, slot);
  if (result == MigResult::done) id = lock.gpu().mig.instances[slot].id;
  return result;
}

MigResult DeviceModel::destroy_gpu_instance(uint32_t gpu, uint32_t id) {
  reap();
  GpuLock lock(*this, gpu);
  const auto slot = slot_of_instance(lock.gpu().mig, id);
  return slot ? emulator::destroy_gpu_instance(lock.gpu().mig, *slot) : MigResult::not_found;
}

MigResult DeviceModel::create_compute_instance(uint32_t gpu, uint32_t gpu_instance, uint32_t query,
                                               std::optional<uint32_t> start, uint32_t& id) {
  const MigBoard* const board = mig(gpu);
  if (board == nullptr) return MigResult::not_supported;
  GpuLock lock(*this, gpu);
  SharedMig& layout = lock.gpu().mig;
  const auto slot = slot_of_instance(layout, gpu_instance);
  if (!slot) return MigResult::not_found;
  const MigResult result = emulator::create_compute_instance(layout, *board, *slot, query, start, id);
  if (result != MigResult::done) return result;
  SharedComputeInstance& made = layout.instances[*slot].compute[id];
  name_instance(made, lock.gpu().identity, layout.made);
  Timeline& timeline = lock.gpu().instance_timelines[made.executor];
  timeline = {};
  timeline.now = now();
  timeline.sharing = lock.timeline().sharing;
  timeline.slowed_by = lock.timeline().slowed_by;
  return result;
}

MigResult DeviceModel::destroy_compute_instance(uint32_t gpu, uint32_t gpu_instance, uint32_t id) {
  reap();
  GpuLock lock(*this, gpu);
  const auto slot = slot_of_instance(lock.gpu().mig, gpu_instance);
  if (!slot || id >= kMaxComputeInstances) return MigResult::not_found;
  SharedComputeInstance& compute = lock.gpu().mig.instances[*slot].compute[id];
  if (compute.exists == 0) return MigResult::not_found;
  if (has_contexts(gpu, gpu_instance, id)) return MigResult::in_use;
  const uint64_t busy = lock.gpu().instance_timelines[compute.executor % kMaxExecutors].busy_ns;
  lock.gpu().retired_busy_ns += busy / board(gpu).multiprocessors * compute.multiprocessors;
  compute = {};
  return MigResult::done;
}

uint32_t DeviceModel::mig_capacity(uint32_t gpu, const GpuInstanceProfile& profile) {
  const MigBoard* const board = mig(gpu);
  if (board == nullptr) return 0;
  GpuLock lock(*this, gpu);
  return remaining_capacity(lock.gpu().mig, *board, profile);
}

std::vector<MigDeviceInfo> DeviceModel::mig_devices(uint32_t gpu) {
  std::vector<MigDeviceInfo> devices;
  const MigBoard* const board = mig(gpu);
  if (board == nullptr || !mig_enabled(gpu)) return devices;
  const SharedMig layout = mig_layout(gpu);
  for (uint32_t unit = 0; unit < board->units; ++unit) {
    for (const SharedGpuInstance& instance : layout.instances) {
      if (instance.exists == 0 || instance.start != unit) continue;
      for (uint32_t id = 0; id < kMaxComputeInstances; ++id) {
        if (instance.compute[id].exists == 0) continue;
        devices.push_back(describe(*board, gpu, instance, id));
        devices.back().gpu_minor = identity(gpu).minor;
      }
    }
  }
  return devices;
}

MigResult DeviceModel::reset_gpu(uint32_t gpu) {
  reap();
  GpuLock lock(*this, gpu);
  if (has_contexts(gpu, {}, {})) return MigResult::in_use;
  retire_instances(lock);
  reset_layout(lock.gpu().mig);
  return MigResult::done;
}

void DeviceModel::reboot() {
  for (uint32_t gpu = 0; gpu < gpu_count_; ++gpu) {
    const MigBoard* const board = mig(gpu);
    if (board == nullptr) continue;
    GpuLock lock(*this, gpu);
    if (!board->mode_survives_reboot) lock.gpu().mig.pending = 0;
    retire_instances(lock);
    reset_layout(lock.gpu().mig);
  }
}

void DeviceModel::use_mig_device(uint32_t slot, const MigDeviceInfo& device) {
  SharedUse& use = state_->uses[slot][device.gpu];
  use.executor_plus_one.store(device.executor + 1);
  use.multiprocessors.store(device.multiprocessors);
  use.compute_instance_plus_one.store(device.compute_instance + 1);
  use.gpu_instance_plus_one.store(device.gpu_instance + 1);
}

}  // namespace tranche::emulator
