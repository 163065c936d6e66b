// What this process may use of each counted GPU, and what the task uses of it: the guard's end of
// wire/guard.h.
//
// Units: bytes in, whole TRANCHE_GUARD_UNITs charged. Threading: any thread; taking and giving back are
// lock-free, asking the arbiter is one thread at a time. Fork: the child starts without a connection. Nothing
// here waits longer than a second for the arbiter; without it what was granted may be used, and more is
// refused.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct Usage {
  uint64_t limit;
  uint64_t charged;    // by all processes of the task
  uint64_t available;  // what may be taken now, at most limit - charged
};

enum {
  LEASE_GPU_UNCOUNTED = -1,  // the whole GPU is the task's: everything may be taken
  LEASE_GPU_UNKNOWN = -2,    // the arbiter has never answered: nothing may be taken
};

// Place of a GPU among those of the task, or one of the above.
int lease_gpu_of(const uint8_t uuid[16]);
// False: the task's limit has no room (or the arbiter does not answer, and nothing more was granted before).
bool lease_take(int gpu, uint64_t bytes);
// Whether `bytes` could be taken without asking the arbiter.
bool lease_has(int gpu, uint64_t bytes);
void lease_give_back(int gpu, uint64_t bytes);

void lease_usage(int gpu, struct Usage* usage);
// What one context takes on this GPU; 0: not known yet.
uint64_t lease_context_bytes(int gpu);
void lease_report_context(int gpu, uint64_t bytes);
// This process as the driver's management library names it; 0: not known.
int32_t lease_own_pid(void);
// Process ids of the task, at most `room`; -1: not known.
int lease_pids(int32_t* pids, int room);
// Whether another process of the task needs what this one can spare; asked once, then false until raised
// again.
bool lease_pressure(void);

// A library that only looks takes no slot. Called before anything else of this file.
void lease_be_viewer(void);
