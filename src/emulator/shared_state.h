// The device model as it lies in shared memory: one file `<state directory>/device_model`, mapped by every
// process that uses an emulated GPU. Fixed layout; a process that was built for another layout refuses it.
//
// Locks: `table_lock` for the process table, one `lock` a GPU for its ledger and timeline; table before
// GPU. Both are robust: when a holder dies, the next one rebuilds the sums from the rows, so a change that
// was half made is harmless. Rows are written before sums.
//
// The file is mode 0666: whoever can use the server can also spoil it. It is for trials and tests.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "emulator/export_state.h"
#include "emulator/fault_state.h"
#include "emulator/mig/mig_state.h"
#include "emulator/server_description.h"
#include "emulator/settings_state.h"
#include "emulator/timeline.h"

namespace tranche::emulator {

inline constexpr uint64_t kStateMagic = 0x314D55'4E415254;  // "TRANUM1"
inline constexpr uint32_t kStateVersion = 3;

// What never changes while a server stands, but for the minor number: a fault can change that.
struct GpuIdentity {
  std::array<char, 48> uuid_text;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::array<uint8_t, 16> uuid;
  std::array<char, 24> serial;
  uint32_t board;  // index into boards()
  uint32_t minor;  // N of /dev/nvidiaN
  uint32_t pci_domain, pci_bus, pci_device;
  uint64_t memory_bytes;   // NVML's total
  uint64_t reserve_bytes;  // the driver's own
};

struct SharedGpu {
  GpuIdentity identity;
  pthread_mutex_t lock;
  std::atomic<uint32_t> wake_count;  // futex: changes when waiting processes should look again
  uint64_t used_bytes;               // sum of the processes' context_bytes and memory_bytes, and of ghosts'
  SharedGpuFaults faults;
  SharedMig mig;
  Timeline timeline;                                       // of the whole GPU: nothing runs on it under MIG
  std::array<Timeline, kMaxExecutors> instance_timelines;  // of the compute instances, by their executor
  uint64_t retired_busy_ns;  // that compute instances had which are gone, as time of the whole GPU
  SharedGpuSettings settings;
  SharedAccounting accounting;
  std::array<SharedTransfers, 2> transfers;  // by Bus
};

// Who has an account. A row counts while its process holds a record lock on byte `slot` of the file
// `processes`: the kernel drops the lock when the process dies or executes another program, which no
// reuse of process ids can confuse and which works across PID namespaces.
struct SharedProcess {
  std::atomic<uint32_t> in_use;
  int32_t pid;             // in the process's own PID namespace
  uint64_t pid_namespace;  // inode of that namespace
  uint64_t start_ticks;    // field 22 of /proc/PID/stat
  uint64_t image;          // random number of this execution (AT_RANDOM)
  uint64_t came_ns;        // CLOCK_MONOTONIC
};

// What one process has of one GPU.
struct SharedUse {
  uint64_t contexts;
  uint64_t context_bytes;
  uint64_t memory_bytes;
  uint64_t memory_peak_bytes;  // of context_bytes + memory_bytes
  uint64_t launches;
  // The MIG device that it uses: ids, each plus one; 0: the whole GPU.
  std::atomic<uint32_t> gpu_instance_plus_one, compute_instance_plus_one;
  std::atomic<uint32_t> executor_plus_one;  // that its work runs on; 0: the whole GPU's timeline
  std::atomic<uint32_t> multiprocessors;    // of that executor
  std::atomic<int32_t> fault;  // the CUDA result that its contexts here are stuck with; 0: they are well
  ProcessTimeline timeline;
};

// Virtual time: see lock_step.cc.
struct SharedLockStep {
  struct Client {
    uint32_t slot;
    uint32_t is_waiting;
    uint64_t wake_ns;
    std::atomic<uint32_t> wake;  // futex: changes when its turn comes
  };
  pthread_mutex_t lock;
  std::atomic<uint32_t> is_on;
  std::atomic<uint64_t> now_ns;
  uint32_t expected, joined;
  std::atomic<int32_t> turn;  // client that runs; -1: none
  std::array<Client, 1024> clients;
};

struct SharedState {
  uint64_t magic;  // written last
  uint32_t version;
  uint32_t gpu_count;
  uint64_t bytes;  // of this structure
  std::array<char, 64> server_name;
  std::array<char, 32> driver_version;
  int32_t cuda_version;
  Guest guest;
  uint32_t is_licensed;     // a vGPU guest has its licence
  int64_t created_wall_ns;  // since the epoch
  uint64_t created_ns;      // CLOCK_MONOTONIC
  SharedServerFaults faults;

  SharedMemoryLimits memory_limits;
  SharedExports exports;
  SharedLockStep lock_step;
  pthread_mutex_t table_lock;
  std::atomic<uint32_t> process_high_water;  // slots ever used: where a walk may stop
  std::array<SharedProcess, kMaxProcesses> processes;
  std::array<SharedGpu, kMaxGpus> gpus;
  std::array<std::array<SharedUse, kMaxGpus>, kMaxProcesses> uses;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace tranche::emulator
