// Device memory by address: cuMemAlloc and its like, managed and stream-ordered memory, and their freeing.
#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/pools.h"
#include "guard/real_library.h"

static CUresult undo_allocation(CUdeviceptr address) {
  CUresult (*release)(CUdeviceptr) = 0;
  *(void**)&release = real_cuda("cuMemFree_v2");
  return release == 0 ? CUDA_ERROR_NOT_FOUND : release(address);
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  REAL(cuMemAlloc_v2)
  struct Charge charge;
  CUresult result = charge_begin(&charge, gpu_of_current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, bytes);
  return charge_end(&charge, result, result == CUDA_SUCCESS ? *address : 0, bytes, BLOCK_DEVICE,
                    undo_allocation);
}

// The driver rounds rows up to its pitch, which is known only afterwards; what it took more is taken then.
enum { PITCH_STEP = 512 };

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                            unsigned element) {
  REAL(cuMemAllocPitch_v2)
  struct Charge charge;
  uint64_t most = 0;
  const uint64_t row = ((uint64_t)width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP;
  const bool absurd = width > UINT64_MAX / 4 || __builtin_mul_overflow(row, (uint64_t)height, &most);
  CUresult result = charge_begin(&charge, gpu_of_current_context(), absurd ? UINT64_MAX : most);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, pitch, width, height, element);
  const uint64_t bytes = result == CUDA_SUCCESS ? (uint64_t)*pitch * height : 0;
  return charge_end(&charge, result, result == CUDA_SUCCESS ? *address : 0, bytes, BLOCK_DEVICE,
                    undo_allocation);
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  REAL(cuMemAllocManaged)
  struct Charge charge;
  CUresult result = charge_begin(&charge, gpu_of_current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, bytes, flags);
  return charge_end(&charge, result, result == CUDA_SUCCESS ? *address : 0, bytes, BLOCK_MANAGED,
                    undo_allocation);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  REAL(cuMemFree_v2)
  struct Block block;
  if (!release_begin(address, &block)) return real(address);
  const CUresult result = real(address);
  release_end(&block, result);
  pools_settle(block.pool, 0);
  return result;
}

// --- stream-ordered
// ---------------------------------------------------------------------------------------------

static CUmemoryPool current_pool(void) {
  static CUresult (*device_of)(CUdevice*);
  static CUresult (*pool_of)(CUmemoryPool*, CUdevice);
  if (device_of == 0) *(void**)&device_of = real_cuda("cuCtxGetDevice");
  if (pool_of == 0) *(void**)&pool_of = real_cuda("cuDeviceGetMemPool");
  CUdevice device = 0;
  CUmemoryPool pool = 0;
  if (device_of == 0 || pool_of == 0 || device_of(&device) != CUDA_SUCCESS) return 0;
  return pool_of(&pool, device) == CUDA_SUCCESS ? pool : 0;
}

// An allocation in a pool: `held` is charged for what the pool may reserve for it.
struct Pooled {
  struct Charge charge;
  uint32_t place;
  bool tells;
  uint64_t held;
};

static CUresult begin_in_pool(struct Pooled* pooled, size_t bytes, CUmemoryPool pool) {
  const int gpu = gpu_of_current_context();
  pooled->place = gpu < 0 ? 0 : pools_place_of(pool, gpu);
  pooled->tells = pools_tell(pooled->place);
  pooled->held = 0;
  const CUresult begun = charge_begin(&pooled->charge, gpu, pooled->tells ? 0 : bytes);
  if (begun != CUDA_SUCCESS || !pooled->charge.counted || !pooled->tells) return begun;
  const uint64_t growth = pools_growth(bytes);
  if (charge_more(gpu, growth)) {
    pooled->held = growth;
  } else if (!pools_have_room(pooled->place, bytes)) {
    return charge_end(&pooled->charge, CUDA_ERROR_OUT_OF_MEMORY, 0, 0, BLOCK_POOL, undo_allocation);
  }
  return CUDA_SUCCESS;
}

static CUresult end_in_pool(struct Pooled* pooled, CUresult result, CUdeviceptr* address, size_t bytes) {
  pooled->charge.pool = pooled->place;
  const bool made = result == CUDA_SUCCESS;
  result = charge_end(&pooled->charge, result, made ? *address : 0, bytes,
                      pooled->tells ? BLOCK_POOL : BLOCK_DEVICE, undo_allocation);
  if (!pooled->charge.counted || !pooled->tells) return result;
  if (pools_settle(pooled->place, pooled->held) || result != CUDA_SUCCESS) return result;
  // The pool took more from the driver than the limit has: it goes back whole.
  struct Block block;
  if (release_begin(*address, &block)) release_end(&block, undo_allocation(*address));
  pools_trim(pooled->charge.gpu);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  REAL(cuMemAllocAsync)
  struct Pooled pooled;
  const CUresult begun = begin_in_pool(&pooled, bytes, current_pool());
  return begun != CUDA_SUCCESS ? begun : end_in_pool(&pooled, real(address, bytes, stream), address, bytes);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
  REAL(cuMemAllocAsync_ptsz)
  struct Pooled pooled;
  const CUresult begun = begin_in_pool(&pooled, bytes, current_pool());
  return begun != CUDA_SUCCESS ? begun : end_in_pool(&pooled, real(address, bytes, stream), address, bytes);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  REAL(cuMemAllocFromPoolAsync)
  struct Pooled pooled;
  const CUresult begun = begin_in_pool(&pooled, bytes, pool);
  return begun != CUDA_SUCCESS ? begun
                               : end_in_pool(&pooled, real(address, bytes, pool, stream), address, bytes);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
  REAL(cuMemAllocFromPoolAsync_ptsz)
  struct Pooled pooled;
  const CUresult begun = begin_in_pool(&pooled, bytes, pool);
  return begun != CUDA_SUCCESS ? begun
                               : end_in_pool(&pooled, real(address, bytes, pool, stream), address, bytes);
}

// The memory goes back to its pool; the pool keeps it, and what it keeps is charged.
static CUresult free_in_order(CUresult (*real)(CUdeviceptr, CUstream), CUdeviceptr address, CUstream stream) {
  struct Block block;
  if (!release_begin(address, &block)) return real(address, stream);
  const CUresult result = real(address, stream);
  release_end(&block, result);
  pools_settle(block.pool, 0);
  return result;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  REAL(cuMemFreeAsync)
  return free_in_order(real, address, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  REAL(cuMemFreeAsync_ptsz)
  return free_in_order(real, address, stream);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  REAL(cuMemPoolTrimTo)
  const CUresult result = real(pool, keep);
  const int gpu = gpu_of_current_context();
  if (gpu >= 0) pools_settle_all(gpu);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  REAL(cuMemPoolDestroy)
  const CUresult result = real(pool);
  if (result == CUDA_SUCCESS) pools_gone(pool);
  return result;
}

// --- synchronisation
// ---------------------------------------------------------------------------------------------

// Pools give back what is over their threshold at the next synchronisation.
#define SYNCHRONIZE(call)             \
  const CUresult result = call;       \
  pools_settle_all(POOLS_OF_ANY_GPU); \
  return result

CUresult cuCtxSynchronize(void) {
  REAL(cuCtxSynchronize)
  SYNCHRONIZE(real());
}
CUresult cuCtxSynchronize_v2(CUcontext context) {
  REAL(cuCtxSynchronize_v2)
  SYNCHRONIZE(real(context));
}
CUresult cuStreamSynchronize(CUstream stream) {
  REAL(cuStreamSynchronize)
  SYNCHRONIZE(real(stream));
}
CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  REAL(cuStreamSynchronize_ptsz)
  SYNCHRONIZE(real(stream));
}
CUresult cuEventSynchronize(CUevent event) {
  REAL(cuEventSynchronize)
  SYNCHRONIZE(real(event));
}
