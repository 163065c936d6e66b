// Memory pools: what a pool has reserved from the device is charged, whether blocks lie in it or not. A pool
// of a driver that does not tell has its blocks charged as any others. Threading: any thread.
#pragma once

#include <stdbool.h>

#include "guard/abi.h"

// The place of a pool, counted from 1; 0: none (no device memory, or the table is full).
uint32_t pools_place_of(CUmemoryPool pool, int gpu);
CUmemoryPool pools_handle(uint32_t place);
// Whether the driver tells what the pool has reserved.
bool pools_tell(uint32_t place);
// What an allocation may make the pool reserve: pools grow by chunks.
uint64_t pools_growth(uint64_t bytes);
// Whether the pool has so much reserved and unused.
bool pools_have_room(uint32_t place, uint64_t bytes);
// Reads the pool's reserve and charges it, first from `held`, which was charged for it before; the rest of
// that goes back. False: there is no room for what it has reserved.
bool pools_settle(uint32_t place, uint64_t held);
enum { POOLS_OF_ANY_GPU = -1 };
void pools_settle_all(int gpu);
// What pools are charged for and have given back to the device by themselves: read before the difference
// between what the driver holds and what is charged means anything.
uint64_t pools_late(int gpu);
void pools_gone(CUmemoryPool pool);
// Has the GPU's pools give back what they do not use. True if anything came back.
bool pools_trim(int gpu);
void pools_forget_all(void);
