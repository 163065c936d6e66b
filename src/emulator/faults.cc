// Faults: what is set by command while programs run, and what it does to them.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>

#include "emulator/gpu_lock.h"
#include "emulator/xid.h"

namespace tranche::emulator {
namespace {

uint32_t* futex_word(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, futex_word(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Sleeps until `deadline_ns` on CLOCK_MONOTONIC, or for ever, or until `word` is no longer `seen`.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, uint64_t deadline_ns) {
  timespec deadline;
  deadline.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000);
  deadline.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
  syscall(SYS_futex, futex_word(word), FUTEX_WAIT_BITSET, seen, deadline_ns == kForEver ? nullptr : &deadline,
          nullptr, FUTEX_BITSET_MATCH_ANY);
}

void wait_while(SharedBlock& block) {
  for (;;) {
    const uint32_t seen = block.wake.load();
    const uint64_t until = block.until_ns.load();
    if (until == 0 || (until != kForEver && monotonic_now() >= until)) return;
    sleep_on(block.wake, seen, until);
  }
}

void zero(EccCounters& counters) {
  for (auto& type : counters) {
    for (auto& counter : type) counter.store(0);
  }
}

}  // namespace

int32_t DeviceModel::own_fault(uint32_t gpu) const {
  return own_slot_ < kMaxProcesses ? state_->uses[own_slot_][gpu].fault.load(std::memory_order_acquire) : 0;
}

int32_t DeviceModel::refusal(uint32_t gpu) const {
  const SharedGpuFaults& faults = state_->gpus[gpu].faults;
  const bool refuses = faults.lost.load() != 0 || faults.recovery.load() != 0;
  constexpr int32_t kUnknown = 999;
  return !refuses ? 0 : faults.refusal.load() != 0 ? faults.refusal.load() : kUnknown;
}

void DeviceModel::lose_contexts(uint32_t slot, GpuLock& lock, int32_t cuda_result) {
  SharedUse& use = state_->uses[slot][static_cast<size_t>(&lock.gpu() - state_->gpus.data())];
  int32_t none = 0;
  use.fault.compare_exchange_strong(none, cuda_result);  // the first fault is the one that is seen
  if (use.timeline.has_work()) abandon(lock.timeline_of(slot), lock.uses(), slot);
}

void DeviceModel::lose_all_contexts(uint32_t gpu, int32_t cuda_result) {
  {
    GpuLock lock(*this, gpu);
    lock.advance_to_now();
    each_process([&](uint32_t slot) {
      if (state_->uses[slot][gpu].contexts > 0) lose_contexts(slot, lock, cuda_result);
    });
  }
  wake_waiters(gpu);
}

void DeviceModel::raise_xid(uint32_t gpu, uint32_t code, int32_t pid, uint32_t gpu_instance,
                            uint32_t compute_instance) {
  const XidMeaning meaning = meaning_of_xid(code);
  SharedGpuFaults& faults = state_->gpus[gpu].faults;
  if (meaning.effect == XidEffect::gpu || meaning.effect == XidEffect::lost) {
    faults.refusal.store(meaning.cuda_result);
    faults.recovery.store(static_cast<uint32_t>(meaning.recovery));
    faults.lost.store(meaning.effect == XidEffect::lost ? 1 : faults.lost.load());
  }
  if (meaning.effect != XidEffect::none) {
    GpuLock lock(*this, gpu);
    lock.advance_to_now();
    each_process([&](uint32_t slot) {
      int32_t its_pid = 0;
      if (state_->uses[slot][gpu].contexts == 0 || !is_alive(slot, its_pid)) return;
      const SharedUse& use = state_->uses[slot][gpu];
      const bool in_instance =
          gpu_instance == kNoInstanceId || use.gpu_instance_plus_one.load() == gpu_instance + 1;
      // Clients of MPS share their server's faults.
      const bool is_at_fault = pid == 0 || its_pid == pid || is_mps(gpu);
      const bool is_meant = meaning.effect != XidEffect::context || (is_at_fault && in_instance);
      if (is_meant) lose_contexts(slot, lock, meaning.cuda_result);
      if (its_pid != pid || use.gpu_instance_plus_one.load() == 0) return;
      gpu_instance = use.gpu_instance_plus_one.load() - 1;  // the driver says whose it is
      compute_instance = use.compute_instance_plus_one.load() - 1;
    });
  }
  record_xid({gpu, code, pid, gpu_instance, compute_instance, monotonic_now()});
  wake_waiters(gpu);
}

void DeviceModel::record_xid(const XidRecord& record) {
  {
    RobustLock lock(state_->table_lock, [this] { repair_table(); });
    const uint32_t number = state_->faults.xid_count.load();
    SharedXid& row = state_->faults.xids[number % kXidsKept];
    row.gpu.store(record.gpu);
    row.code.store(record.code);
    row.pid.store(record.pid);
    row.gpu_instance.store(record.gpu_instance);
    row.compute_instance.store(record.compute_instance);
    row.time_ns.store(record.time_ns);
    state_->faults.xid_count.store(number + 1, std::memory_order_release);
  }
  wake_all(state_->faults.xid_count);
}

bool DeviceModel::xid(uint32_t number, XidRecord& record) const {
  const auto is_kept = [&] {
    const uint32_t age = xid_count() - number;  // 1 for the newest
    return age >= 1 && age < kXidsKept;         // the oldest may be being written over
  };
  if (!is_kept()) return false;
  const SharedXid& row = state_->faults.xids[number % kXidsKept];
  record = {.gpu = row.gpu.load() % kMaxGpus,
            .code = row.code.load(),
            .pid = row.pid.load(),
            .gpu_instance = row.gpu_instance.load(),
            .compute_instance = row.compute_instance.load(),
            .time_ns = row.time_ns.load()};
  return is_kept();
}

bool DeviceModel::wait_for_xid(uint32_t seen, uint64_t timeout_ns) {
  const uint64_t now = monotonic_now();
  const uint64_t deadline = timeout_ns > kForEver - now ? kForEver : now + timeout_ns;
  while (xid_count() == seen) {
    if (deadline != kForEver && monotonic_now() >= deadline) return false;
    sleep_on(state_->faults.xid_count, seen, deadline);
  }
  return true;
}

void DeviceModel::block_nvml(SharedBlock& block, uint64_t until_ns) {
  block.until_ns.store(until_ns);
  block.wake.fetch_add(1);
  wake_all(block.wake);
}

void DeviceModel::wait_while_nvml_blocked() { wait_while(state_->faults.nvml); }
void DeviceModel::wait_while_nvml_blocked(uint32_t gpu) {
  wait_while_nvml_blocked();
  wait_while(state_->gpus[gpu].faults.nvml);
}

void DeviceModel::throttle(uint32_t gpu, uint64_t reasons) {
  SharedGpuFaults& faults = state_->gpus[gpu].faults;
  change_clock(gpu, [&] {
    const uint64_t now = monotonic_now();
    const uint64_t span = now - std::min(now, faults.throttled_since_ns.load());
    const uint64_t before = faults.throttle_reasons.exchange(reasons);
    if (before != 0) faults.throttled_ns.fetch_add(span);
    for (uint32_t bit = 0; bit < kReasonBits; ++bit) {
      if ((before >> bit & 1) != 0) faults.throttled_ns_by[bit].fetch_add(span);
    }
    faults.throttled_since_ns.store(now);
  });
}

uint64_t DeviceModel::throttled_ns(uint32_t gpu, uint64_t reason) const {
  const SharedGpuFaults& faults = state_->gpus[gpu].faults;
  const uint64_t now = monotonic_now();
  const bool lasts = (faults.throttle_reasons.load() & reason) != 0;
  const uint64_t current = lasts ? now - std::min(now, faults.throttled_since_ns.load()) : 0;
  if (reason == UINT64_MAX) return faults.throttled_ns.load() + current;
  const auto bit = static_cast<uint32_t>(std::countr_zero(reason));
  return bit < kReasonBits ? faults.throttled_ns_by[bit].load() + current : 0;
}

uint64_t DeviceModel::add_ghost(uint32_t gpu, uint64_t bytes) {
  GpuLock lock(*this, gpu);
  const uint64_t room = usable_bytes(gpu) - std::min(usable_bytes(gpu), lock.gpu().used_bytes);
  const uint64_t added = std::min(bytes, room);
  lock.gpu().faults.ghost_bytes.fetch_add(added);
  lock.gpu().used_bytes += added;
  return added;
}

void DeviceModel::pace_copy(uint32_t gpu, uint64_t bytes) {
  const uint64_t start = monotonic_now();
  for (;;) {
    // The speed is looked at again, so that a long copy goes on when the fault is taken back.
    const uint64_t speed = state_->gpus[gpu].faults.copy_bytes_per_second.load();
    if (speed == 0 || bytes == 0) return;
    constexpr uint64_t kLookAgainNs = 50'000'000;
    const double seconds = static_cast<double>(bytes) / static_cast<double>(speed);
    const uint64_t end = start + static_cast<uint64_t>(std::min(seconds, 1e6) * 1e9);
    const uint64_t now = monotonic_now();
    if (now >= end) return;
    const uint64_t pause = std::min(end - now, kLookAgainNs);
    const timespec rest{.tv_sec = 0, .tv_nsec = static_cast<long>(pause)};
    nanosleep(&rest, nullptr);
  }
}

void DeviceModel::leave_ghost(SharedGpuFaults& faults, int32_t pid, uint64_t bytes, uint64_t& kept) {
  if (bytes == 0) return;
  const auto leaving = static_cast<Leaving>(faults.leaving.load());
  if (leaving == Leaving::nothing) return;
  faults.leaving.store(static_cast<uint32_t>(Leaving::nothing));
  faults.ghost_pid.store(leaving == Leaving::memory_and_name ? pid : 0);
  faults.ghost_bytes.fetch_add(bytes);
  kept = 0;
}

void DeviceModel::set_minor(uint32_t gpu, uint32_t minor) {
  __atomic_store_n(&state_->gpus[gpu].identity.minor, minor, __ATOMIC_RELEASE);
}

void DeviceModel::clear_faults(uint32_t gpu) {
  SharedGpuFaults& faults = state_->gpus[gpu].faults;
  faults.lost.store(0);
  faults.recovery.store(0);
  faults.refusal.store(0);
  throttle(gpu, 0);
  zero(faults.ecc);
  for (auto* rows :
       {&faults.rows_corrected, &faults.rows_uncorrected, &faults.rows_pending, &faults.rows_failure}) {
    rows->store(0);
  }
  {
    GpuLock lock(*this, gpu);
    lock.gpu().used_bytes -= std::min(lock.gpu().used_bytes, faults.ghost_bytes.exchange(0));
    faults.ghost_pid.store(0);
  }
  faults.leaving.store(0);
  faults.copy_bytes_per_second.store(0);
  block_nvml(faults.nvml, 0);
  wake_waiters(gpu);
}

void DeviceModel::repair_by_reset(uint32_t gpu) {
  SharedGpuFaults& faults = state_->gpus[gpu].faults;
  if (faults.recovery.load() == static_cast<uint32_t>(RecoveryAction::reset)) {
    faults.recovery.store(0);
    faults.refusal.store(0);
  }
  for (auto& type : faults.ecc) type[0].store(0);  // those of the board's life stay
  faults.rows_pending.store(0);
  faults.leaving.store(0);
  {
    GpuLock lock(*this, gpu);
    lock.gpu().used_bytes -= std::min(lock.gpu().used_bytes, faults.ghost_bytes.exchange(0));
    faults.ghost_pid.store(0);
  }
  wake_waiters(gpu);
}

void DeviceModel::clear_server_faults() {
  state_->faults.driver_mismatch.store(0);
  state_->faults.checkpoint_failure.store(0);
  block_nvml(state_->faults.nvml, 0);
}

}  // namespace tranche::emulator
