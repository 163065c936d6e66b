// Suspending a process: its calls held, its device memory copied into its own host memory, its GPUs given
// back, and all of it undone again. Each process has a thread for it and a page in memory through which
// others ask; who may open the page under /proc, which the kernel decides as for ptrace, may ask.
//
// States and verbs are the driver's: running -lock-> locked -checkpoint-> checkpointed -restore-> locked
// -unlock-> running; a step that a fault makes fail ends in failed. Copies take as long as was published for
// hardware: 5 GB/s out (NVIDIA/cuda-checkpoint issue 29), 10 GB/s in. Host memory grows by what was charged,
// really.
#pragma once

#include "emulator/cuda/cuda_api.h"

namespace tranche::emulator::cuda {

enum class ProcessState : uint32_t {
  running = 0,
  locked = 1,
  checkpointed = 2,
  failed = 3,
  checkpointing = 4,
  restoring = 5
};

enum class CheckpointVerb : uint32_t { none, lock, checkpoint, restore, unlock };

struct CUcheckpointLockArgs {
  unsigned timeout_ms;
  unsigned reserved0;
  uint64_t reserved1[7];
};
struct CUcheckpointCheckpointArgs {
  void* custom_storage;
  char reserved[56];
};
struct CUcheckpointGpuPair {
  CUuuid from, to;
};
struct CUcheckpointRestoreArgs {
  CUcheckpointGpuPair* pairs;
  unsigned pair_count;
  unsigned padding;
  void* custom_storage;
  char reserved[40];
};
struct CUcheckpointUnlockArgs {
  uint64_t reserved[8];
};

// Makes the page and the thread of this process; again does nothing. Called by cuInit.
void start_checkpoints();

}  // namespace tranche::emulator::cuda
