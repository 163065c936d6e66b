#include "arbiter/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

namespace tranche::arbiter {
namespace {

constexpr uint64_t kUnit = TRANCHE_GUARD_UNIT;
constexpr uint64_t kFirstChunk = uint64_t{64} << 20;
constexpr uint64_t kLargestChunk = uint64_t{512} << 20;
constexpr uint64_t kMostUnits = UINT32_MAX;
// A hostile process may write its word all the time; nobody waits for it.
constexpr int kTries = 64;

uint64_t round_up(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }
uint64_t round_down(uint64_t bytes) { return bytes / kUnit * kUnit; }
uint64_t granted_of(uint64_t word) { return (word >> 32) * kUnit; }
uint64_t used_of(uint64_t word) { return (word & UINT32_MAX) * kUnit; }
uint64_t word_of(uint64_t granted, uint64_t used) { return granted / kUnit << 32 | used / kUnit; }

uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
bool exchange(uint64_t& word, uint64_t& expected, uint64_t desired) {
  return __atomic_compare_exchange_n(&word, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

}  // namespace

std::unique_ptr<LeasePage> LeasePage::map(int file) {
  const int seals = ::fcntl(file, F_GET_SEALS);
  struct stat status {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file, &status) != 0 ||
      status.st_size < static_cast<off_t>(TRANCHE_GUARD_PAGE_BYTES)) {
    return nullptr;
  }
  void* memory = ::mmap(nullptr, TRANCHE_GUARD_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::unique_ptr<LeasePage>(new LeasePage(static_cast<tranche_guard_slot*>(memory)));
}

LeasePage::~LeasePage() { ::munmap(slots_, TRANCHE_GUARD_PAGE_BYTES); }

TaskLedger::TaskLedger(const wire::RegisterTask& request, std::unique_ptr<LeasePage> page)
    : key_(request.key), uid_(request.uid), page_(std::move(page)) {
  gpus_.resize(std::min(request.gpu_count, wire::kMaxGpusPerTask));
  for (size_t i = 0; i < gpus_.size(); ++i) {
    std::memcpy(gpus_[i].uuid.data(), request.gpus[i].uuid, sizeof request.gpus[i].uuid);
    gpus_[i].limit = round_down(request.gpus[i].limit_bytes);
  }
}

int TaskLedger::find(const uint8_t uuid[16]) const {
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (std::memcmp(gpus_[i].uuid.data(), uuid, gpus_[i].uuid.size()) == 0) return static_cast<int>(i);
  }
  return -1;
}

// For this task only: another must not suffer from what this one reports. More than the limit means that no
// context fits.
void TaskLedger::note_context(uint32_t gpu, uint64_t bytes) {
  gpus_[gpu].context_bytes = std::max(gpus_[gpu].context_bytes, bytes);
}

void TaskLedger::open_slot(uint32_t slot, int32_t pid, uint64_t image) {
  slots_[slot].pid = pid;
  slots_[slot].image = image;
  slots_[slot].next_chunk = kFirstChunk;
  slots_[slot].granted.assign(gpus_.size(), 0);
}

int TaskLedger::enter(int32_t pid, uint64_t image, uint64_t start_ticks) {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].pid == pid && slots_[i].image != image) leave(i);
  }
  uint32_t slot = 0;
  while (slot < slots_.size() && slots_[slot].pid != 0) ++slot;
  if (slot == TRANCHE_GUARD_MAX_PROCESSES) return -1;
  if (slot == slots_.size()) slots_.emplace_back();
  open_slot(slot, pid, image);
  tranche_guard_slot& shared = page_->slot(slot);
  std::memset(&shared, 0, sizeof shared);
  shared.pid = pid;
  shared.image = image;
  shared.start_ticks = slots_[slot].start_ticks = start_ticks;
  return static_cast<int>(slot);
}

bool TaskLedger::resume(uint32_t slot, int32_t pid, uint64_t image) {
  return has_slot(slot) && slots_[slot].pid == pid && slots_[slot].image == image;
}

void TaskLedger::leave(uint32_t slot) {
  if (!has_slot(slot)) return;
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) gpus_[gpu].granted -= slots_[slot].granted[gpu];
  slots_[slot] = Slot{};
  tranche_guard_slot& shared = page_->slot(slot);
  std::memset(&shared, 0, sizeof shared);
}

void TaskLedger::keep_used_only(uint32_t slot) {
  if (!has_slot(slot)) return;
  for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) take_unused(slot, gpu, UINT64_MAX);
}

std::vector<uint32_t> TaskLedger::adopt() {
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < TRANCHE_GUARD_MAX_PROCESSES; ++i) {
    tranche_guard_slot& shared = page_->slot(i);
    const int32_t pid = __atomic_load_n(&shared.pid, __ATOMIC_RELAXED);
    if (pid <= 0) continue;
    slots_.resize(std::max<size_t>(slots_.size(), i + 1));
    open_slot(i, pid, __atomic_load_n(&shared.image, __ATOMIC_RELAXED));
    slots_[i].start_ticks = __atomic_load_n(&shared.start_ticks, __ATOMIC_RELAXED);
    for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      // Together they had at most the limit; who claims more has written into the page and gets what is left.
      uint64_t word = load(shared.lease[gpu]);
      const uint64_t room = gpus_[gpu].limit - std::min(gpus_[gpu].limit, gpus_[gpu].granted);
      const uint64_t granted = std::min(granted_of(word), round_down(room));
      for (int tries = 0; tries < kTries; ++tries) {
        if (exchange(shared.lease[gpu], word, word_of(granted, used_of(word)))) break;
      }
      slots_[i].granted[gpu] = granted;
      gpus_[gpu].granted += granted;
    }
    found.push_back(i);
  }
  return found;
}

std::vector<int32_t> TaskLedger::pids() const {
  std::vector<int32_t> pids;
  for (const Slot& slot : slots_) {
    if (slot.pid != 0) pids.push_back(slot.pid);
  }
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  return pids;
}

uint64_t TaskLedger::used(uint32_t slot, uint32_t gpu) const {
  return std::min(used_of(load(page_->slot(slot).lease[gpu])), slots_[slot].granted[gpu]);
}

// Adds to what the slot may use. Returns what it could: a process that keeps writing its word gets nothing.
uint64_t TaskLedger::give(uint32_t slot, uint32_t gpu, uint64_t bytes) {
  uint64_t& word = page_->slot(slot).lease[gpu];
  uint64_t seen = load(word);
  for (int tries = 0; tries < kTries; ++tries) {
    const uint64_t granted = std::min(slots_[slot].granted[gpu] + bytes, kMostUnits * kUnit);
    if (!exchange(word, seen, word_of(granted, used_of(seen)))) continue;
    const uint64_t given = granted - slots_[slot].granted[gpu];
    slots_[slot].granted[gpu] = granted;
    gpus_[gpu].granted += given;
    return given;
  }
  return 0;
}

uint64_t TaskLedger::take_unused(uint32_t slot, uint32_t gpu, uint64_t at_most) {
  uint64_t& word = page_->slot(slot).lease[gpu];
  uint64_t seen = load(word);
  for (int tries = 0; tries < kTries; ++tries) {
    const uint64_t granted = slots_[slot].granted[gpu];
    const uint64_t unused = granted - std::min(granted, used_of(seen));
    const uint64_t taken = std::min(unused, at_most);
    if (taken == 0) return 0;
    if (!exchange(word, seen, word_of(granted - taken, used_of(seen)))) continue;
    slots_[slot].granted[gpu] = granted - taken;
    gpus_[gpu].granted -= taken;
    return taken;
  }
  return 0;
}

void TaskLedger::take_unused_of_others(uint32_t slot, uint32_t gpu, uint64_t wanted) {
  for (uint32_t other = 0; other < slots_.size() && wanted > 0; ++other) {
    if (other == slot || slots_[other].pid == 0) continue;
    wanted -= take_unused(other, gpu, wanted);
    if (wanted > 0) __atomic_store_n(&page_->slot(other).pressure, 1, __ATOMIC_RELEASE);
  }
}

bool TaskLedger::lease(uint32_t slot, uint32_t gpu, uint64_t need) {
  Gpu& account = gpus_[gpu];
  const uint64_t unused = slots_[slot].granted[gpu] - used(slot, gpu);
  if (need > kMostUnits * kUnit) return ++account.denied, false;
  const uint64_t wanted = round_up(need);
  if (wanted <= unused) return true;
  const uint64_t missing = wanted - unused;
  const auto room = [&] { return account.limit - std::min(account.limit, account.granted); };
  // Of a limit that was lowered, more may be granted than it has: that comes off first.
  if (room() < missing) take_unused_of_others(slot, gpu, account.granted + missing - account.limit);
  if (room() < missing) return ++account.denied, false;
  const uint64_t chunk = std::max(missing, slots_[slot].next_chunk);
  slots_[slot].next_chunk = std::min(slots_[slot].next_chunk * 2, kLargestChunk);
  return give(slot, gpu, std::min(chunk, room())) >= missing;
}

void TaskLedger::set_limit(uint32_t gpu, uint64_t limit) {
  gpus_[gpu].limit = round_down(limit);
  for (uint32_t slot = 0; slot < slots_.size() && gpus_[gpu].granted > gpus_[gpu].limit; ++slot) {
    if (slots_[slot].pid != 0) take_unused(slot, gpu, gpus_[gpu].granted - gpus_[gpu].limit);
  }
}

Usage TaskLedger::usage(uint32_t gpu) const {
  Usage usage{gpus_[gpu].limit, 0, gpus_[gpu].granted, gpus_[gpu].denied, 0};
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].pid == 0) continue;
    usage.charged += used(slot, gpu);
    ++usage.processes;
  }
  return usage;
}

}  // namespace tranche::arbiter
