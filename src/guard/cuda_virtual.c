// Virtual memory management: physical memory has a handle, is mapped anywhere and often, and goes when its
// last handle is released and its last mapping is undone. Charged to the process that made it; who imports
// pays nothing.
#include <pthread.h>
#include <stdlib.h>

#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/lease.h"
#include "guard/real_library.h"

struct Physical {
  CUmemHandle handle;  // valid while `references` is not 0: the driver may give it again then
  unsigned references;
  unsigned mappings;
  int gpu;
  uint64_t cost;
  struct Physical* next;
};

struct Mapping {
  CUdeviceptr address;
  uint64_t bytes;
  struct Physical* physical;
  struct Mapping* next;
};

enum { BUCKETS = 4096 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct Physical* physicals[BUCKETS];  // those with references, by handle
static struct Mapping* mappings[BUCKETS];    // by page of their first address

static struct Physical** bucket_of_handle(CUmemHandle handle) {
  return &physicals[handle * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}
static struct Mapping** bucket_of_address(CUdeviceptr address) {
  return &mappings[address / BLOCK_PAGE * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}

static struct Physical* find(CUmemHandle handle) {
  struct Physical* physical = *bucket_of_handle(handle);
  while (physical != 0 && physical->handle != handle) physical = physical->next;
  return physical;
}

static void link_handle(struct Physical* physical) {
  struct Physical** bucket = bucket_of_handle(physical->handle);
  physical->next = *bucket;
  *bucket = physical;
}

static void unlink_handle(struct Physical* physical) {
  struct Physical** place = bucket_of_handle(physical->handle);
  while (*place != physical) place = &(*place)->next;
  *place = physical->next;
}

static void end_if_unused(struct Physical* physical) {
  if (physical->references != 0 || physical->mappings != 0) return;
  charge_less(physical->gpu, physical->cost);
  free(physical);
}

CUresult cuMemCreate(CUmemHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  REAL(cuMemCreate)
  const bool on_device = properties != 0 && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const int gpu = on_device ? gpu_of_device(properties->location.id) : LEASE_GPU_UNCOUNTED;
  if (gpu == LEASE_GPU_UNCOUNTED || bytes == 0) return real(handle, bytes, properties, flags);
  struct Physical* physical = calloc(1, sizeof *physical);
  if (physical == 0 || bytes > UINT64_MAX - BLOCK_PAGE) return free(physical), CUDA_ERROR_OUT_OF_MEMORY;
  physical->gpu = gpu;
  physical->cost = ((uint64_t)bytes + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
  if (!charge_more(gpu, physical->cost)) return free(physical), refusal_of(gpu);
  const CUresult result = real(handle, bytes, properties, flags);
  if (result != CUDA_SUCCESS) {
    charge_less(gpu, physical->cost);
    free(physical);
    return result;
  }
  physical->handle = *handle;
  physical->references = 1;
  pthread_mutex_lock(&mutex);
  link_handle(physical);
  pthread_mutex_unlock(&mutex);
  return CUDA_SUCCESS;
}

// The driver is called with the table locked: another thread could be given the same handle in between.
CUresult cuMemRelease(CUmemHandle handle) {
  REAL(cuMemRelease)
  pthread_mutex_lock(&mutex);
  const CUresult result = real(handle);
  struct Physical* physical = result == CUDA_SUCCESS ? find(handle) : 0;
  if (physical != 0 && --physical->references == 0) {
    unlink_handle(physical);
    end_if_unused(physical);
  }
  pthread_mutex_unlock(&mutex);
  return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle,
                  unsigned long long flags) {
  REAL(cuMemMap)
  struct Mapping* mapping = calloc(1, sizeof *mapping);
  if (mapping == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&mutex);
  const CUresult result = real(address, bytes, offset, handle, flags);
  struct Physical* physical = result == CUDA_SUCCESS ? find(handle) : 0;
  if (physical != 0) {
    ++physical->mappings;
    struct Mapping** bucket = bucket_of_address(address);
    *mapping = (struct Mapping){address, bytes, physical, *bucket};
    *bucket = mapping;
    mapping = 0;
  }
  pthread_mutex_unlock(&mutex);
  free(mapping);
  return result;
}

// One call may undo many neighbouring mappings, each whole.
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  REAL(cuMemUnmap)
  pthread_mutex_lock(&mutex);
  const CUresult result = real(address, bytes);
  for (CUdeviceptr at = address; result == CUDA_SUCCESS && at < address + bytes;) {
    struct Mapping** place = bucket_of_address(at);
    while (*place != 0 && (*place)->address != at) place = &(*place)->next;
    struct Mapping* found = *place;
    if (found == 0) {  // imported memory, or a page inside one
      at = (at / BLOCK_PAGE + 1) * BLOCK_PAGE;
      continue;
    }
    *place = found->next;
    at += found->bytes;
    --found->physical->mappings;
    end_if_unused(found->physical);
    free(found);
  }
  pthread_mutex_unlock(&mutex);
  return result;
}

void virtual_forget_all(void) {
  const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  mutex = fresh;
  for (int i = 0; i < BUCKETS; ++i) {
    physicals[i] = 0;
    mappings[i] = 0;
  }
}

static struct Physical* mapped_at(CUdeviceptr address) {
  for (int i = 0; i < BUCKETS; ++i) {
    for (struct Mapping* mapping = mappings[i]; mapping != 0; mapping = mapping->next) {
      if (address - mapping->address < mapping->bytes) return mapping->physical;
    }
  }
  return 0;
}

CUresult cuMemRetainAllocationHandle(CUmemHandle* handle, void* address) {
  REAL(cuMemRetainAllocationHandle)
  pthread_mutex_lock(&mutex);
  const CUresult result = real(handle, address);
  struct Physical* physical = result == CUDA_SUCCESS ? mapped_at((CUdeviceptr)(uintptr_t)address) : 0;
  if (physical != 0) {
    // Memory that was only mapped has a handle again, perhaps another one.
    if (physical->references == 0) {
      physical->handle = *handle;
      link_handle(physical);
    }
    if (physical->handle == *handle) ++physical->references;
  }
  pthread_mutex_unlock(&mutex);
  return result;
}
