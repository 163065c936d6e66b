#include "guard/blocks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 64, FIRST_PLACES = 64, SPINS = 64 };

// A block in 16 bytes: with 20,000 of them what a free costs is how many lines of the cache they fill.
struct Entry {
  uint64_t address;  // 0: an empty place
  uint64_t facts;    // bytes << 20 | gpu << 13 | kind << 11 | pool; of a page: the number of its blocks
};

// Held for a few loads and never across a wait, so a word does what a mutex would, at a third of its price.
struct Shard {
  int lock;
  struct Entry* places;
  size_t capacity;  // a power of two
  size_t live;
} __attribute__((aligned(64)));

static struct Shard block_shards[SHARDS];
static struct Shard page_shards[SHARDS];  // address is the page's number + 1, shifted as the hash expects

static void lock(struct Shard* shard) {
  for (int spins = 0; __atomic_exchange_n(&shard->lock, 1, __ATOMIC_ACQUIRE) != 0; ++spins) {
    if (spins >= SPINS) sched_yield();
  }
}
static void unlock(struct Shard* shard) { __atomic_store_n(&shard->lock, 0, __ATOMIC_RELEASE); }

static struct Entry pack(const struct Block* block) {
  const struct Entry entry = {block->address, block->bytes << 20 | (uint64_t)block->gpu << 13 |
                                                  (uint64_t)block->kind << 11 | block->pool};
  return entry;
}
static struct Block unpack(struct Entry entry) {
  const struct Block block = {entry.address, entry.facts >> 20, (int16_t)(entry.facts >> 13 & 63),
                              (int16_t)(entry.facts >> 11 & 3), (uint32_t)(entry.facts & 2047)};
  return block;
}

// Addresses are multiples of 256 at least; the high bits of the product are well mixed.
static uint64_t hash_of(uint64_t address) { return (address >> 8) * UINT64_C(0x9e3779b97f4a7c15); }
static struct Shard* shard_of(struct Shard* shards, uint64_t address) {
  return &shards[hash_of(address) >> 58];
}
static size_t home_of(const struct Shard* shard, uint64_t address) {
  return (size_t)(hash_of(address) >> 24) & (shard->capacity - 1);
}

static size_t place_of(const struct Shard* shard, uint64_t address) {
  size_t place = home_of(shard, address);
  while (shard->places[place].address != 0 && shard->places[place].address != address) {
    place = (place + 1) & (shard->capacity - 1);
  }
  return place;
}

static bool grow(struct Shard* shard) {
  const size_t old_capacity = shard->capacity;
  struct Entry* old = shard->places;
  struct Entry* places = calloc(old_capacity == 0 ? FIRST_PLACES : old_capacity * 2, sizeof *places);
  if (places == 0) return false;
  shard->places = places;
  shard->capacity = old_capacity == 0 ? FIRST_PLACES : old_capacity * 2;
  for (size_t i = 0; i < old_capacity; ++i) {
    if (old[i].address != 0) places[place_of(shard, old[i].address)] = old[i];
  }
  free(old);
  return true;
}

// Closes the gap, so that look-ups need no marks of what was removed.
static void erase(struct Shard* shard, size_t place) {
  const size_t mask = shard->capacity - 1;
  for (size_t next = (place + 1) & mask; shard->places[next].address != 0; next = (next + 1) & mask) {
    const size_t home = home_of(shard, shard->places[next].address);
    if (((next - home) & mask) < ((next - place) & mask)) continue;
    shard->places[place] = shard->places[next];
    place = next;
  }
  memset(&shard->places[place], 0, sizeof shard->places[place]);
  --shard->live;
}

bool blocks_insert(const struct Block* block) {
  struct Shard* shard = shard_of(block_shards, block->address);
  lock(shard);
  const bool room = shard->live * 4 < shard->capacity * 3 || grow(shard);
  if (room) {
    const size_t place = place_of(shard, block->address);
    shard->live += shard->places[place].address == 0;
    shard->places[place] = pack(block);
  }
  unlock(shard);
  return room;
}

static bool look_up(uint64_t address, struct Block* block, bool remove) {
  struct Shard* shard = shard_of(block_shards, address);
  lock(shard);
  bool found = false;
  if (shard->capacity != 0 && address != 0) {
    const size_t place = place_of(shard, address);
    found = shard->places[place].address == address;
    if (found) *block = unpack(shard->places[place]);
    if (found && remove) erase(shard, place);
  }
  unlock(shard);
  return found;
}

bool blocks_remove(uint64_t address, struct Block* block) { return look_up(address, block, true); }
bool blocks_find(uint64_t address, struct Block* block) { return look_up(address, block, false); }

void blocks_sweep(int gpu, bool (*keep)(const struct Block*), void (*removed)(const struct Block*)) {
  for (int i = 0; i < SHARDS; ++i) {
    struct Shard* shard = &block_shards[i];
    lock(shard);
    for (size_t place = 0; place < shard->capacity;) {
      const struct Block block = unpack(shard->places[place]);
      if (block.address == 0 || block.gpu != gpu || keep(&block)) {
        ++place;
        continue;
      }
      erase(shard, place);  // another block may have moved here: it is looked at next
      removed(&block);
    }
    unlock(shard);
  }
}

static bool count_page(uint64_t page, int step) {
  const uint64_t key = (page + 1) << 8;  // never 0, and as the hash expects addresses
  struct Shard* shard = shard_of(page_shards, key);
  bool edge = true;
  lock(shard);
  if (shard->live * 4 < shard->capacity * 3 || grow(shard)) {
    const size_t place = place_of(shard, key);
    struct Entry* entry = &shard->places[place];
    if (step > 0) {
      edge = entry->address == 0;
      shard->live += edge;
      entry->address = key;
      ++entry->facts;
    } else {
      edge = entry->address != 0 && --entry->facts == 0;
      if (edge) erase(shard, place);
    }
  }
  unlock(shard);
  return edge;
}

bool pages_enter(uint64_t page) { return count_page(page, 1); }
bool pages_leave(uint64_t page) { return count_page(page, -1); }

void blocks_forget_all(void) {
  for (int i = 0; i < SHARDS; ++i) {
    struct Shard* both[] = {&block_shards[i], &page_shards[i]};
    for (int j = 0; j < 2; ++j) {
      const struct Shard empty = {0};
      *both[j] = empty;  // another thread of the parent may have held it in the midst of a change
    }
  }
}
