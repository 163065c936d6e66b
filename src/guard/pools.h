// Memory pools: a block in a pool is charged as any block; what the pool has reserved beyond its blocks
// (slack) is charged beside them, from the pool's own attribute. Threading: any thread.
#pragma once

#include <stdbool.h>

#include "guard/abi.h"

// The place of a pool, counted from 1; 0: none (no device memory, or the table is full).
uint32_t pools_place_of(CUmemoryPool pool, int gpu);
CUmemoryPool pools_handle(uint32_t place);
// A block was added to, or left, the pool; `cost` is what it changed.
void pools_entered(uint32_t place, uint64_t cost);
void pools_left(uint32_t place, uint64_t cost);
// Reads the pool's reserve and charges it. False: there is no room for what it has reserved.
bool pools_settle(uint32_t place);
void pools_settle_all(int gpu);
void pools_gone(CUmemoryPool pool);
// Has the GPU's pools give back what they do not use. True if anything came back.
bool pools_trim(int gpu);
void pools_forget_all(void);
