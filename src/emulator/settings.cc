// What an administrator can change of a GPU: clocks, accounting; and what copies moved over PCIe.

#include <algorithm>
#include <cmath>

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

void DeviceModel::lock_clocks(uint32_t gpu, uint32_t least_mhz, uint32_t most_mhz) {
  change_clock(gpu, [&] {
    settings(gpu).clock_min_mhz.store(least_mhz);
    settings(gpu).clock_max_mhz.store(most_mhz);
  });
}

// Transfers at one rate that follow each other closely become one, so that many small copies are remembered
// too.
void DeviceModel::note_transfer(SharedGpu& gpu, Bus direction, const SharedTransfer& transfer) {
  constexpr uint64_t kCloseNs = 5000;
  const auto rate = [](const SharedTransfer& it) {
    return static_cast<double>(it.bytes) /
           static_cast<double>(std::max<uint64_t>(it.end_ns - it.start_ns, 1));
  };
  SharedTransfers& transfers = gpu.transfers[static_cast<size_t>(direction)];
  transfers.bytes += transfer.bytes;
  SharedTransfer& last = transfers.newest[(transfers.count + kTransfersKept - 1) % kTransfersKept];
  const bool follows = transfers.count > 0 && transfer.start_ns >= last.end_ns &&
                       transfer.start_ns - last.end_ns < kCloseNs &&
                       std::abs(rate(last) - rate(transfer)) < rate(transfer) / 16;
  if (follows) {
    last.end_ns = transfer.end_ns;
    last.bytes += transfer.bytes;
    return;
  }
  transfers.newest[transfers.count % kTransfersKept] = transfer;
  ++transfers.count;
}

uint64_t DeviceModel::bytes_moved(uint32_t gpu, Bus direction) {
  GpuLock lock(*this, gpu);
  SharedTransfers& transfers = lock.gpu().transfers[static_cast<size_t>(direction)];
  const uint64_t time = now();
  uint64_t still_to_go = 0;
  for (const SharedTransfer& transfer : transfers.newest) {
    if (transfer.end_ns <= time) continue;
    const uint64_t span = transfer.end_ns - std::min(transfer.start_ns, transfer.end_ns - 1);
    const uint64_t left = std::min(transfer.end_ns - time, span);
    still_to_go += static_cast<uint64_t>(static_cast<double>(transfer.bytes) * static_cast<double>(left) /
                                         static_cast<double>(span));
  }
  transfers.told = std::max(transfers.told, transfers.bytes - std::min(transfers.bytes, still_to_go));
  return transfers.told;
}

}  // namespace tranche::emulator
