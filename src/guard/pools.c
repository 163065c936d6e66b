#include "guard/pools.h"

#include <pthread.h>
#include <string.h>

#include "guard/charge.h"
#include "guard/real_library.h"

enum { MOST_POOLS = 1024 };

static struct Pool {
  CUmemoryPool handle;
  int gpu;
  uint64_t blocks;  // cost of the blocks in it
  uint64_t slack;   // charged beside them
} pools[MOST_POOLS];
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
  }
  pthread_mutex_unlock(&mutex);
  return found;
}

CUmemoryPool pools_handle(uint32_t place) { return place == 0 ? 0 : pools[place - 1].handle; }

void pools_entered(uint32_t place, uint64_t cost) {
  if (place != 0) __atomic_fetch_add(&pools[place - 1].blocks, cost, __ATOMIC_RELAXED);
}

void pools_left(uint32_t place, uint64_t cost) {
  if (place != 0) __atomic_fetch_sub(&pools[place - 1].blocks, cost, __ATOMIC_RELAXED);
}

static bool reserved_of(CUmemoryPool handle, uint64_t* bytes) {
  static CUresult (*attribute_of)(CUmemoryPool, int, void*);
  if (attribute_of == 0) *(void**)&attribute_of = real_cuda("cuMemPoolGetAttribute");
  return attribute_of != 0 &&
         attribute_of(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes) == CUDA_SUCCESS;
}

static bool settle(struct Pool* pool) {
  uint64_t reserved = 0;
  if (!reserved_of(pool->handle, &reserved)) return true;
  const uint64_t blocks = __atomic_load_n(&pool->blocks, __ATOMIC_RELAXED);
  const uint64_t wanted = reserved > blocks ? reserved - blocks : 0;
  if (wanted > pool->slack) {
    // Not `charge_more` through relieve(): it would come back here.
    if (!charge_more_now(pool->gpu, wanted - pool->slack)) return false;
  } else {
    charge_less(pool->gpu, pool->slack - wanted);
  }
  pool->slack = wanted;
  return true;
}

bool pools_settle(uint32_t place) {
  if (place == 0) return true;
  pthread_mutex_lock(&mutex);
  const bool settled = settle(&pools[place - 1]);
  pthread_mutex_unlock(&mutex);
  return settled;
}

void pools_settle_all(int gpu) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MOST_POOLS; ++i) {
    if (pools[i].handle != 0 && pools[i].gpu == gpu) settle(&pools[i]);
  }
  pthread_mutex_unlock(&mutex);
}

void pools_gone(CUmemoryPool handle) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MOST_POOLS; ++i) {
    if (pools[i].handle != handle || handle == 0) continue;
    charge_less(pools[i].gpu, pools[i].slack);
    pools[i] = (struct Pool){0};
  }
  pthread_mutex_unlock(&mutex);
}

bool pools_trim(int gpu) {
  static CUresult (*trim)(CUmemoryPool, size_t);
  if (trim == 0) *(void**)&trim = real_cuda("cuMemPoolTrimTo");
  bool came_back = false;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MOST_POOLS && trim != 0; ++i) {
    if (pools[i].handle == 0 || pools[i].gpu != gpu || pools[i].slack == 0) continue;
    const uint64_t before = pools[i].slack;
    trim(pools[i].handle, 0);
    settle(&pools[i]);
    came_back = came_back || pools[i].slack < before;
  }
  pthread_mutex_unlock(&mutex);
  return came_back;
}

void pools_forget_all(void) {
  memset(pools, 0, sizeof pools);
  const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  mutex = fresh;
}
