// Entry points: managed memory. Its bytes lie on the host; a GPU is charged for an allocation while it is
// there: after a prefetch, a fill, or a launch that was given its address. It never refuses: what does not
// fit stays away.

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

constexpr int kCpu = -1, kNowhere = -2;

CUresult allocate_managed(CUdeviceptr* address, size_t bytes, unsigned flags) {
  constexpr unsigned kGlobal = 1, kHost = 2;
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  CUDA_TRY(driver().refuse_in_capture());
  if (address == nullptr || bytes == 0 || (flags != kGlobal && flags != kHost))
    return CUDA_ERROR_INVALID_VALUE;
  constexpr size_t kPage = 4096;
  const size_t whole = (bytes + kPage - 1) / kPage * kPage;
  void* const memory =
      mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  HostBlock block;
  block.kind = HostBlock::Kind::managed;
  block.address = reinterpret_cast<uintptr_t>(memory);
  block.bytes = bytes;
  block.flags = flags;
  block.context = context->handle;
  driver().add_host(block);
  driver().managed_blocks.fetch_add(1);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

// The block that the whole range lies in.
CUresult find_managed(CUdeviceptr address, size_t bytes, HostBlock& block) {
  if (!driver().find_host(address, block) || block.kind != HostBlock::Kind::managed)
    return CUDA_ERROR_INVALID_VALUE;
  const bool inside = bytes > 0 && bytes <= block.address + block.bytes - address;
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// An ordinal, or kCpu.
CUresult device_of(const CUmemLocation& location, CUdevice& device) {
  device = kCpu;
  if (location.type != kLocationDevice) {
    const bool host = location.type >= kLocationHost && location.type <= kLocationHostNumaCurrent;
    return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  device = location.id;
  return driver().device(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult check_device(CUdevice device) {
  return device == kCpu || driver().device(device) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult prefetch(CUdeviceptr address, size_t bytes, CUdevice device, CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  HostBlock block;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  CUDA_TRY(find_managed(address, bytes, block));
  CUDA_TRY(check_device(device));
  driver().move_managed(address, device);
  driver().change_host(address, [device](HostBlock& known) { known.prefetched = device; });
  driver().enqueue_copy(*stream, bytes, {block.on_device, device});
  return CUDA_SUCCESS;
}

CUresult prefetch_to(CUdeviceptr address, size_t bytes, const CUmemLocation& location, unsigned flags,
                     CUstream stream, DefaultStream mode) {
  CUDA_TRY(driver().ready());
  CUdevice device = kCpu;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(device_of(location, device));
  return prefetch(address, bytes, device, stream, mode);
}

// 1, 2: read mostly, or not; 3, 4: preferred place; 5, 6: accessed by.
CUresult advise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
  std::shared_ptr<Context> context;
  HostBlock block;
  CUDA_TRY(driver().current(context));
  CUDA_TRY(find_managed(address, bytes, block));
  if (advice < 1 || advice > 6) return CUDA_ERROR_INVALID_VALUE;
  if (advice == 3 || advice >= 5) CUDA_TRY(check_device(device));
  driver().change_host(address, [&](HostBlock& known) {
    if (advice <= 2) known.read_mostly = advice == 1;
    if (advice == 3) known.preferred = device;
    if (advice == 4) known.preferred = kNowhere;
    if (advice == 5) known.accessed_by.insert(device);
    if (advice == 6) known.accessed_by.erase(device);
  });
  return CUDA_SUCCESS;
}

// As attributes 5 to 8 answer it: a type of location, or its number.
int location_type(int place) {
  return place == kNowhere ? 0 : place == kCpu ? kLocationHost : kLocationDevice;
}
int location_id(int place) { return place < 0 ? 0 : place; }

CUresult range_attribute(void* data, size_t size, int attribute, const HostBlock& block) {
  if (data == nullptr || size < sizeof(int) || attribute < 1 || attribute > 8)
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute == 3) {
    auto device = block.accessed_by.begin();
    for (size_t i = 0; i + sizeof(int) <= size; i += sizeof(int)) {
      const int value = device == block.accessed_by.end() ? kNowhere : *device++;
      std::memcpy(static_cast<char*>(data) + i, &value, sizeof value);
    }
    return CUDA_SUCCESS;
  }
  const int values[] = {0,
                        block.read_mostly ? 1 : 0,
                        block.preferred,
                        0,
                        block.prefetched,
                        location_type(block.preferred),
                        location_id(block.preferred),
                        location_type(block.prefetched),
                        location_id(block.prefetched)};
  std::memcpy(data, &values[attribute], sizeof(int));
  return CUDA_SUCCESS;
}

// Several ranges in one call; each place holds for the ranges from its index on.
CUresult prefetch_batch(CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* places,
                        size_t* indices, size_t place_count, unsigned long long flags, CUstream stream,
                        DefaultStream mode) {
  CUDA_TRY(driver().ready());
  if (addresses == nullptr || sizes == nullptr || count == 0 || places == nullptr || indices == nullptr ||
      place_count == 0 || place_count > count || flags != 0 || indices[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t place = 0;
  for (size_t i = 0; i < count; ++i) {
    if (place + 1 < place_count && indices[place + 1] == i) ++place;
    CUDA_TRY(prefetch_to(addresses[i], sizes[i], places[place], 0, stream, mode));
  }
  return CUDA_SUCCESS;
}

CUresult discard_batch(CUdeviceptr* addresses, size_t* sizes, size_t count, unsigned long long flags,
                       CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (addresses == nullptr || sizes == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    HostBlock block;
    CUDA_TRY(find_managed(addresses[i], sizes[i], block));
  }
  return CUDA_SUCCESS;
}

CUresult attach(CUstream handle, CUdeviceptr address, size_t bytes, unsigned flags, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  HostBlock block;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  CUDA_TRY(find_managed(address, bytes == 0 ? 1 : bytes, block));
  return flags == 1 || flags == 2 || flags == 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUDA_ENTRY cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return allocate_managed(address, bytes, flags);
}

CUDA_ENTRY cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
  return advise(address, bytes, advice, device);
}
CUDA_ENTRY cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location) {
  CUDA_TRY(driver().ready());
  CUdevice device = kCpu;
  if (advice == 3 || advice >= 5) CUDA_TRY(device_of(location, device));
  return advise(address, bytes, advice, device);
}

CUDA_ENTRY cuMemRangeGetAttribute(void* data, size_t size, int attribute, CUdeviceptr address, size_t bytes) {
  CUDA_TRY(driver().ready());
  HostBlock block;
  CUDA_TRY(find_managed(address, bytes, block));
  return range_attribute(data, size, attribute, block);
}
CUDA_ENTRY cuMemRangeGetAttributes(void** data, size_t* sizes, int* attributes, size_t count,
                                   CUdeviceptr address, size_t bytes) {
  CUDA_TRY(driver().ready());
  HostBlock block;
  if (data == nullptr || sizes == nullptr || attributes == nullptr || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(find_managed(address, bytes, block));
  for (size_t i = 0; i < count; ++i) CUDA_TRY(range_attribute(data[i], sizes[i], attributes[i], block));
  return CUDA_SUCCESS;
}

#define MANAGED_ENTRY(name, parameters, expression)           \
  CUDA_ENTRY name parameters {                                \
    constexpr DefaultStream mode = DefaultStream::legacy;     \
    return expression;                                        \
  }                                                           \
  CUDA_ENTRY name##_ptsz parameters {                         \
    constexpr DefaultStream mode = DefaultStream::per_thread; \
    return expression;                                        \
  }

MANAGED_ENTRY(cuMemPrefetchAsync, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
              prefetch(address, bytes, device, stream, mode))
MANAGED_ENTRY(cuMemPrefetchAsync_v2,
              (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
              prefetch_to(address, bytes, location, flags, stream, mode))
MANAGED_ENTRY(cuMemPrefetchBatchAsync,
              (CUdeviceptr * addresses, size_t* sizes, size_t count, CUmemLocation* places, size_t* indices,
               size_t place_count, unsigned long long flags, CUstream stream),
              prefetch_batch(addresses, sizes, count, places, indices, place_count, flags, stream, mode))
MANAGED_ENTRY(cuMemDiscardBatchAsync,
              (CUdeviceptr * addresses, size_t* sizes, size_t count, unsigned long long flags,
               CUstream stream),
              discard_batch(addresses, sizes, count, flags, stream, mode))
MANAGED_ENTRY(cuMemDiscardAndPrefetchBatchAsync,
              (CUdeviceptr * addresses, size_t* sizes, size_t count, CUmemLocation* places, size_t* indices,
               size_t place_count, unsigned long long flags, CUstream stream),
              prefetch_batch(addresses, sizes, count, places, indices, place_count, flags, stream, mode))
MANAGED_ENTRY(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags),
              attach(stream, address, bytes, flags, mode))
#undef MANAGED_ENTRY

}  // namespace tranche::emulator::cuda
