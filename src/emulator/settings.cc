// What an administrator can change of a GPU: accounting, and what copies moved.

#include <algorithm>

#include "emulator/gpu_lock.h"

namespace tranche::emulator {

void DeviceModel::set_accounting(uint32_t gpu, bool on) {
  settings(gpu).accounting.store(on ? 1 : 0);
  clear_accounting(gpu);
}

void DeviceModel::clear_accounting(uint32_t gpu) {
  GpuLock lock(*this, gpu);
  lock.gpu().accounting = {};
}

void DeviceModel::remember_ended(uint32_t slot, uint32_t gpu) {
  if (settings(gpu).accounting.load() == 0) return;
  const SharedProcess& process = state_->processes[slot];
  const SharedUse& use = state_->uses[slot][gpu];
  SharedAccounting& accounting = state_->gpus[gpu].accounting;
  accounting.ended[accounting.count % kEndedProcessesKept] = {
      .pid = process.pid,
      .busy_ns = use.timeline.busy_tags / kTagsPerNanosecond,
      .peak_bytes = use.memory_peak_bytes,
      .came_ns = process.came_ns,
      .ended_ns = monotonic_now()};
  ++accounting.count;
}

std::vector<AccountReading> DeviceModel::accounts(uint32_t gpu) {
  reap();
  std::vector<AccountReading> accounts;
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  each_process([&](uint32_t slot) {
    const SharedUse& use = state_->uses[slot][gpu];
    if (use.memory_peak_bytes == 0) return;
    int32_t pid = 0;
    if (!is_alive(slot, pid) || pid <= 0) return;
    accounts.push_back({.pid = pid,
                        .is_running = true,
                        .busy_ns = use.timeline.busy_tags / kTagsPerNanosecond,
                        .peak_bytes = use.memory_peak_bytes,
                        .came_ns = state_->processes[slot].came_ns,
                        .ended_ns = lock.timeline().now});
  });
  const SharedAccounting& accounting = lock.gpu().accounting;
  const uint64_t kept = std::min<uint64_t>(accounting.count, kEndedProcessesKept);
  for (uint64_t age = 1; age <= kept; ++age) {  // newest first
    const SharedEndedProcess& ended = accounting.ended[(accounting.count - age) % kEndedProcessesKept];
    accounts.push_back({ended.pid, false, ended.busy_ns, ended.peak_bytes, ended.came_ns, ended.ended_ns});
  }
  return accounts;
}

void DeviceModel::count_copied(uint32_t gpu, bool to_gpu, uint64_t bytes) {
  SharedGpuSettings& shared = settings(gpu);
  (to_gpu ? shared.bytes_to_gpu : shared.bytes_from_gpu).fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace tranche::emulator
