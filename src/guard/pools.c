#include "guard/pools.h"

#include <pthread.h>
#include <string.h>

#include "guard/charge.h"
#include "guard/lease.h"
#include "guard/real_library.h"

enum { MOST_POOLS = 1024 };
static const uint64_t kChunk = UINT64_C(32) << 20;  // what drivers' pools are seen to reserve at a time

static struct Pool {
  CUmemoryPool handle;
  int gpu;
  uint64_t charged;
} pools[MOST_POOLS];
static uint32_t used_places;  // none beyond it was ever used; without pools nothing is to be looked at
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

uint32_t pools_place_of(CUmemoryPool handle, int gpu) {
  uint32_t free_place = 0;
  uint32_t found = 0;
  if (handle == 0 || gpu < 0) return 0;
  pthread_mutex_lock(&mutex);
  for (uint32_t i = 0; i < MOST_POOLS && found == 0; ++i) {
    if (pools[i].handle == handle) found = i + 1;
    if (pools[i].handle == 0 && free_place == 0) free_place = i + 1;
  }
  if (found == 0 && free_place != 0) {
    pools[free_place - 1] = (struct Pool){.handle = handle, .gpu = gpu};
    found = free_place;
    if (found > used_places) __atomic_store_n(&used_places, found, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mutex);
  return found;
}

CUmemoryPool pools_handle(uint32_t place) { return place == 0 ? 0 : pools[place - 1].handle; }

static bool attribute_of(CUmemoryPool handle, int attribute, uint64_t* bytes) {
  static CUresult (*real)(CUmemoryPool, int, void*);
  if (real == 0) *(void**)&real = real_cuda("cuMemPoolGetAttribute");
  return real != 0 && real(handle, attribute, bytes) == CUDA_SUCCESS;
}

bool pools_tell(uint32_t place) {
  uint64_t reserved = 0;
  return place != 0 && attribute_of(pools[place - 1].handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
}

uint64_t pools_growth(uint64_t bytes) {
  if (bytes > UINT64_MAX - BLOCK_PAGE) return UINT64_MAX;
  const uint64_t pages = (bytes + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
  return pages > kChunk ? pages : kChunk;
}

bool pools_have_room(uint32_t place, uint64_t bytes) {
  uint64_t reserved = 0;
  uint64_t used = 0;
  const CUmemoryPool handle = pools[place - 1].handle;
  return attribute_of(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
         attribute_of(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) && reserved >= used &&
         reserved - used >= bytes;
}

static bool settle(struct Pool* pool, uint64_t held) {
  uint64_t reserved = 0;
  bool enough = true;
  if (attribute_of(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved)) {
    const uint64_t more = reserved > pool->charged ? reserved - pool->charged : 0;
    const uint64_t beyond = more > held ? more - held : 0;
    // Not through relieve(), which would come back here.
    enough = beyond == 0 || charge_more_now(pool->gpu, beyond);
    if (enough) {
      held -= more - beyond;
      if (reserved < pool->charged) charge_less(pool->gpu, pool->charged - reserved);
      pool->charged = reserved;
    }
  }
  charge_less(pool->gpu, held);
  return enough;
}

static void trim(const struct Pool* pool) {
  static CUresult (*real)(CUmemoryPool, size_t);
  if (real == 0) *(void**)&real = real_cuda("cuMemPoolTrimTo");
  if (real != 0) real(pool->handle, 0);
}

bool pools_settle(uint32_t place, uint64_t held) {
  if (place == 0) return true;
  pthread_mutex_lock(&mutex);
  const bool settled = settle(&pools[place - 1], held);
  pthread_mutex_unlock(&mutex);
  return settled;
}

void pools_settle_all(int gpu) {
  if (__atomic_load_n(&used_places, __ATOMIC_ACQUIRE) == 0) return;
  const bool others_need_it = lease_pressure();
  pthread_mutex_lock(&mutex);
  for (uint32_t i = 0; i < used_places; ++i) {
    if (pools[i].handle == 0 || (pools[i].gpu != gpu && gpu != POOLS_OF_ANY_GPU)) continue;
    if (others_need_it) trim(&pools[i]);
    settle(&pools[i], 0);
  }
  pthread_mutex_unlock(&mutex);
}

uint64_t pools_late(int gpu) {
  if (__atomic_load_n(&used_places, __ATOMIC_ACQUIRE) == 0) return 0;
  uint64_t bytes = 0;
  pthread_mutex_lock(&mutex);
  for (uint32_t i = 0; i < used_places; ++i) {
    uint64_t reserved = 0;
    if (pools[i].handle == 0 || pools[i].gpu != gpu) continue;
    if (!attribute_of(pools[i].handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved)) continue;
    if (reserved < pools[i].charged) bytes += pools[i].charged - reserved;
  }
  pthread_mutex_unlock(&mutex);
  return bytes;
}

void pools_gone(CUmemoryPool handle) {
  pthread_mutex_lock(&mutex);
  for (uint32_t i = 0; i < used_places; ++i) {
    if (pools[i].handle != handle || handle == 0) continue;
    charge_less(pools[i].gpu, pools[i].charged);
    pools[i] = (struct Pool){0};
  }
  pthread_mutex_unlock(&mutex);
}

bool pools_trim(int gpu) {
  bool came_back = false;
  pthread_mutex_lock(&mutex);
  for (uint32_t i = 0; i < used_places; ++i) {
    if (pools[i].handle == 0 || pools[i].gpu != gpu || pools[i].charged == 0) continue;
    const uint64_t before = pools[i].charged;
    trim(&pools[i]);
    settle(&pools[i], 0);
    came_back = came_back || pools[i].charged < before;
  }
  pthread_mutex_unlock(&mutex);
  return came_back;
}

void pools_forget_all(void) {
  memset(pools, 0, sizeof pools);
  used_places = 0;
  const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  mutex = fresh;
}
