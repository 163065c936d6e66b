#include "guard/blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 64, FIRST_PLACES = 64 };

struct Shard {
  pthread_mutex_t mutex;
  struct Block* places;
  size_t capacity;  // a power of two
  size_t live;
} __attribute__((aligned(64)));

static struct Shard block_shards[SHARDS];
static struct Shard page_shards[SHARDS];  // address is the page's number + 1, bytes the number of its blocks

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
  struct Block* old = shard->places;
  struct Block* places = calloc(old_capacity == 0 ? FIRST_PLACES : old_capacity * 2, sizeof *places);
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
  pthread_mutex_lock(&shard->mutex);
  const bool room = shard->live * 2 < shard->capacity || grow(shard);
  if (room) {
    const size_t place = place_of(shard, block->address);
    shard->live += shard->places[place].address == 0;
    shard->places[place] = *block;
  }
  pthread_mutex_unlock(&shard->mutex);
  return room;
}

static bool look_up(uint64_t address, struct Block* block, bool remove) {
  struct Shard* shard = shard_of(block_shards, address);
  pthread_mutex_lock(&shard->mutex);
  bool found = false;
  if (shard->capacity != 0 && address != 0) {
    const size_t place = place_of(shard, address);
    found = shard->places[place].address == address;
    if (found) *block = shard->places[place];
    if (found && remove) erase(shard, place);
  }
  pthread_mutex_unlock(&shard->mutex);
  return found;
}

bool blocks_remove(uint64_t address, struct Block* block) { return look_up(address, block, true); }
bool blocks_find(uint64_t address, struct Block* block) { return look_up(address, block, false); }

void blocks_sweep(int gpu, bool (*keep)(const struct Block*), void (*removed)(const struct Block*)) {
  for (int i = 0; i < SHARDS; ++i) {
    struct Shard* shard = &block_shards[i];
    pthread_mutex_lock(&shard->mutex);
    for (size_t place = 0; place < shard->capacity;) {
      const struct Block block = shard->places[place];
      if (block.address == 0 || block.gpu != gpu || keep(&block)) {
        ++place;
        continue;
      }
      erase(shard, place);  // another block may have moved here: it is looked at next
      removed(&block);
    }
    pthread_mutex_unlock(&shard->mutex);
  }
}

static bool count_page(uint64_t page, int step) {
  const uint64_t key = (page + 1) << 8;  // never 0, and as the hash expects addresses
  struct Shard* shard = shard_of(page_shards, key);
  bool edge = true;
  pthread_mutex_lock(&shard->mutex);
  if (shard->live * 2 < shard->capacity || grow(shard)) {
    const size_t place = place_of(shard, key);
    struct Block* entry = &shard->places[place];
    if (step > 0) {
      edge = entry->address == 0;
      shard->live += edge;
      entry->address = key;
      ++entry->bytes;
    } else {
      edge = entry->address != 0 && --entry->bytes == 0;
      if (edge) erase(shard, place);
    }
  }
  pthread_mutex_unlock(&shard->mutex);
  return edge;
}

bool pages_enter(uint64_t page) { return count_page(page, 1); }
bool pages_leave(uint64_t page) { return count_page(page, -1); }

void blocks_forget_all(void) {
  for (int i = 0; i < SHARDS; ++i) {
    struct Shard* both[] = {&block_shards[i], &page_shards[i]};
    for (int j = 0; j < 2; ++j) {
      const struct Shard empty = {.mutex = PTHREAD_MUTEX_INITIALIZER};
      *both[j] = empty;  // another thread of the parent may have held it in the midst of a change
    }
  }
}
