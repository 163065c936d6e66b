// Entry points: virtual memory management: addresses, physical memory, and what is mapped where.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

bool is_host(int type) {
  return type == kLocationHost || type == kLocationHostNuma || type == kLocationHostNumaCurrent;
}

CUresult check_properties(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != kAllocationPinned) return CUDA_ERROR_INVALID_VALUE;
  if ((properties->handle_types & ~(kHandleFile | kHandleFabric)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((properties->handle_types & kHandleFabric) != 0) return CUDA_ERROR_NOT_PERMITTED;  // no fabric daemon
  if (is_host(properties->location.type)) return CUDA_SUCCESS;
  if (properties->location.type != kLocationDevice) return CUDA_ERROR_INVALID_VALUE;
  Driver::Device* device = nullptr;
  return driver().find_device(properties->location.id, device);
}

CUresult take_bytes(Physical& physical) {
  if (is_host(physical.properties.location.type)) {
    void* const memory = mmap(nullptr, physical.bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    physical.backing = {static_cast<uint8_t*>(memory), physical.bytes};
    return CUDA_SUCCESS;
  }
  Driver::Device& device = *driver().device(physical.properties.location.id);
  DeviceMemory& memory = *device.memory;
  if ((physical.properties.handle_types & kHandleFile) == 0) {
    CUDA_TRY(memory.take_pages(physical.bytes, physical.pages));
    physical.backing = memory.backing(physical.pages, physical.bytes);
    physical.memory = &memory;
    return CUDA_SUCCESS;
  }
  if (!memory.charge(physical.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult made = make_shareable(physical.bytes, device.gpu, physical.file, physical.backing);
  if (made != CUDA_SUCCESS) {
    physical.file = -1;
    memory.discharge(physical.bytes);
    return made;
  }
  memory.soil(physical.backing.bytes, physical.backing.size);
  physical.map = physical.backing;
  physical.memory = &memory;
  share_physical(physical, device.gpu);
  return CUDA_SUCCESS;
}

CUresult import(CUmemGenericAllocationHandle* handle, int original) {
  auto physical = std::make_shared<Physical>();
  uint32_t gpu = 0;
  physical->imported = true;
  const int file = fcntl(original, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult opened = open_shareable(file, gpu, physical->backing);
  const CUdevice ordinal = driver().ordinal_of(gpu);
  if (opened != CUDA_SUCCESS || ordinal < 0) {
    if (opened == CUDA_SUCCESS) munmap(physical->backing.bytes, physical->backing.size);
    close(file);
    return opened != CUDA_SUCCESS ? opened : CUDA_ERROR_INVALID_DEVICE;
  }
  physical->file = file;
  physical->map = physical->backing;
  physical->bytes = physical->backing.size;
  hold_physical(*physical);
  physical->properties = {kAllocationPinned, kHandleFile, {kLocationDevice, ordinal}, nullptr, 0, 0, 0, {}};
  *handle = driver().space.add(std::move(physical));
  return CUDA_SUCCESS;
}

bool is_whole_pages(uint64_t number) { return number % kDevicePage == 0; }

}  // namespace

CUDA_ENTRY cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                               unsigned long long flags) {
  CUDA_TRY(driver().ready());
  if (address == nullptr || bytes == 0 || !is_whole_pages(bytes) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  return driver().space.reserve(bytes, alignment, wanted, *address);
}

CUDA_ENTRY cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  CUDA_TRY(driver().ready());
  return driver().space.free(address, bytes);
}

CUDA_ENTRY cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                       const CUmemAllocationProp* properties, unsigned long long flags) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr || flags != 0 || bytes == 0 || !is_whole_pages(bytes))
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(check_properties(properties));
  auto physical = std::make_shared<Physical>();
  physical->properties = *properties;
  physical->bytes = bytes;
  CUDA_TRY(take_bytes(*physical));
  *handle = driver().space.add(std::move(physical));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUDA_TRY(driver().ready());
  return driver().space.release(handle);
}

CUDA_ENTRY cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return driver().space.retain(reinterpret_cast<CUdeviceptr>(address), *handle);
}

CUDA_ENTRY cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Physical> physical = driver().space.find(handle);
  if (physical == nullptr || flags != 0 || offset != 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_whole_pages(bytes) || !is_whole_pages(address) || bytes > physical->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  Mapping mapping;
  mapping.address = address;
  mapping.bytes = bytes;
  mapping.physical = physical;
  return driver().space.map(std::move(mapping));
}

CUDA_ENTRY cuMemUnmap(CUdeviceptr address, size_t bytes) {
  CUDA_TRY(driver().ready());
  if (bytes == 0 || !is_whole_pages(bytes)) return CUDA_ERROR_INVALID_VALUE;
  return driver().space.unmap(address, bytes);
}

CUDA_ENTRY cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions,
                          size_t count) {
  CUDA_TRY(driver().ready());
  if (descriptions == nullptr || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& description = descriptions[i];
    const int flags = description.flags;
    if (flags != kAccessNone && flags != kAccessRead && flags != kAccessReadWrite)
      return CUDA_ERROR_INVALID_VALUE;
    if (is_host(description.location.type)) continue;
    if (description.location.type != kLocationDevice) return CUDA_ERROR_INVALID_VALUE;
    if (driver().device(description.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  }
  return driver().space.set_access(address, bytes, descriptions, count);
}

CUDA_ENTRY cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  CUDA_TRY(driver().ready());
  Mapping mapping;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver().space.find(address, mapping)) return CUDA_ERROR_INVALID_VALUE;
  const auto found = mapping.access.find(location->type == kLocationDevice ? location->id : -1);
  *flags = found == mapping.access.end() ? 0 : static_cast<unsigned long long>(found->second);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemExportToShareableHandle(void* result, CUmemGenericAllocationHandle handle, int type,
                                        unsigned long long flags) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Physical> physical = driver().space.find(handle);
  if (result == nullptr || physical == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((physical->properties.handle_types & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != kHandleFile) return CUDA_ERROR_NOT_SUPPORTED;
  const int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(result) = file;
  return CUDA_SUCCESS;
}

// The handle of a file is its number, cast to a pointer.
CUDA_ENTRY cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared, int type) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != kHandleFile) return CUDA_ERROR_NOT_SUPPORTED;
  return import(handle, static_cast<int>(reinterpret_cast<intptr_t>(shared)));
}

CUDA_ENTRY cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                         int option) {
  CUDA_TRY(driver().ready());
  if (granularity == nullptr || (option != 0 && option != 1)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(check_properties(properties));
  *granularity = kDevicePage;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                  CUmemGenericAllocationHandle handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Physical> physical = driver().space.find(handle);
  if (properties == nullptr || physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = physical->properties;
  return CUDA_SUCCESS;
}

// Files of ranges for other devices on the bus (dma-buf) need a kernel driver.
CUDA_ENTRY cuMemGetHandleForAddressRange(void* handle, CUdeviceptr, size_t, int, unsigned long long) {
  CUDA_TRY(driver().ready());
  return handle == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

// Sparse arrays are not modelled: none can be made, so none can be mapped.
#define NO_SPARSE_ARRAYS(name)                                          \
  CUDA_ENTRY name(void* list, unsigned count, CUstream) {               \
    CUDA_TRY(driver().ready());                                         \
    if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE; \
    return CUDA_ERROR_NOT_SUPPORTED;                                    \
  }
NO_SPARSE_ARRAYS(cuMemMapArrayAsync)
NO_SPARSE_ARRAYS(cuMemMapArrayAsync_ptsz)
#undef NO_SPARSE_ARRAYS

// Memory that is written on all GPUs of a team at once needs NVSwitch's multicast: attribute 132 says no.
CUDA_ENTRY cuMulticastCreate(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  CUDA_TRY(driver().ready());
  return handle == nullptr || properties == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}
CUDA_ENTRY cuMulticastAddDevice(CUmemGenericAllocationHandle, CUdevice) {
  CUDA_TRY(driver().ready());
  return CUDA_ERROR_INVALID_VALUE;
}
CUDA_ENTRY cuMulticastBindMem(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t,
                              size_t, unsigned long long) {
  CUDA_TRY(driver().ready());
  return CUDA_ERROR_INVALID_VALUE;
}
CUDA_ENTRY cuMulticastBindMem_v2(CUmemGenericAllocationHandle, CUdevice, size_t, CUmemGenericAllocationHandle,
                                 size_t, size_t, unsigned long long) {
  CUDA_TRY(driver().ready());
  return CUDA_ERROR_INVALID_VALUE;
}
CUDA_ENTRY cuMulticastBindAddr(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t,
                               unsigned long long) {
  CUDA_TRY(driver().ready());
  return CUDA_ERROR_INVALID_VALUE;
}
CUDA_ENTRY cuMulticastBindAddr_v2(CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t,
                                  unsigned long long) {
  CUDA_TRY(driver().ready());
  return CUDA_ERROR_INVALID_VALUE;
}
CUDA_ENTRY cuMulticastUnbind(CUmemGenericAllocationHandle, CUdevice, size_t, size_t) {
  CUDA_TRY(driver().ready());
  return CUDA_ERROR_INVALID_VALUE;
}
CUDA_ENTRY cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* properties,
                                     int option) {
  CUDA_TRY(driver().ready());
  if (granularity == nullptr || properties == nullptr || option < 0 || option > 1)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tranche::emulator::cuda
