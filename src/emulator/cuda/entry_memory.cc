// Entry points: device memory, host memory, managed memory and what a pointer is.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

constexpr size_t kPitchAlignment = 512;
constexpr unsigned kHostAllocFlagsAll = 7;
constexpr unsigned kHostRegisterFlagsAll = 15;

CUresult allocate(CUdeviceptr* address, size_t bytes) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  CUDA_TRY(driver().refuse_in_capture());
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  DeviceMemory& memory = *driver().device(context->device)->memory;
  const CUresult result = memory.allocate(bytes, context->handle, *address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  driver().pools.each([](Pool& pool) { pool.settle(); });  // what pools keep is given up first
  return memory.allocate(bytes, context->handle, *address);
}

size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

CUresult allocate_host(void** address, size_t bytes, HostBlock::Kind kind, unsigned flags) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  HostBlock block;
  block.kind = kind;
  block.address = reinterpret_cast<uintptr_t>(memory);
  block.bytes = bytes;
  block.flags = flags;
  block.context = context->handle;
  driver().add_host(block);
  *address = memory;
  return CUDA_SUCCESS;
}

CUresult free_host(uintptr_t address, HostBlock::Kind kind) {
  HostBlock block;
  if (kind == HostBlock::Kind::managed) driver().move_managed(address, -1);
  if (!driver().remove_host(address, kind, block)) return CUDA_ERROR_INVALID_VALUE;
  if (kind == HostBlock::Kind::managed) driver().managed_blocks.fetch_sub(1);
  munmap(reinterpret_cast<void*>(address), whole_pages(block.bytes));
  return CUDA_SUCCESS;
}

CUresult register_host(void* address, size_t bytes, unsigned flags) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (address == nullptr || bytes == 0 || (flags & ~kHostRegisterFlagsAll) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  HostBlock block;
  block.kind = HostBlock::Kind::registered;
  block.address = reinterpret_cast<uintptr_t>(address);
  block.bytes = bytes;
  block.flags = flags;
  block.context = context->handle;
  return driver().add_host(block) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

// What kind of memory an address is, for the pointer attributes.
struct PointerFacts {
  CUmemorytype type = kMemoryHost;
  CUcontext context = nullptr;
  CUdevice device = -1;
  uint64_t start = 0, bytes = 0, id = 0;
  bool managed = false;
  CUmemoryPool pool = nullptr;
  bool legacy_handle = false;  // cuIpcGetMemHandle is possible
};

CUresult facts_of(CUdeviceptr address, PointerFacts& facts) {
  Place place;
  if (driver().find_place(address, place)) {
    const bool on_device = place.device >= 0;
    const bool plain = place.pool == nullptr && !place.mapped && place.context != nullptr;
    facts = {on_device ? kMemoryDevice : kMemoryHost,
             place.context,
             place.device,
             place.start,
             place.bytes,
             place.id,
             false,
             place.pool,
             plain};
    return CUDA_SUCCESS;
  }
  HostBlock host;
  if (!driver().find_host(address, host)) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Context> context = driver().contexts.find(host.context);
  const bool managed = host.kind == HostBlock::Kind::managed;
  facts = {managed ? kMemoryDevice : kMemoryHost,
           host.context,
           context == nullptr ? 0 : context->device,
           host.address,
           host.bytes,
           host.id,
           managed,
           nullptr,
           false};
  return CUDA_SUCCESS;
}

template <class T>
CUresult give(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

CUresult pointer_attribute(void* data, int attribute, CUdeviceptr address, const PointerFacts& facts) {
  const bool on_host = facts.type == kMemoryHost || facts.managed;
  switch (attribute) {
    case 1:
      return give(data, facts.context);
    case 2:
      return give(data, static_cast<unsigned>(facts.type));
    case 3:
      return give(data, address);
    case 4:
      return on_host ? give(data, address) : CUDA_ERROR_INVALID_VALUE;
    case 6:
      return give(data, 0u);
    case 7:
      return give(data, static_cast<unsigned long long>(facts.id));
    case 8:
      return give(data, facts.managed ? 1u : 0u);
    case 9:
      return give(data, facts.device);
    case 10:
      return give(data, facts.legacy_handle ? 1u : 0u);
    case 11:
    case 19:
      return give(data, static_cast<CUdeviceptr>(facts.start));
    case 12:
    case 18:
      return give(data, static_cast<size_t>(facts.bytes));
    case 13:
      return give(data, 1u);
    case 14:
      return give(data, 0ull);
    case 15:
      return give(data, 0u);
    case 16:
      return give(data, 3u);
    case 17:
      return give(data, facts.pool);
    case 20:
      return give(data, static_cast<unsigned long long>(facts.id));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What an attribute is for an address that CUDA does not know, in the bulk query: a zero of its size.
void no_attribute(void* data, int attribute) {
  const bool wide = attribute == 1 || attribute == 3 || attribute == 4 || attribute == 7 || attribute == 11 ||
                    attribute == 12 || attribute == 14 || attribute >= 17;
  if (wide)
    *static_cast<uint64_t*>(data) = 0;
  else
    *static_cast<uint32_t*>(data) = attribute == 9 ? static_cast<uint32_t>(-2) : 0;
}

}  // namespace

CUDA_ENTRY cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (free_bytes == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *free_bytes = driver().model().free_bytes(context->gpu);
  const Driver::Device& device = *driver().device(context->device);
  *total = device.mig ? device.mig->memory_bytes : driver().model().usable_bytes(context->gpu);
  // In a cgroup with a limit of its own that limit is the total, and only there; cuDeviceTotalMem goes on
  // telling the board's.
  const auto limit = driver().model().own_memory_limit(context->gpu);
  if (limit != nullptr) *total = std::min<size_t>(*total, limit->hard_bytes);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) { return allocate(address, bytes); }

CUDA_ENTRY cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                              unsigned element_bytes) {
  CUDA_TRY(driver().ready());
  if (pitch == nullptr || width == 0 || height == 0 || width > SIZE_MAX / 2) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return CUDA_ERROR_INVALID_VALUE;
  *pitch = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  if (height > SIZE_MAX / *pitch) return CUDA_ERROR_OUT_OF_MEMORY;
  return allocate(address, *pitch * height);
}

// Waits for everything, since the memory may be in use. Memory of pools and graphs is freed by this too.
CUDA_ENTRY cuMemFree_v2(CUdeviceptr address) {
  CUDA_TRY(driver().ready());
  if (address == 0) return CUDA_SUCCESS;
  CUDA_TRY(driver().refuse_in_capture());
  Place place;
  if (!driver().find_place(address, place)) return free_host(address, HostBlock::Kind::managed);
  if (place.start != address || place.device < 0) return CUDA_ERROR_INVALID_VALUE;
  if (const std::shared_ptr<Context> owner = driver().contexts.find(place.context); owner != nullptr) {
    CUDA_TRY(driver().fault_of(*owner));
  }
  DeviceModel& model = driver().model();
  const uint32_t gpu = driver().device(place.device)->gpu;
  const uint64_t tag = model.position(driver().slot(), gpu).tag;
  model.wait(driver().slot(), gpu, tag);
  CUDA_TRY(driver().fault_on(gpu));
  return driver().free_block(address, {0, tag, tag});
}

CUDA_ENTRY cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  PointerFacts facts;
  if (facts_of(address, facts) != CUDA_SUCCESS) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = facts.start;
  if (bytes != nullptr) *bytes = facts.bytes;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemAllocHost_v2(void** address, size_t bytes) {
  return allocate_host(address, bytes, HostBlock::Kind::allocated, 0);
}

CUDA_ENTRY cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  if ((flags & ~kHostAllocFlagsAll) != 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate_host(address, bytes, HostBlock::Kind::allocated, flags);
}

CUDA_ENTRY cuMemFreeHost(void* address) {
  CUDA_TRY(driver().ready());
  return free_host(reinterpret_cast<uintptr_t>(address), HostBlock::Kind::allocated);
}

CUDA_ENTRY cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  return register_host(address, bytes, flags);
}
CUDA_ENTRY cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
  return register_host(address, bytes, flags);
}

CUDA_ENTRY cuMemHostUnregister(void* address) {
  CUDA_TRY(driver().ready());
  HostBlock block;
  const bool removed =
      driver().remove_host(reinterpret_cast<uintptr_t>(address), HostBlock::Kind::registered, block);
  return removed ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUDA_ENTRY cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* host, unsigned flags) {
  CUDA_TRY(driver().ready());
  HostBlock block;
  if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!driver().find_host(reinterpret_cast<uintptr_t>(host), block)) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMemHostGetFlags(unsigned* flags, void* host) {
  CUDA_TRY(driver().ready());
  HostBlock block;
  if (flags == nullptr || !driver().find_host(reinterpret_cast<uintptr_t>(host), block)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = block.flags;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
  CUDA_TRY(driver().ready());
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PointerFacts facts;
  CUDA_TRY(facts_of(address, facts));
  return pointer_attribute(data, attribute, address, facts);
}

CUDA_ENTRY cuPointerGetAttributes(unsigned count, const int* attributes, void** data, CUdeviceptr address) {
  CUDA_TRY(driver().ready());
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PointerFacts facts;
  const bool known = facts_of(address, facts) == CUDA_SUCCESS;
  for (unsigned i = 0; i < count; ++i) {
    if (!known || pointer_attribute(data[i], attributes[i], address, facts) != CUDA_SUCCESS) {
      no_attribute(data[i], attributes[i]);
    }
  }
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuPointerSetAttribute(const void* value, int attribute, CUdeviceptr address) {
  CUDA_TRY(driver().ready());
  PointerFacts facts;
  CUDA_TRY(facts_of(address, facts));
  return value != nullptr && attribute == 6 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tranche::emulator::cuda
