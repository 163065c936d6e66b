#include "guard/charge.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/lease.h"
#include "guard/own_memory.h"
#include "guard/pools.h"
#include "guard/real_library.h"
#include "wire/guard.h"

// See real_library.c: names that moved are asked for by their old version.
__asm__(".symver pthread_mutex_trylock,pthread_mutex_trylock@GLIBC_2.2.5");

enum { MEASURE_TRIES = 100, SETTLE_EVERY_MS = 100 };

struct Account {
  uint64_t blocks;    // bytes of pages that blocks lie in, and other charges known exactly; the driver counts
                      // them too
  uint64_t managed;   // bytes that the driver may or may not count
  uint64_t overhead;  // measured: what the driver holds for us beside blocks
  uint64_t activity;  // low half: calls under way; high half: calls that ended
  uint64_t settled_ms;
  bool seen;  // the driver has named this process
} __attribute__((aligned(64)));

static struct Account accounts[TRANCHE_GUARD_MAX_GPUS];
static pthread_mutex_t measuring = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside __attribute__((tls_model("initial-exec")));

static uint64_t pages_of(uint64_t bytes) { return (bytes + BLOCK_PAGE - 1) / BLOCK_PAGE; }

static void add(uint64_t* value, uint64_t bytes) { __atomic_fetch_add(value, bytes, __ATOMIC_ACQ_REL); }
static void subtract(uint64_t* value, uint64_t bytes) { __atomic_fetch_sub(value, bytes, __ATOMIC_ACQ_REL); }

// Pages that blocks may share with what is measured: the page's cost is in one of the two, and goes over to
// the other when its owner there goes. Addresses of variables are known; those of arrays are not, so with
// small ones any page may be shared. Never forgotten: a page too many costs a question to the management
// library when its use changes.
enum { MOST_SHARED_PAGES = 64 };
static uint64_t shared_pages[MOST_SHARED_PAGES];
static uint32_t shared_page_count;  // MOST_SHARED_PAGES: any page

static void begin_activity(int gpu) { add(&accounts[gpu].activity, 1); }
static void end_activity(int gpu) { add(&accounts[gpu].activity, (UINT64_C(1) << 32) - 1); }

static void reset_after_fork(void) {
  blocks_forget_all();
  pools_forget_all();
  graphs_forget_all();
  virtual_forget_all();
  code_forget_all();
  for (int i = 0; i < TRANCHE_GUARD_MAX_GPUS; ++i) accounts[i] = (struct Account){0};
  shared_page_count = 0;
  inside = 0;
  const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  measuring = fresh;
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(0, 0, reset_after_fork); }

void measured_anywhere(void) { __atomic_store_n(&shared_page_count, MOST_SHARED_PAGES, __ATOMIC_RELEASE); }

void measured_at(CUdeviceptr address, uint64_t bytes) {
  for (uint64_t page = address / BLOCK_PAGE; bytes != 0 && page <= (address + bytes - 1) / BLOCK_PAGE;
       ++page) {
    const uint32_t count = shared_page_count;
    uint32_t i = 0;
    while (i < count && i < MOST_SHARED_PAGES && shared_pages[i] != page) ++i;
    if (i < count || count == MOST_SHARED_PAGES) continue;
    shared_pages[count] = page;
    __atomic_store_n(&shared_page_count, count + 1, __ATOMIC_RELEASE);
  }
}

// Whether a small block's pages may hold something measured too.
static bool is_shared(CUdeviceptr address, uint64_t bytes) {
  const uint32_t count = __atomic_load_n(&shared_page_count, __ATOMIC_ACQUIRE);
  if (count == 0 || bytes >= BLOCK_PAGE) return false;
  if (count == MOST_SHARED_PAGES) return true;
  for (uint32_t i = 0; i < count; ++i) {
    if (shared_pages[i] >= address / BLOCK_PAGE && shared_pages[i] <= (address + bytes - 1) / BLOCK_PAGE)
      return true;
  }
  return false;
}

static bool take(int gpu, uint64_t bytes) {
  if (lease_take(gpu, bytes)) return true;
  return gpu >= 0 && relieve(gpu) && lease_take(gpu, bytes);
}

static void settle_shared(int gpu, uint64_t cost);

// --- blocks
// -------------------------------------------------------------------------------------------------

CUresult charge_begin(struct Charge* charge, int gpu, uint64_t bytes) {
  charge->gpu = gpu;
  charge->taken = 0;
  charge->cost = 0;
  charge->pool = 0;
  charge->counted = inside == 0 && gpu != LEASE_GPU_UNCOUNTED;
  if (!charge->counted) return CUDA_SUCCESS;
  if (lease_pressure()) relieve(gpu);
  if (gpu >= 0 && !lease_has(gpu, bytes)) measured_settle(gpu, true);
  if (bytes > UINT64_MAX - BLOCK_PAGE) return CUDA_ERROR_OUT_OF_MEMORY;
  charge->taken = pages_of(bytes) * BLOCK_PAGE;
  if (!take(gpu, charge->taken)) return refusal_of(gpu);
  begin_activity(gpu);
  ++inside;
  return CUDA_SUCCESS;
}

// What a small block costs is a page that no other block lies in.
static uint64_t cost_of_entry(CUdeviceptr address, uint64_t bytes) {
  if (bytes >= BLOCK_PAGE) return pages_of(address % BLOCK_PAGE + bytes) * BLOCK_PAGE;
  uint64_t cost = 0;
  for (uint64_t page = address / BLOCK_PAGE; page <= (address + bytes - 1) / BLOCK_PAGE; ++page) {
    if (pages_enter(page)) cost += BLOCK_PAGE;
  }
  return cost;
}

static uint64_t cost_of_exit(const struct Block* block) {
  if (block->bytes >= BLOCK_PAGE) return pages_of(block->address % BLOCK_PAGE + block->bytes) * BLOCK_PAGE;
  uint64_t cost = 0;
  for (uint64_t page = block->address / BLOCK_PAGE; page <= (block->address + block->bytes - 1) / BLOCK_PAGE;
       ++page) {
    if (pages_leave(page)) cost += BLOCK_PAGE;
  }
  return cost;
}

static CUresult keep_block(struct Charge* charge, const struct Block* block, CUresult (*undo)(CUdeviceptr)) {
  const bool managed = block->kind == BLOCK_MANAGED;
  const bool pooled = block->kind == BLOCK_POOL;
  const uint64_t cost = managed ? charge->taken : pooled ? 0 : cost_of_entry(block->address, block->bytes);
  const bool held =
      (cost <= charge->taken || take(charge->gpu, cost - charge->taken)) && blocks_insert(block);
  if (held) {
    if (charge->taken > cost) lease_give_back(charge->gpu, charge->taken - cost);
    charge->cost = cost;
    if (cost != 0) add(managed ? &accounts[charge->gpu].managed : &accounts[charge->gpu].blocks, cost);
    return CUDA_SUCCESS;
  }
  if (!managed && !pooled) cost_of_exit(block);
  undo(block->address);
  lease_give_back(charge->gpu, charge->taken);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult charge_end(struct Charge* charge, CUresult result, CUdeviceptr address, uint64_t bytes,
                    enum BlockKind kind, CUresult (*undo)(CUdeviceptr)) {
  if (!charge->counted) return result;
  if (result == CUDA_SUCCESS) {
    const struct Block block = {address, bytes, (int16_t)charge->gpu, (int16_t)kind, charge->pool};
    result = keep_block(charge, &block, undo);
  } else {
    lease_give_back(charge->gpu, charge->taken);
  }
  --inside;
  end_activity(charge->gpu);
  if (charge->cost != 0 && kind == BLOCK_DEVICE && is_shared(address, bytes)) settle_shared(charge->gpu, 0);
  return result;
}

bool release_begin(CUdeviceptr address, struct Block* block) {
  if (inside != 0 || !blocks_remove(address, block)) return false;
  begin_activity(block->gpu);
  ++inside;
  return true;
}

uint64_t release_end(const struct Block* block, CUresult result) {
  uint64_t cost = 0;
  bool shared = false;
  if (result != CUDA_SUCCESS) {
    blocks_insert(block);  // it is still there
  } else {
    const bool managed = block->kind == BLOCK_MANAGED;
    if (block->kind != BLOCK_POOL) cost = managed ? pages_of(block->bytes) * BLOCK_PAGE : cost_of_exit(block);
    if (cost != 0) {
      shared = inside == 1 && block->kind == BLOCK_DEVICE && is_shared(block->address, block->bytes);
      subtract(managed ? &accounts[block->gpu].managed : &accounts[block->gpu].blocks, cost);
      if (!shared) lease_give_back(block->gpu, cost);
    }
  }
  --inside;
  end_activity(block->gpu);
  if (shared) settle_shared(block->gpu, cost);
  return cost;
}

bool charge_more(int gpu, uint64_t bytes) {
  if (gpu == LEASE_GPU_UNCOUNTED) return true;
  if (!take(gpu, bytes)) return false;
  add(&accounts[gpu].blocks, bytes);
  return true;
}

bool charge_more_now(int gpu, uint64_t bytes) {
  if (!lease_take(gpu, bytes)) return false;
  add(&accounts[gpu].blocks, bytes);
  return true;
}

void charge_less(int gpu, uint64_t bytes) {
  if (gpu < 0 || bytes == 0) return;
  subtract(&accounts[gpu].blocks, bytes);
  lease_give_back(gpu, bytes);
}

// --- what is measured
// ---------------------------------------------------------------------------------------

static CUresult enter_measured(struct Measured* measured, int gpu) {
  measured->gpu = gpu;
  measured->estimate = 0;
  measured->beside_known = false;
  measured->counted = inside == 0 && gpu != LEASE_GPU_UNCOUNTED;
  if (!measured->counted) return CUDA_SUCCESS;
  if (gpu == LEASE_GPU_UNKNOWN) return refusal_of(gpu);
  pthread_mutex_lock(&measuring);
  ++inside;
  return CUDA_SUCCESS;
}

static void leave_measured(void) {
  --inside;
  pthread_mutex_unlock(&measuring);
}

// In `blocks`, and not with the driver: not yet, or not any more.
static uint64_t charged_beyond(int gpu) { return graphs_early(gpu) + pools_late(gpu); }

// What the driver says we hold less blocks, at a moment when no call was under way: what was measured, and
// managed memory as far as the driver counts it. False: not known.
static bool read_beside(int gpu, uint64_t* beside) {
  struct Account* account = &accounts[gpu];
  for (int tries = 0; tries < MEASURE_TRIES; ++tries) {
    const uint64_t before = __atomic_load_n(&account->activity, __ATOMIC_ACQUIRE);
    const uint64_t blocks = __atomic_load_n(&account->blocks, __ATOMIC_ACQUIRE);
    const uint64_t beyond = charged_beyond(gpu);
    if ((uint32_t)before == 0) {
      uint64_t held = 0;
      const enum OwnMemory answer = own_memory(gpu, &held);
      if (answer == OWN_MEMORY_UNKNOWN || (answer == OWN_MEMORY_NONE && !account->seen)) return false;
      if (answer == OWN_MEMORY_KNOWN) account->seen = true;
      if (__atomic_load_n(&account->activity, __ATOMIC_ACQUIRE) == before && charged_beyond(gpu) == beyond &&
          __atomic_load_n(&account->blocks, __ATOMIC_ACQUIRE) == blocks) {
        *beside = held + beyond > blocks ? held + beyond - blocks : 0;
        return true;
      }
    }
    sched_yield();
  }
  return false;
}

// The overhead that fits to a reading and is nearest to `expected`.
static uint64_t overhead_within(int gpu, uint64_t expected, uint64_t beside) {
  const uint64_t managed = __atomic_load_n(&accounts[gpu].managed, __ATOMIC_ACQUIRE);
  const uint64_t least = beside > managed ? beside - managed : 0;
  const uint64_t bytes = expected < least ? least : expected > beside ? beside : expected;
  return (bytes + TRANCHE_GUARD_UNIT - 1) / TRANCHE_GUARD_UNIT * TRANCHE_GUARD_UNIT;
}

CUresult measured_begin(struct Measured* measured, int gpu, uint64_t estimate) {
  const CUresult entered = enter_measured(measured, gpu);
  if (entered != CUDA_SUCCESS || !measured->counted) return entered;
  if (estimate == 0 || take(gpu, estimate)) {
    measured->estimate = estimate;
    if (__atomic_load_n(&accounts[gpu].managed, __ATOMIC_ACQUIRE) != 0) {
      measured->beside_known = read_beside(gpu, &measured->beside);
    }
    return CUDA_SUCCESS;
  }
  leave_measured();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t take_what_is_left(int gpu, uint64_t wanted) {
  uint64_t taken = 0;
  for (uint64_t step = wanted; step >= TRANCHE_GUARD_UNIT; step /= 2) {
    step -= step % TRANCHE_GUARD_UNIT;
    while (taken + step <= wanted && step > 0 && lease_take(gpu, step)) taken += step;
  }
  return taken;
}

// The lease holds overhead + estimate; makes it hold what was measured.
bool measured_end(struct Measured* measured, bool called) {
  if (!measured->counted) return true;
  struct Account* account = &accounts[measured->gpu];
  const uint64_t held = account->overhead + measured->estimate;
  uint64_t wanted = called ? held : account->overhead;
  uint64_t beside = 0;
  if (called && read_beside(measured->gpu, &beside)) {
    const uint64_t sum = account->overhead + beside;
    if (measured->beside_known) wanted = sum > measured->beside ? sum - measured->beside : 0;
    wanted = overhead_within(measured->gpu, wanted, beside);
  }
  bool enough = true;
  if (wanted < held) lease_give_back(measured->gpu, held - wanted);
  if (wanted > held && !take(measured->gpu, wanted - held)) {
    enough = false;
    wanted = held + take_what_is_left(measured->gpu, wanted - held);
  }
  account->overhead = wanted;
  leave_measured();
  return enough;
}

static bool settled_lately(struct Account* account) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
  if (now_ms - account->settled_ms < SETTLE_EVERY_MS) return true;
  account->settled_ms = now_ms;
  return false;
}

void measured_settle(int gpu, bool seldom) {
  struct Account* account = &accounts[gpu];
  // Without a context of ours nothing comes by itself; who measures now settles it for us.
  if (inside != 0 || !account->seen || pthread_mutex_trylock(&measuring) != 0) return;
  ++inside;
  uint64_t beside = 0;
  if (!(seldom && settled_lately(account)) && read_beside(gpu, &beside)) {
    uint64_t overhead = overhead_within(gpu, account->overhead, beside);
    if (overhead < account->overhead) lease_give_back(gpu, account->overhead - overhead);
    if (overhead > account->overhead) {
      overhead = account->overhead + take_what_is_left(gpu, overhead - account->overhead);
    }
    account->overhead = overhead;
  }
  leave_measured();
}

// A page that is shared with what is measured came to the blocks, or (`cost`, still held) left them: whose it
// is now, the driver's figure tells.
static void settle_shared(int gpu, uint64_t cost) {
  struct Account* account = &accounts[gpu];
  pthread_mutex_lock(&measuring);
  ++inside;
  uint64_t beside = 0;
  const uint64_t held = account->overhead + cost;
  account->overhead = read_beside(gpu, &beside) ? overhead_within(gpu, held, beside) : account->overhead;
  if (account->overhead < held) lease_give_back(gpu, held - account->overhead);
  if (account->overhead > held) {
    account->overhead = held + take_what_is_left(gpu, account->overhead - held);
  }
  leave_measured();
}

uint64_t measured_overhead(int gpu) { return accounts[gpu].overhead; }

// --- contexts that go, and memory that can be spared
// ----------------------------------------------------------

static bool driver_knows(const struct Block* block) {
  static CUresult (*attribute_of)(void*, int, CUdeviceptr);
  if (attribute_of == 0) *(void**)&attribute_of = real_cuda("cuPointerGetAttribute");
  unsigned type = 0;
  if (attribute_of == 0) return true;
  return attribute_of(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block->address) != CUDA_ERROR_INVALID_VALUE;
}

static void forget_block(const struct Block* block) {
  begin_activity(block->gpu);
  ++inside;
  release_end(block, CUDA_SUCCESS);
}

void sweep_blocks(int gpu) {
  if (gpu < 0) return;
  ++inside;
  blocks_sweep(gpu, driver_knows, forget_block);
  --inside;
}

bool relieve(int gpu) { return pools_trim(gpu); }
