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
    : key_(request.key),
      uid_(request.uid),
      held_by_driver_(request.held_by_driver != 0),
      page_(std::move(page)) {
  gpus_.resize(std::min(request.gpu_count, wire::kMaxGpusPerTask));
  for (size_t i = 0; i < gpus_.size(); ++i) {
    std::memcpy(gpus_[i].uuid.data(), request.gpus[i].uuid, sizeof request.gpus[i].uuid);
    gpus_[i].limit = round_down(request.gpus[i].limit_bytes);
    const uint64_t promised = round_down(request.guarantee_bytes[i]);
    gpus_[i].promised = promised == 0 ? gpus_[i].limit : promised;
    gpus_[i].guarantee = std::min(gpus_[i].promised, gpus_[i].limit);
  }
}

TaskLedger::~TaskLedger() {
  for (const Gpu& gpu : gpus_) {
    if (gpu.board != nullptr) gpu.board->leave(*this);
  }
}

void TaskLedger::join(uint32_t gpu, Board& board) {
  gpus_[gpu].board = &board;
  board.enter(*this, gpu);
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
  for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) take_unused_of(slot, gpu, UINT64_MAX);
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

uint64_t TaskLedger::take_unused_of(uint32_t slot, uint32_t gpu, uint64_t at_most) {
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
    wanted -= take_unused_of(other, gpu, wanted);
    if (wanted > 0) __atomic_store_n(&page_->slot(other).pressure, 1, __ATOMIC_RELEASE);
  }
}

uint64_t TaskLedger::take_unused(uint32_t gpu, uint64_t at_most) {
  uint64_t taken = 0;
  for (uint32_t slot = 0; slot < slots_.size() && taken < at_most; ++slot) {
    if (slots_[slot].pid != 0) taken += take_unused_of(slot, gpu, at_most - taken);
  }
  return taken;
}

void TaskLedger::raise_pressure(uint32_t gpu) {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].pid == 0 || slots_[slot].granted[gpu] == 0) continue;
    __atomic_store_n(&page_->slot(slot).pressure, 1, __ATOMIC_RELEASE);
  }
}

uint64_t TaskLedger::room(uint32_t gpu) const {
  const Gpu& account = gpus_[gpu];
  const uint64_t own = account.limit - std::min(account.limit, account.granted);
  return account.board == nullptr ? own : std::min(own, account.board->room(*this, gpu));
}

Lease TaskLedger::refuse(Gpu& account, uint64_t missing) {
  const bool promised = account.granted + missing <= account.guarantee;
  if (promised && account.board != nullptr && account.board->lends_to_others(*this))
    return ++account.waits, Lease::wait;
  return ++account.denied, Lease::denied;
}

Lease TaskLedger::lease(uint32_t slot, uint32_t gpu, uint64_t need) {
  Gpu& account = gpus_[gpu];
  const uint64_t unused = slots_[slot].granted[gpu] - used(slot, gpu);
  if (need > kMostUnits * kUnit) return ++account.denied, Lease::denied;
  const uint64_t wanted = round_up(need);
  if (wanted <= unused) return Lease::granted;
  const uint64_t missing = wanted - unused;
  if (room(gpu) < missing) {
    // Of a limit that was lowered, more may be granted than it has: that comes off first.
    const uint64_t beyond = account.granted - std::min(account.limit, account.granted);
    take_unused_of_others(slot, gpu, beyond + missing - room(gpu));
  }
  // What was borrowed unused makes room only once all of it is back.
  if (account.board != nullptr && room(gpu) < missing) take_unused_of_others(slot, gpu, UINT64_MAX);
  if (account.board != nullptr && room(gpu) < missing) account.board->make_room(*this, gpu, missing);
  if (room(gpu) < missing) return refuse(account, missing);
  // Nothing is borrowed that nobody asked for.
  const uint64_t promised = account.guarantee - std::min(account.guarantee, account.granted);
  const uint64_t most = missing <= promised ? std::min(promised, room(gpu)) : room(gpu);
  const uint64_t chunk = std::max(missing, slots_[slot].next_chunk);
  slots_[slot].next_chunk = std::min(slots_[slot].next_chunk * 2, kLargestChunk);
  return give(slot, gpu, std::min(chunk, most)) >= missing ? Lease::granted : Lease::denied;
}

void TaskLedger::set_limit(uint32_t gpu, uint64_t limit, uint64_t guarantee) {
  Gpu& account = gpus_[gpu];
  if (guarantee != 0) account.promised = round_down(guarantee);
  account.limit = round_down(limit);
  account.guarantee = std::min(account.promised, account.limit);
  if (account.granted > account.limit) take_unused(gpu, account.granted - account.limit);
  if (account.board != nullptr) account.board->settle();
}

Usage TaskLedger::usage(uint32_t gpu) const {
  const Gpu& account = gpus_[gpu];
  Usage usage;
  usage.limit = account.limit;
  usage.guarantee = account.guarantee;
  usage.granted = account.granted;
  usage.denied = account.denied;
  usage.waits = account.waits;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].pid == 0) continue;
    usage.charged += used(slot, gpu);
    ++usage.processes;
  }
  const uint64_t left = usage.limit - std::min(usage.limit, usage.charged);
  usage.available = std::min(left, usage.granted - usage.charged + room(gpu));
  if (account.board != nullptr) usage.owed = account.board->owed(*this, gpu);
  return usage;
}

}  // namespace tranche::arbiter
