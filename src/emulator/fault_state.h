// What is wrong with an emulated server, as it lies in shared memory. `tranche-emulator fault` sets it while
// programs run; both libraries look at it in every call.
//
// All values are atomics and none depends on another, so that whoever reads needs no lock. Times are
// CLOCK_MONOTONIC ns. The meaning of an XID is in xid.h; the operations are DeviceModel's (faults.cc).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace tranche::emulator {

inline constexpr uint64_t kForEver = UINT64_MAX;
inline constexpr uint32_t kXidsKept = 256;
inline constexpr uint32_t kNoInstanceId = UINT32_MAX;  // an XID that concerns no MIG instance

// NVML's numbers for what the driver recommends (field 230).
enum class RecoveryAction : uint32_t { none = 0, reset = 1, reboot = 2, drain_p2p = 3, drain_and_reset = 4 };

// NVML's bits of clocks event reasons that a fault can set.
inline constexpr uint64_t kReasonPowerCap = 0x4, kReasonHardwareSlowdown = 0x8, kReasonSoftwareThermal = 0x20,
                          kReasonHardwareThermal = 0x40, kReasonPowerBrake = 0x80;

inline constexpr uint32_t kReasonBits = 9;

// What stays on a GPU when a process that used it ends.
enum class Leaving : uint32_t {
  nothing = 0,
  memory = 1,           // its memory, which no process owns any more
  memory_and_name = 2,  // and NVML goes on listing its process id
};

// Which step of suspending and resuming a process fails.
enum class CheckpointStep : uint32_t { none = 0, lock = 1, checkpoint = 2, restore = 3, unlock = 4 };

// Keeps callers waiting: until a time, or for ever, or until it is taken back (wake is a futex).
struct SharedBlock {
  std::atomic<uint64_t> until_ns;  // 0 or past: nobody waits
  std::atomic<uint32_t> wake;
};

// Counters by NVML's error type (0 corrected, 1 uncorrected) and counter type (0 since the driver was
// loaded, 1 for the board's life).
using EccCounters = std::array<std::array<std::atomic<uint64_t>, 2>, 2>;

struct SharedGpuFaults {
  std::atomic<uint32_t> lost;      // 1: fallen off the bus
  std::atomic<uint32_t> recovery;  // RecoveryAction; other than none: no context can be made
  std::atomic<int32_t> refusal;    // the CUDA result that making a context gives then
  SharedBlock nvml;                // NVML calls about this GPU
  std::atomic<uint64_t> throttle_reasons;
  std::atomic<uint64_t> throttled_since_ns;
  std::atomic<uint64_t> throttled_ns;  // by any reason, in the past, since the server was made
  std::array<std::atomic<uint64_t>, kReasonBits> throttled_ns_by;  // the same by the reason's bit
  EccCounters ecc;
  std::atomic<uint32_t> rows_corrected, rows_uncorrected, rows_pending, rows_failure;
  std::atomic<uint64_t> ghost_bytes;            // in use by no process that lives; part of used_bytes
  std::atomic<int32_t> ghost_pid;               // whose NVML says they are; 0: nobody's
  std::atomic<uint32_t> leaving;                // Leaving, of the next process that ends with memory here
  std::atomic<uint64_t> copy_bytes_per_second;  // copies are no faster; 0: as fast as they go
};

struct SharedXid {
  std::atomic<uint32_t> gpu, code;
  std::atomic<int32_t> pid;  // 0: no process in particular
  std::atomic<uint32_t> gpu_instance, compute_instance;
  std::atomic<uint64_t> time_ns;
};

struct SharedServerFaults {
  std::atomic<uint32_t> driver_mismatch;     // 1: the library is of another version than the kernel's module
  SharedBlock nvml;                          // every NVML call
  std::atomic<uint32_t> checkpoint_failure;  // CheckpointStep that fails
  std::atomic<uint32_t> xid_count;           // ever; a futex. Number n of them is xids[n % kXidsKept]
  std::array<SharedXid, kXidsKept> xids;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

}  // namespace tranche::emulator
