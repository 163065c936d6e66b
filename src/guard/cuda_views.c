// What a job sees of its GPU's memory: total = its limit, free = what it could be given now: its limit less
// what is charged, and for a burst no more than is not needed by others.
#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/lease.h"
#include "guard/pools.h"
#include "guard/real_library.h"

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  REAL(cuMemGetInfo_v2)
  const CUresult result = real(free_bytes, total);
  const int gpu = gpu_of_current_context();
  if (result != CUDA_SUCCESS || gpu < 0) return result;
  pools_settle_all(gpu);
  measured_settle(gpu, false);
  struct Usage usage;
  lease_usage(gpu, &usage);
  // A limit is never more than the device has; what is free may be less, when others are over theirs.
  if (usage.limit < *total) *total = usage.limit;
  if (usage.available < *free_bytes) *free_bytes = usage.available;
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  REAL(cuDeviceTotalMem_v2)
  const CUresult result = real(bytes, device);
  const int gpu = gpu_of_device(device);
  if (result != CUDA_SUCCESS || gpu < 0) return result;
  struct Usage usage;
  lease_usage(gpu, &usage);
  if (usage.limit < *bytes) *bytes = usage.limit;
  return CUDA_SUCCESS;
}
