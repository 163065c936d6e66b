#include "emulator/cuda/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

constexpr const char* kPageName = "tranche-checkpoint";
constexpr uint64_t kOutBytesPerMs = 5'000'000, kInBytesPerMs = 10'000'000;
constexpr uint64_t kCopyChunk = uint64_t{64} << 20;
constexpr unsigned kPairsMax = 64;

// What two processes share about one of them.
struct Page {
  pthread_mutex_t lock;            // one asks at a time; robust is not needed: waiting has a bound
  std::atomic<uint32_t> state;     // ProcessState
  std::atomic<uint32_t> request;   // futex: changes with each request
  std::atomic<uint32_t> answered;  // futex: the number of the last request that was answered
  std::atomic<int32_t> thread;     // of the process, as it sees itself
  CheckpointVerb verb;
  uint32_t timeout_ms;
  uint32_t pair_count;
  int32_t result;
  std::array<CUcheckpointGpuPair, kPairsMax> pairs;
};

uint32_t* checkpoint_word(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

void wait_for_change(std::atomic<uint32_t>& word, uint32_t seen, long timeout_ms) {
  const timespec limit{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000};
  syscall(SYS_futex, checkpoint_word(word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}
void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, checkpoint_word(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// ---- The side of the process that is suspended: its own thread ----

// What one device of a suspended process gets back.
struct Saved {
  std::vector<uint64_t> contexts;  // bytes of each
  uint64_t memory_bytes = 0;
};

struct Own {
  Page* page = nullptr;
  std::vector<Saved> saved;  // by device
  void* copy = nullptr;
  uint64_t copy_bytes = 0;
};

Own& own() {
  static Own* const state = new Own;
  return *state;
}

bool is_own_thread() { return own().page != nullptr && own().page->thread.load() == gettid(); }

bool is_to_fail(CheckpointStep step) {
  return driver().model().server_faults().checkpoint_failure.load() == static_cast<uint32_t>(step);
}

uint64_t charged_to(uint32_t gpu) {
  for (const ProcessReading& reading : driver().model().processes(gpu)) {
    if (reading.pid == getpid()) return reading.used_bytes - reading.context_bytes;
  }
  return 0;
}

// Calls are held at their start; then what they had submitted is waited for.
CUresult lock_process(uint32_t timeout_ms) {
  if (is_to_fail(CheckpointStep::lock)) return CUDA_ERROR_NOT_READY;
  driver().hold_calls();
  DeviceModel& model = driver().model();
  const uint64_t deadline = monotonic_now() + uint64_t{timeout_ms} * 1'000'000;
  for (CUdevice ordinal = 0; ordinal < driver().device_count(); ++ordinal) {
    const uint32_t gpu = driver().device(ordinal)->gpu;
    const uint64_t tag = model.position(driver().slot(), gpu).tag;
    while (!model.is_done(driver().slot(), gpu, tag)) {
      if (timeout_ms != 0 && monotonic_now() >= deadline) {
        driver().release_calls();
        return CUDA_ERROR_NOT_READY;
      }
      usleep(500);
    }
  }
  return CUDA_SUCCESS;
}

// What cannot be suspended: managed memory; memory shared with other processes; clients of MPS; processes on
// a MIG device, which were seen to fail with "out of memory" (NVIDIA/cuda-checkpoint issue 42).
CUresult check_eligible() {
  if (driver().managed_blocks.load() > 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (driver().space.shares_memory()) return CUDA_ERROR_NOT_SUPPORTED;
  constexpr int kLegacyHandlesFrom = 610;
  const bool legacy_handles = std::atoi(driver().model().driver_version().c_str()) >= kLegacyHandlesFrom;
  if (driver().legacy_handles.load() > 0 && !legacy_handles) return CUDA_ERROR_NOT_SUPPORTED;
  for (CUdevice ordinal = 0; ordinal < driver().device_count(); ++ordinal) {
    if (driver().device(ordinal)->mig) return CUDA_ERROR_OUT_OF_MEMORY;
    const bool mps = driver().model().sharing(driver().device(ordinal)->gpu) == Sharing::side_by_side;
    if (mps) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

// Touches every page of [start, start + bytes) at the speed of the copy.
void fill_at_speed(uint8_t* start, uint64_t bytes, uint64_t bytes_per_ms) {
  constexpr uint64_t kHostPage = 4096;
  const uint64_t begin = monotonic_now();
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t end = std::min(bytes, done + kCopyChunk);
    for (; done < end; done += kHostPage) start[done] = kHollowByte;
    const uint64_t due = begin + done / bytes_per_ms * 1'000'000;
    const uint64_t now = monotonic_now();
    if (due > now) usleep(static_cast<useconds_t>((due - now) / 1000));
  }
}

void give_back_gpus() {
  DeviceModel& model = driver().model();
  own().saved.assign(static_cast<size_t>(driver().device_count()), {});
  for (CUdevice ordinal = 0; ordinal < driver().device_count(); ++ordinal) {
    own().saved[static_cast<size_t>(ordinal)].memory_bytes = charged_to(driver().device(ordinal)->gpu);
  }
  driver().contexts.each([](Context& context) {
    own().saved[static_cast<size_t>(context.device)].contexts.push_back(context.charged_bytes);
  });
  for (CUdevice ordinal = 0; ordinal < driver().device_count(); ++ordinal) {
    const Saved& saved = own().saved[static_cast<size_t>(ordinal)];
    const uint32_t gpu = driver().device(ordinal)->gpu;
    for (const uint64_t bytes : saved.contexts) model.remove_context(driver().slot(), gpu, bytes);
    model.discharge(driver().slot(), gpu, saved.memory_bytes);
  }
}

uint64_t bytes_in_use() {
  uint64_t bytes = 0;
  for (CUdevice ordinal = 0; ordinal < driver().device_count(); ++ordinal) {
    for (const ProcessReading& reading : driver().model().processes(driver().device(ordinal)->gpu)) {
      if (reading.pid == getpid()) bytes += reading.used_bytes;
    }
  }
  return bytes;
}

CUresult checkpoint_process() {
  CUDA_TRY(check_eligible());
  own().page->state.store(static_cast<uint32_t>(ProcessState::checkpointing));
  const uint64_t bytes = bytes_in_use();
  void* const copy =
      bytes == 0 ? nullptr : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  fill_at_speed(static_cast<uint8_t*>(copy), bytes, kOutBytesPerMs);
  if (is_to_fail(CheckpointStep::checkpoint)) {
    if (copy != nullptr) munmap(copy, bytes);
    own().page->state.store(static_cast<uint32_t>(ProcessState::failed));
    return CUDA_ERROR_UNKNOWN;
  }
  own().copy = copy;
  own().copy_bytes = bytes;
  give_back_gpus();
  return CUDA_SUCCESS;
}

// All of it or nothing.
bool take_gpus_back() {
  DeviceModel& model = driver().model();
  const uint32_t slot = driver().slot();
  std::vector<std::pair<uint32_t, uint64_t>> contexts, memory;  // done so far
  bool fits = true;
  for (CUdevice ordinal = 0; ordinal < driver().device_count() && fits; ++ordinal) {
    const Saved& saved = own().saved[static_cast<size_t>(ordinal)];
    const uint32_t gpu = driver().device(ordinal)->gpu;
    for (const uint64_t bytes : saved.contexts) {
      fits = fits && model.add_context(slot, gpu, bytes);
      if (fits) contexts.emplace_back(gpu, bytes);
    }
    fits = fits && model.charge(slot, gpu, saved.memory_bytes);
    if (fits) memory.emplace_back(gpu, saved.memory_bytes);
  }
  if (fits) return true;
  for (const auto& [gpu, bytes] : contexts) model.remove_context(slot, gpu, bytes);
  for (const auto& [gpu, bytes] : memory) model.discharge(slot, gpu, bytes);
  return false;
}

// From one GPU to the same one only: moving to another is not modelled.
CUresult check_pairs(const Page& page) {
  if (page.pair_count > kPairsMax) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kPairsFrom = 580;
  if (page.pair_count > 0 && std::atoi(driver().model().driver_version().c_str()) < kPairsFrom) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < page.pair_count; ++i) {
    const bool same = std::memcmp(&page.pairs[i].from, &page.pairs[i].to, sizeof(CUuuid)) == 0;
    if (!same) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult restore_process(Page& page) {
  CUDA_TRY(check_pairs(page));
  page.state.store(static_cast<uint32_t>(ProcessState::restoring));
  if (!take_gpus_back()) {
    page.state.store(static_cast<uint32_t>(ProcessState::checkpointed));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (is_to_fail(CheckpointStep::restore)) {
    page.state.store(static_cast<uint32_t>(ProcessState::failed));
    return CUDA_ERROR_UNKNOWN;
  }
  if (own().copy != nullptr) {
    usleep(static_cast<useconds_t>(own().copy_bytes / kInBytesPerMs * 1000));
    munmap(own().copy, own().copy_bytes);
  }
  own().copy = nullptr;
  own().copy_bytes = 0;
  return CUDA_SUCCESS;
}

// One request. What does not fit the state answers ILLEGAL_STATE and changes nothing.
CUresult serve(Page& page) {
  const auto state = static_cast<ProcessState>(page.state.load());
  ProcessState next = state;
  CUresult result = CUDA_ERROR_ILLEGAL_STATE;
  if (page.verb == CheckpointVerb::lock && state == ProcessState::running) {
    result = lock_process(page.timeout_ms);
    next = ProcessState::locked;
  } else if (page.verb == CheckpointVerb::checkpoint && state == ProcessState::locked) {
    result = checkpoint_process();
    next = ProcessState::checkpointed;
  } else if (page.verb == CheckpointVerb::restore && state == ProcessState::checkpointed) {
    result = restore_process(page);
    next = ProcessState::locked;
  } else if (page.verb == CheckpointVerb::unlock && state == ProcessState::locked) {
    result = is_to_fail(CheckpointStep::unlock) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
    next = ProcessState::running;
    if (result == CUDA_SUCCESS) driver().release_calls();
  }
  if (result == CUDA_SUCCESS) {
    page.state.store(static_cast<uint32_t>(next));
  } else if (page.state.load() == static_cast<uint32_t>(ProcessState::checkpointing)) {
    page.state.store(static_cast<uint32_t>(state));
  }
  return result;
}

void serve_for_ever(Page* page) {
  page->thread.store(gettid());
  for (uint32_t done = 0;;) {  // not what is asked by now: that is the first request
    const uint32_t request = page->request.load(std::memory_order_acquire);
    if (request == done) {
      wait_for_change(page->request, done, 3'600'000);
      continue;
    }
    page->result = serve(*page);
    done = request;
    page->answered.store(request, std::memory_order_release);
    wake(page->answered);
  }
}

// ---- The side of whoever asks ----

// The page of a process, mapped; null and why.
CUresult find_page(int pid, Page*& page) {
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* const files = opendir(folder.c_str());
  if (files == nullptr) return errno == ENOENT ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_PERMITTED;
  int file = -1;
  for (const dirent* entry = readdir(files); entry != nullptr && file < 0; entry = readdir(files)) {
    const std::string name = folder + "/" + entry->d_name;
    std::array<char, 64> target{};
    if (readlink(name.c_str(), target.data(), target.size() - 1) < 0) continue;
    if (std::strncmp(target.data(), "/memfd:tranche-checkpoint", 25) == 0)
      file = open(name.c_str(), O_RDWR | O_CLOEXEC);
  }
  closedir(files);
  if (file < 0) return CUDA_ERROR_NOT_INITIALIZED;  // no CUDA process
  struct stat status;
  const bool whole = fstat(file, &status) == 0 && status.st_size == sizeof(Page);
  void* const memory =
      whole ? mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (memory == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  page = static_cast<Page*>(memory);
  return CUDA_SUCCESS;
}

// Asks and waits: for as long as the process lives.
CUresult ask(int pid, CheckpointVerb verb, uint32_t timeout_ms, const CUcheckpointRestoreArgs* restore) {
  Page* page = nullptr;
  CUDA_TRY(find_page(pid, page));
  CUresult result = CUDA_ERROR_ILLEGAL_STATE;
  if (pthread_mutex_trylock(&page->lock) == 0) {
    page->verb = verb;
    page->timeout_ms = timeout_ms;
    page->pair_count = restore == nullptr ? 0 : std::min(restore->pair_count, kPairsMax + 1);
    for (unsigned i = 0; i < std::min(page->pair_count, kPairsMax); ++i) page->pairs[i] = restore->pairs[i];
    const uint32_t request = page->request.fetch_add(1, std::memory_order_release) + 1;
    wake(page->request);
    constexpr long kAliveCheckMs = 200;
    bool lives = true;
    while (page->answered.load(std::memory_order_acquire) != request && lives) {
      wait_for_change(page->answered, request - 1, kAliveCheckMs);
      lives = kill(pid, 0) == 0 || errno == EPERM;
    }
    result = lives ? static_cast<CUresult>(page->result) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&page->lock);
  }
  munmap(page, sizeof(Page));
  return result;
}

struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
};
Gate& gate() {
  static Gate* const made = new Gate;
  return *made;
}

}  // namespace

void start_checkpoints() {
  if (own().page != nullptr) return;
  const int file = memfd_create(kPageName, MFD_CLOEXEC);  // open for as long as the process lives
  if (file < 0 || ftruncate(file, sizeof(Page)) != 0) return;
  void* const memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return;
  auto* const page = static_cast<Page*>(memory);
  pthread_mutexattr_t shared;
  pthread_mutexattr_init(&shared);
  pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&page->lock, &shared);
  pthread_mutexattr_destroy(&shared);
  own().page = page;
  sigset_t all, before;  // the program's signals are not for this thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(serve_for_ever, page).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Driver::hold_calls() {
  const std::lock_guard lock(gate().mutex);
  held_.store(true);
  ready_.store(false, std::memory_order_release);
}

void Driver::release_calls() {
  const std::lock_guard lock(gate().mutex);
  ready_.store(true, std::memory_order_release);
  held_.store(false);
  gate().opened.notify_all();
}

// Not initialised, or held by a checkpoint: then the call waits, unless it is the checkpoint's own.
CUresult Driver::not_ready() const {
  if (!held_.load()) return ready_.load() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  if (is_own_thread()) return CUDA_SUCCESS;
  std::unique_lock lock(gate().mutex);
  gate().opened.wait(lock, [this] { return !held_.load(); });
  return ready_.load() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUDA_ENTRY cuCheckpointProcessGetState(int pid, ProcessState* state) {
  Page* page = nullptr;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(find_page(pid, page));
  *state = static_cast<ProcessState>(page->state.load());
  munmap(page, sizeof(Page));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCheckpointProcessGetRestoreThreadId(int pid, int* thread) {
  Page* page = nullptr;
  if (thread == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(find_page(pid, page));
  *thread = page->thread.load();
  munmap(page, sizeof(Page));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* arguments) {
  return ask(pid, CheckpointVerb::lock, arguments == nullptr ? 0 : arguments->timeout_ms, nullptr);
}

// Storage of the caller's own, since CUDA 13.4, is not modelled.
CUDA_ENTRY cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* arguments) {
  if (arguments != nullptr && arguments->custom_storage != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return ask(pid, CheckpointVerb::checkpoint, 0, nullptr);
}

CUDA_ENTRY cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* arguments) {
  if (arguments != nullptr && arguments->custom_storage != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const bool has_pairs = arguments != nullptr && arguments->pair_count > 0;
  if (has_pairs && arguments->pairs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ask(pid, CheckpointVerb::restore, 0, has_pairs ? arguments : nullptr);
}

CUDA_ENTRY cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) {
  return ask(pid, CheckpointVerb::unlock, 0, nullptr);
}

CUDA_ENTRY cuCheckpointOperationComplete(void* handle) {
  static_cast<void>(handle);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tranche::emulator::cuda
