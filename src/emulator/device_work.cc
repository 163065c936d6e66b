// What a process's account is charged for: device memory and GPU time.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "emulator/gpu_lock.h"

namespace tranche::emulator {
namespace {

// How long a waiting process trusts its neighbours to be alive: a killed one makes room earlier. With one
// process at work, which is nearly always the one that waits, looking seldom is enough.
constexpr uint64_t kNeighbourCheckNs = 50'000'000;
constexpr uint64_t kLoneCheckNs = 1'000'000'000;
constexpr uint64_t kLeastSleepNs = 1000;  // a wait never spins, however near its end is said to be

uint32_t* word_of(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

// Sleeps until `deadline_ns` on CLOCK_MONOTONIC or until `word` is no longer `seen`.
void sleep_until(std::atomic<uint32_t>& word, uint32_t seen, uint64_t deadline_ns) {
  timespec deadline;
  deadline.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000);
  deadline.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
  syscall(SYS_futex, word_of(word), FUTEX_WAIT_BITSET, seen, &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

// Takes at most what a row holds, from the row and from the GPU's sum alike.
void take(uint64_t& row, uint64_t& sum, uint64_t bytes) {
  const uint64_t taken = std::min(row, bytes);
  row -= taken;
  sum -= std::min(sum, taken);
}

void remember_peak(SharedUse& use) {
  use.memory_peak_bytes = std::max(use.memory_peak_bytes, use.context_bytes + use.memory_bytes);
}

}  // namespace

void DeviceModel::wake_waiters(uint32_t gpu) {
  std::atomic<uint32_t>& word = state_->gpus[gpu].wake_count;
  word.fetch_add(1);
  syscall(SYS_futex, word_of(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

uint64_t DeviceModel::room(uint32_t gpu) const {
  const uint64_t free = usable_bytes(gpu) - std::min(usable_bytes(gpu), state_->gpus[gpu].used_bytes);
  const uint64_t in_instance = own_slot_ < kMaxProcesses ? instance_room(own_slot_, gpu) : UINT64_MAX;
  return std::min({free, memory_limit_room(gpu), in_instance});
}

uint64_t DeviceModel::memory_room(uint32_t gpu) const {
  const uint64_t limit = own_limits_[gpu];
  if (limit == UINT64_MAX || own_slot_ >= kMaxProcesses) return room(gpu);
  const uint64_t has = state_->uses[own_slot_][gpu].memory_bytes;
  return std::min(room(gpu), limit - std::min(limit, has));
}

DeviceModel::Others DeviceModel::others(uint32_t slot, uint32_t gpu) const {
  Others others;
  each_process([&](uint32_t other) {
    const SharedUse& use = state_->uses[other][gpu];
    if (other == slot || use.contexts == 0) return;
    ++others.count;
    others.any_lost = others.any_lost || use.fault.load() != 0;
  });
  return others;
}

// The modes are NVML's numbers. All clients of MPS are one process to the exclusive mode: its server.
Admission DeviceModel::admit_context(uint32_t slot, uint32_t gpu, uint64_t bytes) {
  constexpr uint32_t kProhibited = 2, kExclusiveProcess = 3;
  constexpr uint32_t kMpsClientsMax = 48;  // the vendor's MPS guide, from Volta on
  reap();
  GpuLock lock(*this, gpu);
  const uint32_t mode = lock.gpu().settings.compute_mode.load();
  if (mode == kProhibited) return Admission::prohibited;
  if (mode == kExclusiveProcess || is_mps(gpu)) {
    const Others others = this->others(slot, gpu);
    if (!is_mps(gpu) && others.count > 0) return Admission::used_by_another;
    if (is_mps(gpu) && others.any_lost) return Admission::mps_recovers;
    if (is_mps(gpu) && others.count >= kMpsClientsMax) return Admission::mps_is_full;
  }
  if (bytes > room(gpu) && !win_back(lock, gpu, bytes)) return Admission::out_of_memory;
  SharedUse& use = state_->uses[slot][gpu];
  use.contexts += 1;
  use.context_bytes += bytes;
  remember_peak(use);
  lock.gpu().used_bytes += bytes;
  return Admission::admitted;
}

bool DeviceModel::add_context(uint32_t slot, uint32_t gpu, uint64_t bytes) {
  return admit_context(slot, gpu, bytes) == Admission::admitted;
}

void DeviceModel::remove_context(uint32_t slot, uint32_t gpu, uint64_t bytes) {
  GpuLock lock(*this, gpu);
  SharedUse& use = state_->uses[slot][gpu];
  use.contexts -= std::min<uint64_t>(use.contexts, 1);
  take(use.context_bytes, lock.gpu().used_bytes, bytes);
}

bool DeviceModel::charge(uint32_t slot, uint32_t gpu, uint64_t bytes) {
  for (bool reaped = false;; reaped = true) {
    {
      GpuLock lock(*this, gpu);
      const bool fits = bytes <= memory_room(gpu);
      if (fits || (reaped && win_back(lock, gpu, bytes) && bytes <= memory_room(gpu))) {
        SharedUse& use = state_->uses[slot][gpu];
        use.memory_bytes += bytes;
        remember_peak(use);
        lock.gpu().used_bytes += bytes;
        return true;
      }
    }
    if (reaped) return false;
    reap();  // the dead may be what is in the way
  }
}

void DeviceModel::discharge(uint32_t slot, uint32_t gpu, uint64_t bytes) {
  GpuLock lock(*this, gpu);
  take(state_->uses[slot][gpu].memory_bytes, lock.gpu().used_bytes, bytes);
}

uint64_t DeviceModel::free_bytes(uint32_t gpu) {
  reap();
  GpuLock lock(*this, gpu);
  return memory_room(gpu);
}

Launched DeviceModel::launch(uint32_t slot, uint32_t gpu, const GpuWork& work) {
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  SharedUse& use = state_->uses[slot][gpu];
  ++use.launches;
  const GpuWork own = on_own_multiprocessors(slot, gpu, work);
  const uint32_t demand = own.copy ? 0 : std::clamp<uint32_t>(own.demand, 1, 1000);
  Timeline& timeline = lock.timeline_of(slot);
  const uint64_t before = use.timeline.finish_tag;
  Launched launched{enqueue(timeline, lock.uses(), slot, own.ns, demand), use.timeline.served_tag, {}};
  if (!own.copy) return launched;
  const uint64_t start = expected_time(timeline, lock.uses(), slot, before);
  launched.transfer = {start, start + std::max<uint64_t>(own.ns, 1), 0};
  for (const Bus direction : {Bus::to_gpu, Bus::from_gpu}) {
    SharedTransfer part = launched.transfer;
    part.bytes = own.bus_bytes[static_cast<size_t>(direction)];
    if (part.bytes > 0) note_transfer(lock.gpu(), direction, part);
  }
  return launched;
}

void DeviceModel::count_transfer(uint32_t gpu, Bus direction, const SharedTransfer& transfer) {
  GpuLock lock(*this, gpu);
  note_transfer(lock.gpu(), direction, transfer);
}

Launched DeviceModel::position(uint32_t slot, uint32_t gpu) {
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  const ProcessTimeline& own = state_->uses[slot][gpu].timeline;
  return {own.finish_tag, own.served_tag};
}

// What was dropped with a dead process or a lost context counts as done.
bool DeviceModel::is_done(uint32_t slot, uint32_t gpu, uint64_t tag) {
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  const ProcessTimeline& own = state_->uses[slot][gpu].timeline;
  return own.served_tag >= tag || !own.has_work();
}

void DeviceModel::wait(uint32_t slot, uint32_t gpu, uint64_t tag) {
  std::atomic<uint32_t>& word = state_->gpus[gpu].wake_count;
  for (;;) {
    const uint32_t seen = word.load();
    uint64_t deadline = 0;
    bool alone = false;
    {
      GpuLock lock(*this, gpu);
      lock.advance_to_now();
      const ProcessTimeline& own = state_->uses[slot][gpu].timeline;
      if (own.served_tag >= tag || !own.has_work()) return;
      if (own_fault(gpu) != 0) return;  // its work is gone, while others' goes on
      const Timeline& timeline = lock.timeline_of(slot);
      deadline = std::max(expected_time(timeline, lock.uses(), slot, tag), timeline.now + kLeastSleepNs);
      alone = timeline.active_count == 1;
    }
    if (lock_step_client_ >= 0) {
      sleep_in_lock_step(deadline);
      continue;
    }
    const uint64_t check = monotonic_now() + (alone ? kLoneCheckNs : kNeighbourCheckNs);
    const bool long_wait = check < deadline;
    sleep_until(word, seen, long_wait ? check : deadline);
    if (long_wait) reap();
  }
}

uint64_t DeviceModel::time_done(uint32_t slot, uint32_t gpu, uint64_t tag, uint64_t not_before,
                                uint64_t tag_then) {
  GpuLock lock(*this, gpu);
  return time_reached(state_->uses[slot][gpu].timeline, tag, not_before, tag_then);
}

void DeviceModel::set_sharing(uint32_t gpu, Sharing sharing) {
  {
    GpuLock lock(*this, gpu);
    lock.advance_to_now();
    lock.timeline().sharing = sharing;
    for (Timeline& timeline : lock.gpu().instance_timelines) timeline.sharing = sharing;
  }
  wake_waiters(gpu);
}

void DeviceModel::cancel(uint32_t slot, uint32_t gpu) {
  {
    GpuLock lock(*this, gpu);
    lock.advance_to_now();
    abandon(lock.timeline_of(slot), lock.uses(), slot);
  }
  wake_waiters(gpu);
}

}  // namespace tranche::emulator
