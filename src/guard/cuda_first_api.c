// The first API's names, with 32-bit addresses and sizes. No program that is built today calls them; the
// driver still has them, so they are no way around the guard.
#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/real_library.h"

static CUresult undo_allocation(CUdeviceptr address) {
  CUresult (*release)(unsigned) = 0;
  *(void**)&release = real_cuda("cuMemFree");
  return release == 0 ? CUDA_ERROR_NOT_FOUND : release((unsigned)address);
}

CUresult cuMemAlloc(unsigned* address, unsigned bytes) {
  REAL(cuMemAlloc)
  struct Charge charge;
  CUresult result = charge_begin(&charge, gpu_of_current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, bytes);
  return charge_end(&charge, result, result == CUDA_SUCCESS ? *address : 0, bytes, BLOCK_DEVICE,
                    undo_allocation);
}

CUresult cuMemAllocPitch(unsigned* address, unsigned* pitch, unsigned width, unsigned height,
                         unsigned element) {
  REAL(cuMemAllocPitch)
  struct Charge charge;
  const uint64_t most = ((uint64_t)width + 511) / 512 * 512 * height;
  CUresult result = charge_begin(&charge, gpu_of_current_context(), most);
  if (result != CUDA_SUCCESS) return result;
  result = real(address, pitch, width, height, element);
  const uint64_t bytes = result == CUDA_SUCCESS ? (uint64_t)*pitch * height : 0;
  return charge_end(&charge, result, result == CUDA_SUCCESS ? *address : 0, bytes, BLOCK_DEVICE,
                    undo_allocation);
}

CUresult cuMemFree(unsigned address) {
  REAL(cuMemFree)
  struct Block block;
  if (!release_begin(address, &block)) return real(address);
  const CUresult result = real(address);
  release_end(&block, result);
  return result;
}

static unsigned fits(uint64_t bytes) { return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes; }

CUresult cuMemGetInfo(unsigned* free_bytes, unsigned* total) {
  REAL(cuMemGetInfo)
  CUresult result = real(free_bytes, total);
  size_t now_free = 0;
  size_t now_total = 0;
  if (result != CUDA_SUCCESS || gpu_of_current_context() < 0) return result;
  result = cuMemGetInfo_v2(&now_free, &now_total);
  if (result != CUDA_SUCCESS) return result;
  *free_bytes = fits(now_free);
  *total = fits(now_total);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice device) {
  REAL(cuDeviceTotalMem)
  CUresult result = real(bytes, device);
  size_t now = 0;
  if (result != CUDA_SUCCESS || gpu_of_device(device) < 0) return result;
  result = cuDeviceTotalMem_v2(&now, device);
  if (result == CUDA_SUCCESS) *bytes = fits(now);
  return result;
}
