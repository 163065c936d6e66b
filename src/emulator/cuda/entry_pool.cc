// Entry points: stream-ordered memory and its pools.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

// Where an allocation of a pool lies, for another process.
struct ExportedPointer {
  uint64_t magic;
  uint64_t offset;
  uint64_t bytes, span;
};
constexpr uint64_t kExportedPointer = 0x504F4F4C50545231;

CUresult free_async(CUdeviceptr address, CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  CUresult result = CUDA_SUCCESS;
  if (captured(*stream, {NodeType::free, FreeWork{address}}, result)) return result;
  return driver().free_block(address, driver().moment(*stream));
}

CUresult default_pool(CUdevice ordinal, CUmemoryPool* handle) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().device_mutex());
  if (device->default_pool == nullptr) {
    CUmemPoolProps properties{};
    properties.allocation_type = kAllocationPinned;
    properties.location = {kLocationDevice, ordinal};
    auto pool = std::make_shared<Pool>(ordinal, *device->memory, properties);
    pool->is_default = true;
    device->default_pool = driver().pools.add(std::move(pool));
  }
  *handle = device->default_pool;
  return CUDA_SUCCESS;
}

CUresult current_pool(CUdevice ordinal, CUmemoryPool* handle) {
  CUDA_TRY(default_pool(ordinal, handle));
  const std::lock_guard lock(driver().device_mutex());
  if (driver().device(ordinal)->pool != nullptr) *handle = driver().device(ordinal)->pool;
  return CUDA_SUCCESS;
}

CUresult allocate_in(CUdeviceptr* address, size_t bytes, CUmemoryPool handle,
                     const std::shared_ptr<Stream>& stream) {
  const std::shared_ptr<Pool> pool = driver().pools.find(handle);
  if (pool == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  if (stream->capturing.load(std::memory_order_relaxed)) {
    AllocateWork work;
    work.request.pool = pool->properties();
    work.request.bytes = bytes;
    CUDA_TRY(reserve_graph_memory(work));
    *address = work.request.address;
    if (captured(*stream, {NodeType::allocate, std::move(work)}, result)) return result;
  }
  return pool->allocate(bytes, stream->context->handle, driver().moment(*stream), *address);
}

CUresult allocate_async(CUdeviceptr* address, size_t bytes, CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemoryPool pool = nullptr;
  CUDA_TRY(current_pool(stream->context->device, &pool));
  return allocate_in(address, bytes, pool, stream);
}

CUresult allocate_from_pool(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream handle,
                            DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate_in(address, bytes, pool, stream);
}

CUresult set_pool(CUdevice ordinal, CUmemoryPool handle) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  const std::shared_ptr<Pool> pool = driver().pools.find(handle);
  if (pool == nullptr || pool->device() != ordinal || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().device_mutex());
  device->pool = handle;
  return CUDA_SUCCESS;
}

CUresult check_location(const CUmemLocation* location, int type) {
  CUDA_TRY(driver().ready());
  if (location == nullptr || type != kAllocationPinned) return CUDA_ERROR_INVALID_VALUE;
  return location->type == kLocationDevice ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

template <class T>
CUresult answer(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

CUresult find_pool(CUmemoryPool handle, std::shared_ptr<Pool>& pool) {
  CUDA_TRY(driver().ready());
  pool = driver().pools.find(handle);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult make_pool(const CUmemPoolProps& properties, std::shared_ptr<Pool>& pool) {
  Driver::Device* device = nullptr;
  if (properties.allocation_type != kAllocationPinned) return CUDA_ERROR_INVALID_VALUE;
  if (properties.location.type != kLocationDevice) return CUDA_ERROR_NOT_SUPPORTED;
  if ((properties.handle_types & ~kHandleFile) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_TRY(driver().find_device(properties.location.id, device));
  if ((properties.handle_types & kHandleFile) == 0) {
    pool = std::make_shared<Pool>(properties.location.id, *device->memory, properties);
    return CUDA_SUCCESS;
  }
  auto memory = std::make_unique<DeviceMemory>(driver().model(), driver().slot(), device->gpu,
                                               DeviceMemory::Window::none);
  pool = std::make_shared<Pool>(properties.location.id, std::move(memory), properties);
  return CUDA_SUCCESS;
}

CUresult import_pool(CUmemoryPool* handle, int original) {
  uint32_t gpu = 0;
  Backing backing;
  CUDA_TRY(open_shareable(original, gpu, backing));
  const CUdevice ordinal = driver().ordinal_of(gpu);
  munmap(backing.bytes, backing.size);
  if (ordinal < 0) return CUDA_ERROR_INVALID_DEVICE;
  CUmemPoolProps properties{};
  properties.allocation_type = kAllocationPinned;
  properties.handle_types = kHandleFile;
  properties.location = {kLocationDevice, ordinal};
  auto pool = std::make_shared<Pool>(ordinal, *driver().device(ordinal)->memory, properties);
  pool->imported = true;
  pool->file = fcntl(original, F_DUPFD_CLOEXEC, 0);
  if (pool->file < 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = driver().pools.add(std::move(pool));
  return CUDA_SUCCESS;
}

CUresult import_pointer(CUdeviceptr* address, const Pool& pool, const ExportedPointer& exported) {
  uint32_t gpu = 0;
  auto physical = std::make_shared<Physical>();
  CUDA_TRY(open_shareable(pool.file, gpu, physical->map));
  physical->imported = true;
  physical->file = fcntl(pool.file, F_DUPFD_CLOEXEC, 0);
  physical->properties.location = {kLocationDevice, pool.device()};
  const uint64_t room = physical->map.size - std::min(physical->map.size, exported.offset);
  if (exported.span > room || exported.bytes > exported.span) return CUDA_ERROR_INVALID_VALUE;
  physical->bytes = exported.span;
  physical->backing = {physical->map.bytes + exported.offset, exported.span};
  Mapping mapping;
  mapping.bytes = exported.bytes;
  mapping.physical = std::move(physical);
  mapping.kind = MappingKind::external;
  return driver().space.open(std::move(mapping), *address);
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
CUDA_ENTRY cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) { return current_pool(device, pool); }
CUDA_ENTRY cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) { return set_pool(device, pool); }

CUDA_ENTRY cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, int type) {
  CUDA_TRY(check_location(location, type));
  return default_pool(location->id, pool);
}
CUDA_ENTRY cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, int type) {
  CUDA_TRY(check_location(location, type));
  return current_pool(location->id, pool);
}
CUDA_ENTRY cuMemSetMemPool(CUmemLocation* location, int type, CUmemoryPool pool) {
  CUDA_TRY(check_location(location, type));
  return set_pool(location->id, pool);
}

CUDA_ENTRY cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Pool> pool;
  CUDA_TRY(make_pool(*properties, pool));
  *handle = driver().pools.add(std::move(pool));
  return CUDA_SUCCESS;
}

// A device whose current pool goes has its default pool again.
CUDA_ENTRY cuMemPoolDestroy(CUmemoryPool handle) {
  std::shared_ptr<Pool> pool;
  CUDA_TRY(find_pool(handle, pool));
  if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(driver().device_mutex());
    Driver::Device& device = *driver().device(pool->device());
    if (device.pool == handle) device.pool = nullptr;
  }
  driver().pools.remove(handle);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes_to_keep) {
  std::shared_ptr<Pool> pool;
  CUDA_TRY(find_pool(handle, pool));
  pool->trim(bytes_to_keep);
  return CUDA_SUCCESS;
}

// Attributes 1 to 3: how freed memory may be reused (int); 4: release threshold; 5 to 8: bytes reserved and
// used, now and at most (64 bits); 9 to 13: what the pool was made with.
CUDA_ENTRY cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void* value) {
  std::shared_ptr<Pool> pool;
  CUDA_TRY(find_pool(handle, pool));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute >= 1 && attribute <= 3) {
    pool->set_reuse(static_cast<size_t>(attribute), *static_cast<int*>(value));
  } else if (attribute == 4) {
    pool->set_release_threshold(*static_cast<uint64_t*>(value));
  } else if ((attribute == 6 || attribute == 8) && *static_cast<uint64_t*>(value) == 0) {
    pool->reset_high(attribute == 6, attribute == 8);
  } else {
    return CUDA_ERROR_INVALID_VALUE;  // only the high-water marks can be set, and only to 0
  }
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void* value) {
  std::shared_ptr<Pool> pool;
  CUDA_TRY(find_pool(handle, pool));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const PoolUsage usage = pool->usage();
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      return answer(value, pool->reuse(static_cast<size_t>(attribute)));
    case 4:
      return answer(value, pool->release_threshold());
    case 5:
      return answer(value, usage.reserved);
    case 6:
      return answer(value, usage.reserved_high);
    case 7:
      return answer(value, usage.used);
    case 8:
      return answer(value, usage.used_high);
    case 9:
      return answer(value, pool->properties().allocation_type);
    case 10:
      return answer(value, pool->properties().handle_types);
    case 11:
      return answer(value, pool->properties().location.id);
    case 12:
      return answer(value, pool->properties().location.type);
    case 13:
      return answer(value, static_cast<uint64_t>(pool->properties().max_size));
    case 14:
      return answer(value, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUDA_ENTRY cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptions, size_t count) {
  std::shared_ptr<Pool> pool;
  CUDA_TRY(find_pool(handle, pool));
  if (descriptions == nullptr && count > 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& description = descriptions[i];
    if (description.location.type != kLocationDevice) return CUDA_ERROR_INVALID_VALUE;
    if (driver().device(description.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const bool own = description.location.id == pool->device();
    if (own && description.flags != kAccessReadWrite) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) pool->set_access(descriptions[i].location.id, descriptions[i].flags);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolGetAccess(int* flags, CUmemoryPool handle, CUmemLocation* location) {
  std::shared_ptr<Pool> pool;
  CUDA_TRY(find_pool(handle, pool));
  if (flags == nullptr || location == nullptr || location->type != kLocationDevice)
    return CUDA_ERROR_INVALID_VALUE;
  if (driver().device(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = pool->access(location->id);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolExportToShareableHandle(void* result, CUmemoryPool handle, int type,
                                            unsigned long long flags) {
  std::shared_ptr<Pool> pool;
  CUDA_TRY(find_pool(handle, pool));
  if (result == nullptr || flags != 0 || type != kHandleFile || !pool->has_own_memory()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_TRY(pool->memory().open());
  const int file = fcntl(pool->memory().file(), F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(result) = file;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* handle, int type,
                                              unsigned long long flags) {
  CUDA_TRY(driver().ready());
  if (pool == nullptr || flags != 0 || type != kHandleFile) return CUDA_ERROR_INVALID_VALUE;
  return import_pool(pool, static_cast<int>(reinterpret_cast<intptr_t>(handle)));
}

CUDA_ENTRY cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr address) {
  CUDA_TRY(driver().ready());
  Block block;
  CUdevice ordinal = 0;
  if (data == nullptr || !driver().find_block(address, block, ordinal)) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Pool> pool = driver().pools.find(block.pool);
  if (pool == nullptr || !pool->has_own_memory()) return CUDA_ERROR_INVALID_VALUE;
  const ExportedPointer exported{kExportedPointer, pool->memory().position_of(block.address).offset,
                                 block.bytes, block.span};
  std::memset(data, 0, sizeof *data);
  std::memcpy(data, &exported, sizeof exported);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
  std::shared_ptr<Pool> pool;
  CUDA_TRY(find_pool(handle, pool));
  if (address == nullptr || data == nullptr || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
  ExportedPointer exported;
  std::memcpy(&exported, data, sizeof exported);
  if (exported.magic != kExportedPointer) return CUDA_ERROR_INVALID_VALUE;
  return import_pointer(address, *pool, exported);
}

}  // namespace tranche::emulator::cuda
