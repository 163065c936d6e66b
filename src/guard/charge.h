// The order of every allocation: take from the lease, call the driver, then commit or roll back. Never look
// first and take later. Also what the driver holds beside blocks (contexts, modules, arrays, graphs): that is
// measured.
//
// Threading: any thread. Calls of the driver that come back into the guard in the same thread are let
// through.
#pragma once

#include <stdbool.h>

#include "guard/abi.h"
#include "guard/blocks.h"

struct Charge {
  int gpu;
  uint64_t taken;  // bytes
  uint64_t cost;   // set by charge_end: what the block added
  uint32_t pool;   // set by the caller between begin and end: place of the block's pool
  bool counted;    // false: let through
};

// Takes what `bytes` cost at most. CUDA_ERROR_OUT_OF_MEMORY: refused, the driver is not to be called.
CUresult charge_begin(struct Charge* charge, int gpu, uint64_t bytes);
// After the driver's call: `result` is its answer and is what the program gets, but for a block that turned
// out to cost more than there is: `undo` is then called with it. Keeps the block under its address.
CUresult charge_end(struct Charge* charge, CUresult result, CUdeviceptr address, uint64_t bytes,
                    enum BlockKind kind, CUresult (*undo)(CUdeviceptr));

// Freeing: `begin` takes the block out of the table before the driver may give its address to another thread.
// False: not ours, let through.
bool release_begin(CUdeviceptr address, struct Block* block);
// Returns what came back.
uint64_t release_end(const struct Block* block, CUresult result);

// What is charged beside blocks, by name of its cause: `bytes` more or less. True when it could be taken.
bool charge_more(int gpu, uint64_t bytes);
bool charge_more_now(int gpu, uint64_t bytes);  // without asking pools to give back first
void charge_less(int gpu, uint64_t bytes);

// A call whose cost only the driver knows. `measured_begin` takes an estimate; `measured_end` reads what the
// driver says that this process holds, and charges that. False from `measured_end`: it took more than there
// was, and all that was left is charged; the caller undoes it, and measures again (measured_settle).
//
// Managed memory may be in what the driver says, in part or not at all. While a process has some, what comes
// and goes in the call is the difference between before and after, within what the sum leaves open; so
// `measured_begin` comes before the driver's call where memory is given back, too.
struct Measured {
  int gpu;
  uint64_t estimate;
  uint64_t beside;  // what the driver held beside blocks before the call
  bool beside_known;
  bool counted;
};
CUresult measured_begin(struct Measured* measured, int gpu, uint64_t estimate);
bool measured_end(struct Measured* measured, bool called);
// Charges what came since without a call of ours: code is loaded at its first launch. When there is not so
// much left, all that is left. At most every 100 ms when `seldom`.
void measured_settle(int gpu, bool seldom);
// What was measured lies there, or may lie anywhere, in less than a page: small blocks may share its pages.
void measured_at(CUdeviceptr address, uint64_t bytes);
void measured_anywhere(void);
// What was measured beside blocks.
uint64_t measured_overhead(int gpu);
// A context is gone: blocks that the driver does not know any more are too.
void sweep_blocks(int gpu);
// Gives back what can be spared: unused memory of pools. True if anything came back.
bool relieve(int gpu);
