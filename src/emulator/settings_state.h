// What an administrator can change of a GPU, the accounts of processes that ended, and the memory limits of
// cgroups, as they lie in shared memory (see shared_state.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace tranche::emulator {

// Each stands by itself, so none needs a lock. Zero is what a server begins with.
struct SharedGpuSettings {
  std::atomic<uint32_t> compute_mode;                  // NVML's number
  std::atomic<uint32_t> no_persistence;                // 1: persistence mode is off
  std::atomic<uint32_t> accounting;                    // 1: on
  std::atomic<uint32_t> power_limit_mw;                // 0: the board's own
  std::atomic<uint32_t> clock_min_mhz, clock_max_mhz;  // locked graphics clocks; 0: not locked
};

// Copies over PCIe in one direction: the newest of them, with the time that each is on the bus. Written under
// the GPU's lock.
struct SharedTransfer {
  uint64_t start_ns, end_ns;  // of the model
  uint64_t bytes;
};
inline constexpr uint32_t kTransfersKept = 64;
struct SharedTransfers {
  uint64_t count, bytes;  // ever
  uint64_t told;  // of those bytes, the most that was ever said to have moved: a counter never goes back
  std::array<SharedTransfer, kTransfersKept> newest;
};

// A process that ended while accounting was on.
struct SharedEndedProcess {
  int32_t pid;  // 0: an unused entry
  uint64_t busy_ns, peak_bytes;
  uint64_t came_ns, ended_ns;  // CLOCK_MONOTONIC
};

// The newest of them; written under the GPU's lock.
inline constexpr uint32_t kEndedProcessesKept = 128;
struct SharedAccounting {
  uint64_t count;  // ever
  std::array<SharedEndedProcess, kEndedProcessesKept> ended;
};

// A limit of one cgroup on one GPU; written under the table lock.
inline constexpr uint32_t kMaxMemoryLimits = 256;
struct SharedMemoryLimit {
  std::atomic<uint32_t> gpu_plus_one;  // 0: an unused entry
  std::array<char, 244> cgroup;        // "/tranche/u1000/j1", as in /proc/PID/cgroup
  std::atomic<uint64_t> soft_bytes, hard_bytes;
};
struct SharedMemoryLimits {
  std::atomic<uint32_t> count;
  std::array<SharedMemoryLimit, kMaxMemoryLimits> limits;
};

}  // namespace tranche::emulator
