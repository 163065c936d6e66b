// What the driver says that this process holds on a GPU, from its management library. Slow (tens of
// microseconds): for contexts, modules and the like only. Threading: any thread.
#pragma once

#include <stdint.h>

enum OwnMemory {
  OWN_MEMORY_KNOWN,
  OWN_MEMORY_NONE,     // the driver lists others, or nobody: no context of ours
  OWN_MEMORY_UNKNOWN,  // no answer is not zero
};

enum OwnMemory own_memory(int gpu, uint64_t* bytes);
