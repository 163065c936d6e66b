// What this process has allocated: address -> how much, on which GPU. Sharded and open-addressed, so that a
// free costs the same with 20 or 20,000 live blocks. Threading: any thread; a shard is locked for a few
// loads.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum BlockKind {
  BLOCK_DEVICE = 1,   // cuMemAlloc and its like: charged by the pages that it lies in
  BLOCK_MANAGED = 2,  // charged in full; the driver may keep it on the host
  BLOCK_POOL = 3,     // lies in a pool that tells what it has reserved: that is what is charged
};

struct Block {
  uint64_t address;
  uint64_t bytes;  // as asked for, below 16 TiB
  int16_t gpu;     // 0..63
  int16_t kind;    // BlockKind
  uint32_t pool;   // place of its pool, counted from 1; 0: none; below 2048
};

// False: no memory for the table.
bool blocks_insert(const struct Block* block);
bool blocks_remove(uint64_t address, struct Block* block);
bool blocks_find(uint64_t address, struct Block* block);
// Removes every block of the GPU that `keep` says no to, and hands it to `removed`.
void blocks_sweep(int gpu, bool (*keep)(const struct Block*), void (*removed)(const struct Block*));
void blocks_forget_all(void);  // in a forked child

// The driver puts several small blocks into one page of 2 MiB. A page is charged while any block lies in it.
enum { BLOCK_PAGE = 2 << 20 };
// True if the page was not in use before / is not any more.
bool pages_enter(uint64_t page);
bool pages_leave(uint64_t page);
