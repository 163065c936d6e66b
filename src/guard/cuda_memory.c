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
  pools_left(block.pool, release_end(&block, result));
  if (block.pool != 0) pools_settle(block.pool);
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

static CUresult keep_in_pool(struct Charge* charge, CUresult result, CUdeviceptr* address, size_t bytes,
                             CUmemoryPool pool) {
  charge->pool = charge->counted && result == CUDA_SUCCESS ? pools_place_of(pool, charge->gpu) : 0;
  result =
      charge_end(charge, result, result == CUDA_SUCCESS ? *address : 0, bytes, BLOCK_DEVICE, undo_allocation);
  if (charge->pool == 0 || result != CUDA_SUCCESS) return result;
  pools_entered(charge->pool, charge->cost);
  if (pools_settle(charge->pool)) return CUDA_SUCCESS;
  // The pool took more from the driver than the limit has: it goes back whole.
  struct Block block;
  if (release_begin(*address, &block)) pools_left(block.pool, release_end(&block, undo_allocation(*address)));
  pools_trim(charge->gpu);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  REAL(cuMemAllocAsync)
  struct Charge charge;
  CUresult result = charge_begin(&charge, gpu_of_current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, bytes, stream);
  return keep_in_pool(&charge, result, address, bytes, charge.counted ? current_pool() : 0);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
  REAL(cuMemAllocAsync_ptsz)
  struct Charge charge;
  CUresult result = charge_begin(&charge, gpu_of_current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, bytes, stream);
  return keep_in_pool(&charge, result, address, bytes, charge.counted ? current_pool() : 0);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  REAL(cuMemAllocFromPoolAsync)
  struct Charge charge;
  CUresult result = charge_begin(&charge, gpu_of_current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, bytes, pool, stream);
  return keep_in_pool(&charge, result, address, bytes, pool);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
  REAL(cuMemAllocFromPoolAsync_ptsz)
  struct Charge charge;
  CUresult result = charge_begin(&charge, gpu_of_current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, bytes, pool, stream);
  return keep_in_pool(&charge, result, address, bytes, pool);
}

// The memory goes back to its pool; the pool keeps it, and what it keeps is charged.
static CUresult free_in_order(CUresult (*real)(CUdeviceptr, CUstream), CUdeviceptr address, CUstream stream) {
  struct Block block;
  if (!release_begin(address, &block)) return real(address, stream);
  const CUresult result = real(address, stream);
  pools_left(block.pool, release_end(&block, result));
  if (block.pool != 0) pools_settle(block.pool);
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
