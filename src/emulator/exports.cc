// Memory that processes share by a file: who holds it, and who is charged for it (export_state.h).

#include <algorithm>

#include "emulator/gpu_lock.h"

namespace tranche::emulator {

SharedExport* DeviceModel::find_export(uint64_t key) {
  SharedExports& all = state_->exports;
  const uint32_t count = std::min(all.high_water.load(), kMaxExports);
  for (uint32_t i = 0; i < count; ++i) {
    if (all.rows[i].in_use.load() != 0 && all.rows[i].key == key) return &all.rows[i];
  }
  return nullptr;
}

bool DeviceModel::share_memory(uint32_t slot, uint32_t gpu, uint64_t key, uint64_t bytes) {
  RobustLock lock(state_->table_lock, [this] { repair_table(); });
  SharedExports& all = state_->exports;
  const auto unused = std::find_if(all.rows.begin(), all.rows.end(),
                                   [](const SharedExport& row) { return row.in_use.load() == 0; });
  if (unused == all.rows.end()) return false;
  unused->gpu = gpu;
  unused->key = key;
  unused->bytes = bytes;
  unused->payer = slot;
  unused->holders = {};
  unused->set_held(slot, true);
  const auto number = static_cast<uint32_t>(unused - all.rows.begin());
  if (number >= all.high_water.load()) all.high_water.store(number + 1);
  unused->in_use.store(1);  // last: it is valid from here on
  return true;
}

bool DeviceModel::hold_memory(uint32_t slot, uint64_t key) {
  RobustLock lock(state_->table_lock, [this] { repair_table(); });
  SharedExport* const row = find_export(key);
  if (row != nullptr) row->set_held(slot, true);
  return row != nullptr;
}

void DeviceModel::drop_memory(uint32_t slot, uint64_t key) {
  RobustLock lock(state_->table_lock, [this] { repair_table(); });
  if (SharedExport* const row = find_export(key)) drop_export(*row, slot);
}

// The table lock is held; whoever is dead has no say in who pays next.
void DeviceModel::drop_export(SharedExport& row, uint32_t slot) {
  row.set_held(slot, false);
  if (row.payer != slot) return;
  uint32_t next = kMaxProcesses;
  each_process([&](uint32_t other) {
    int32_t pid = 0;
    if (next == kMaxProcesses && row.is_held_by(other) && is_alive(other, pid)) next = other;
  });
  const uint32_t gpu = row.gpu % kMaxGpus;
  GpuLock lock(*this, gpu);
  SharedUse& own = state_->uses[slot][gpu];
  const uint64_t bytes = std::min(row.bytes, own.memory_bytes);
  if (next < kMaxProcesses) {
    state_->uses[next][gpu].memory_bytes += bytes;
    row.payer = next;
  } else {
    lock.gpu().used_bytes -= std::min(lock.gpu().used_bytes, bytes);
    row.in_use.store(0);
  }
  own.memory_bytes -= bytes;
}

void DeviceModel::drop_exports_of(uint32_t slot) {
  const uint32_t count = std::min(state_->exports.high_water.load(), kMaxExports);
  for (uint32_t i = 0; i < count; ++i) {
    SharedExport& row = state_->exports.rows[i];
    if (row.in_use.load() != 0 && row.is_held_by(slot)) drop_export(row, slot);
  }
}

}  // namespace tranche::emulator
