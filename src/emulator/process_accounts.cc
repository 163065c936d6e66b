// Who has an account in the device model, and the closing of accounts whose process is gone.

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator/gpu_lock.h"

namespace tranche::emulator {
namespace {

struct flock record_of(uint32_t slot, short type) {
  struct flock record = {};
  record.l_type = type;
  record.l_whence = SEEK_SET;
  record.l_start = slot;
  record.l_len = 1;
  return record;
}

uint64_t own_pid_namespace() {
  struct stat status;
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

// A number drawn by the kernel at exec: tells this program from the one that had this pid before exec.
uint64_t own_image() {
  uint64_t image = 0;
  const auto random = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
  if (random != nullptr) std::memcpy(&image, random, sizeof image);
  return image;
}

// Field 22 of /proc/self/stat; fields are counted after the last ')', since a command's name may hold any.
uint64_t own_start_ticks() {
  const int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 1024> text;
  const ssize_t length = read(file, text.data(), text.size() - 1);
  close(file);
  if (length <= 0) return 0;
  text[static_cast<size_t>(length)] = '\0';
  const char* field = std::strrchr(text.data(), ')');
  for (int number = 2; field != nullptr && number < 22; ++number) field = std::strchr(field + 1, ' ');
  return field == nullptr ? 0 : std::strtoull(field, nullptr, 10);
}

}  // namespace

uint32_t DeviceModel::process_count() const {
  return std::min(state_->process_high_water.load(std::memory_order_acquire), kMaxProcesses);
}

bool DeviceModel::is_mine(const SharedProcess& process) const {
  return process.pid == getpid() && process.image == own_image() &&
         process.pid_namespace == own_pid_namespace();
}

bool DeviceModel::is_alive(uint32_t slot, int32_t& pid) const {
  struct flock record = record_of(slot, F_WRLCK);
  if (fcntl(lock_file_, F_GETLK, &record) != 0) {
    pid = state_->processes[slot].pid;
    return true;  // nobody's account is closed on missing knowledge
  }
  if (record.l_type != F_UNLCK) {
    pid = record.l_pid;
    return true;
  }
  pid = state_->processes[slot].pid;
  return is_mine(state_->processes[slot]);  // a process is not told of its own locks
}

int32_t DeviceModel::find_process(uint32_t slot, uint64_t image) const {
  if (slot >= kMaxProcesses) return 0;
  const SharedProcess& process = state_->processes[slot];
  int32_t pid = 0;
  if (process.in_use.load(std::memory_order_acquire) == 0 || process.image != image) return 0;
  return is_alive(slot, pid) ? pid : 0;
}

void DeviceModel::close_account(uint32_t slot) {
  drop_exports_of(slot);
  for (uint32_t gpu = 0; gpu < gpu_count_; ++gpu) {
    SharedUse& use = state_->uses[slot][gpu];
    GpuLock lock(*this, gpu);
    // Before time moves on: what a dead process had queued does not count as work after the last look.
    const bool was_busy = use.timeline.has_work();
    if (was_busy) abandon(lock.timeline_of(slot), lock.uses(), slot);
    uint64_t held = use.context_bytes + use.memory_bytes;
    if (use.memory_peak_bytes != 0) remember_ended(slot, gpu);
    leave_ghost(lock.gpu().faults, state_->processes[slot].pid, held, held);
    std::memset(static_cast<void*>(&use), 0, sizeof use);
    lock.gpu().used_bytes -= std::min(held, lock.gpu().used_bytes);
    if (was_busy) wake_waiters(gpu);
  }
  state_->processes[slot].in_use.store(0, std::memory_order_release);
}

void DeviceModel::reap() {
  bool any_dead = false;
  int32_t pid = 0;
  each_process([&](uint32_t slot) { any_dead = any_dead || !is_alive(slot, pid); });
  if (!any_dead) return;
  RobustLock lock(state_->table_lock, [this] { repair_table(); });
  each_process([&](uint32_t slot) {
    if (!is_alive(slot, pid)) close_account(slot);
  });
}

Result<uint32_t> DeviceModel::enter() {
  reap();
  RobustLock lock(state_->table_lock, [this] { repair_table(); });
  for (uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    SharedProcess& process = state_->processes[slot];
    if (process.in_use.load(std::memory_order_acquire) != 0) continue;
    struct flock record = record_of(slot, F_WRLCK);
    if (fcntl(lock_file_, F_SETLK, &record) != 0) continue;
    process.pid = getpid();
    process.pid_namespace = own_pid_namespace();
    process.start_ticks = own_start_ticks();
    process.image = own_image();
    process.came_ns = monotonic_now();
    if (slot >= process_count()) state_->process_high_water.store(slot + 1, std::memory_order_release);
    process.in_use.store(1, std::memory_order_release);
    own_slot_ = slot;
    return slot;
  }
  return fail(ErrorCode::over_limit, "the emulated server has its limit of " + std::to_string(kMaxProcesses) +
                                         " processes; end some first");
}

void DeviceModel::leave(uint32_t slot) {
  RobustLock lock(state_->table_lock, [this] { repair_table(); });
  close_account(slot);
  struct flock record = record_of(slot, F_UNLCK);
  fcntl(lock_file_, F_SETLK, &record);
}

// Rows whose process died while it held the table are found by the next reap: nothing is derived here.
void DeviceModel::repair_table() {}

void DeviceModel::repair_gpu(uint32_t gpu) {
  SharedGpu& shared = state_->gpus[gpu];
  shared.used_bytes = shared.faults.ghost_bytes.load();
  const uint32_t count = process_count();
  for (uint32_t slot = 0; slot < count; ++slot) {
    SharedUse& use = state_->uses[slot][gpu];
    if (state_->processes[slot].in_use.load(std::memory_order_acquire) == 0) {
      std::memset(static_cast<void*>(&use), 0, sizeof use);
    }
    shared.used_bytes += use.context_bytes + use.memory_bytes;
  }
  Uses uses(*state_, gpu);
  repair(shared.timeline, uses, count,
         [&](uint32_t slot) { return executor_of(slot, shared) == kMaxExecutors; });
  for (uint32_t executor = 0; executor < kMaxExecutors; ++executor) {
    repair(shared.instance_timelines[executor], uses, count,
           [&](uint32_t slot) { return executor_of(slot, shared) == executor; });
  }
}

}  // namespace tranche::emulator
