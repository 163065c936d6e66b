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

bool DeviceModel::add_context(uint32_t slot, uint32_t gpu, uint64_t bytes) {
  reap();
  GpuLock lock(*this, gpu);
  if (bytes > room(gpu)) return false;
  SharedUse& use = state_->uses[slot][gpu];
  use.contexts += 1;
  use.context_bytes += bytes;
  remember_peak(use);
  lock.gpu().used_bytes += bytes;
  return true;
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
      if (bytes <= room(gpu)) {
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
  return room(gpu);
}

Launched DeviceModel::launch(uint32_t slot, uint32_t gpu, uint64_t work_ns) {
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  ++state_->uses[slot][gpu].launches;
  return {enqueue(lock.timeline(), lock.uses(), slot, work_ns), lock.timeline().virtual_time};
}

uint64_t DeviceModel::queued(uint32_t slot, uint32_t gpu) {
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  return std::max(state_->uses[slot][gpu].timeline.finish_tag, lock.timeline().virtual_time);
}

bool DeviceModel::is_done(uint32_t gpu, uint64_t tag) {
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  return lock.timeline().virtual_time >= tag;
}

void DeviceModel::wait(uint32_t gpu, uint64_t tag) {
  std::atomic<uint32_t>& word = state_->gpus[gpu].wake_count;
  for (;;) {
    const uint32_t seen = word.load();
    uint64_t deadline = 0;
    bool alone = false;
    {
      GpuLock lock(*this, gpu);
      lock.advance_to_now();
      if (lock.timeline().virtual_time >= tag || lock.timeline().active_count == 0) return;
      if (own_fault(gpu) != 0) return;  // its work is gone, while others' goes on
      deadline = expected_time(lock.timeline(), lock.uses(), tag);
      alone = lock.timeline().active_count == 1;
    }
    const uint64_t check = monotonic_now() + (alone ? kLoneCheckNs : kNeighbourCheckNs);
    const bool long_wait = check < deadline;
    sleep_until(word, seen, long_wait ? check : deadline);
    if (long_wait) reap();
  }
}

uint64_t DeviceModel::time_done(uint32_t gpu, uint64_t tag) {
  GpuLock lock(*this, gpu);
  return time_reached(lock.timeline(), tag);
}

void DeviceModel::cancel(uint32_t slot, uint32_t gpu) {
  {
    GpuLock lock(*this, gpu);
    lock.advance_to_now();
    abandon(lock.timeline(), lock.uses(), slot);
  }
  wake_waiters(gpu);
}

}  // namespace tranche::emulator
