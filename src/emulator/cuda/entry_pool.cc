// Entry points: stream-ordered memory and its pools.

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

// Releases at once: the bytes are only touched by copies, which are done when they are submitted.
CUresult free_async(CUdeviceptr address, CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  Block block;
  CUdevice ordinal = 0;
  if (!driver().find_block(address, block, ordinal) || block.address != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return driver().device(ordinal)->memory->release(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate_async(CUdeviceptr* address, size_t bytes, CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Context& context = *stream->context;
  return driver().device(context.device)->memory->allocate(bytes, context.handle, *address);
}

CUresult allocate_from_pool(CUdeviceptr* address, size_t bytes, CUmemoryPool handle, CUstream stream_handle,
                            DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(stream_handle, mode, stream));
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Pool> pool = driver().pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return driver().device(pool->device)->memory->allocate(bytes, stream->context->handle, *address);
}

CUresult default_pool(CUdevice ordinal, CUmemoryPool* handle) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().device_mutex());
  if (device->default_pool == nullptr) {
    auto pool = std::make_shared<Pool>();
    pool->device = ordinal;
    pool->is_default = true;
    device->default_pool = driver().pools.add(std::move(pool));
  }
  *handle = device->default_pool;
  return CUDA_SUCCESS;
}

// Writes the value of an attribute of a pool.
template <class T>
CUresult answer(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

}  // namespace

CUDA_ENTRY cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return allocate_async(address, bytes, stream, DefaultStream::legacy);
}
CUDA_ENTRY cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return allocate_async(address, bytes, stream, DefaultStream::per_thread);
}
CUDA_ENTRY cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free_async(address, stream, DefaultStream::legacy);
}
CUDA_ENTRY cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return free_async(address, stream, DefaultStream::per_thread);
}
CUDA_ENTRY cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return allocate_from_pool(address, bytes, pool, stream, DefaultStream::legacy);
}
CUDA_ENTRY cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                        CUstream stream) {
  return allocate_from_pool(address, bytes, pool, stream, DefaultStream::per_thread);
}

CUDA_ENTRY cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return default_pool(device, pool);
}

CUDA_ENTRY cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  CUDA_TRY(default_pool(ordinal, pool));
  const std::lock_guard lock(driver().device_mutex());
  if (driver().device(ordinal)->pool != nullptr) *pool = driver().device(ordinal)->pool;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  const std::shared_ptr<Pool> pool = driver().pools.find(handle);
  if (pool == nullptr || pool->device != ordinal) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().device_mutex());
  device->pool = handle;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (properties->handle_types != 0 || properties->location.type != 1) return CUDA_ERROR_NOT_SUPPORTED;
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(properties->location.id, device));
  auto pool = std::make_shared<Pool>();
  pool->device = properties->location.id;
  *handle = driver().pools.add(std::move(pool));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolDestroy(CUmemoryPool handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Pool> pool = driver().pools.find(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  driver().pools.remove(handle);
  return CUDA_SUCCESS;
}

// Pools keep nothing when memory is freed, so there is nothing to trim.
CUDA_ENTRY cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes_to_keep) {
  CUDA_TRY(driver().ready());
  static_cast<void>(bytes_to_keep);
  return driver().pools.find(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Attributes 1 to 3: how freed memory may be reused (int); 4: release threshold; 5 to 8: bytes reserved and
// used, now and at most (64 bits).
CUDA_ENTRY cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void* value) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Pool> pool = driver().pools.find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(pool->mutex);
  if (attribute >= 1 && attribute <= 3) {
    pool->reuse[static_cast<size_t>(attribute)] = *static_cast<int*>(value);
  } else if (attribute == 4) {
    pool->release_threshold = *static_cast<uint64_t*>(value);
  } else if ((attribute != 6 && attribute != 8) || *static_cast<uint64_t*>(value) != 0) {
    return CUDA_ERROR_INVALID_VALUE;  // only the high-water marks can be set, and only to 0
  }
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void* value) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Pool> pool = driver().pools.find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(pool->mutex);
  if (attribute >= 1 && attribute <= 3) return answer(value, pool->reuse[static_cast<size_t>(attribute)]);
  if (attribute == 4) return answer(value, pool->release_threshold);
  return CUDA_ERROR_NOT_SUPPORTED;  // what a pool holds is not accounted for
}

}  // namespace tranche::emulator::cuda
