// Memory of graphs. A node that allocates has its address from the moment it is made; the bytes come from the
// GPU at the first launch and stay reserved, for later launches of any graph, until they are trimmed.

#include <algorithm>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

// Kept bytes of that size, or new ones.
CUresult take(Driver::Device& device, CUdevice ordinal, uint64_t bytes, std::shared_ptr<Physical>& physical) {
  auto& kept = device.graph_memory;
  const auto fits =
      std::find_if(kept.begin(), kept.end(), [&](const auto& one) { return one->bytes == bytes; });
  if (fits != kept.end()) {
    physical = std::move(*fits);
    kept.erase(fits);
    return CUDA_SUCCESS;
  }
  physical = std::make_shared<Physical>();
  physical->properties.location = {kLocationDevice, ordinal};
  CUresult taken = device.memory->take_pages(bytes, physical->pages);
  if (taken != CUDA_SUCCESS && !kept.empty()) {
    for (const auto& one : kept) device.graph_reserved -= one->bytes;
    kept.clear();
    taken = device.memory->take_pages(bytes, physical->pages);
  }
  CUDA_TRY(taken);
  physical->bytes = bytes;
  physical->backing = device.memory->backing(physical->pages, bytes);
  physical->memory = device.memory.get();
  device.graph_reserved += bytes;
  device.graph_reserved_high = std::max(device.graph_reserved_high, device.graph_reserved);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult reserve_graph_memory(AllocateWork& work) {
  const CUmemPoolProps& pool = work.request.pool;
  if (pool.location.type != kLocationDevice || work.request.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (driver().device(pool.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (pool.handle_types != kHandleNone) return CUDA_ERROR_NOT_SUPPORTED;
  if (work.request.bytes > UINT64_MAX / 4) return CUDA_ERROR_OUT_OF_MEMORY;
  work.request.access = nullptr;
  return driver().space.reserve(round_up_to_page(work.request.bytes), kDevicePage, 0, work.request.address);
}

CUresult allocate_graph_memory(const AllocateWork& work) {
  const CUdevice ordinal = work.request.pool.location.id;
  Driver::Device& device = *driver().device(ordinal);
  const uint64_t bytes = round_up_to_page(work.request.bytes);
  Mapping mapping;
  const std::lock_guard lock(driver().device_mutex());
  CUDA_TRY(take(device, ordinal, bytes, mapping.physical));
  mapping.address = work.request.address;
  mapping.bytes = bytes;
  mapping.kind = MappingKind::graph;
  const std::shared_ptr<Physical> physical = mapping.physical;
  const CUresult mapped = driver().space.map(std::move(mapping));
  if (mapped != CUDA_SUCCESS) {  // still allocated by an earlier launch
    device.graph_memory.push_back(physical);
    return mapped;
  }
  device.graph_used += bytes;
  device.graph_used_high = std::max(device.graph_used_high, device.graph_used);
  return CUDA_SUCCESS;
}

CUresult free_graph_memory(CUdeviceptr address) {
  Mapping mapping;
  const std::lock_guard lock(driver().device_mutex());
  if (!driver().space.find(address, mapping) || mapping.kind != MappingKind::graph ||
      mapping.address != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_TRY(driver().space.unmap(address, mapping.bytes));
  Driver::Device& device = *driver().device(mapping.physical->properties.location.id);
  device.graph_used -= mapping.bytes;
  device.graph_memory.push_back(std::move(mapping.physical));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceGraphMemTrim(CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  std::vector<std::shared_ptr<Physical>> given;
  const std::lock_guard lock(driver().device_mutex());
  for (const auto& one : device->graph_memory) device->graph_reserved -= one->bytes;
  given.swap(device->graph_memory);
  return CUDA_SUCCESS;
}

// Attributes 0 and 1: bytes used now and at most; 2 and 3: reserved.
CUDA_ENTRY cuDeviceGetGraphMemAttribute(CUdevice ordinal, int attribute, void* value) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (value == nullptr || attribute < 0 || attribute > 3) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().device_mutex());
  const uint64_t values[] = {device->graph_used, device->graph_used_high, device->graph_reserved,
                             device->graph_reserved_high};
  *static_cast<uint64_t*>(value) = values[attribute];
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceSetGraphMemAttribute(CUdevice ordinal, int attribute, void* value) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (value == nullptr || *static_cast<uint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().device_mutex());
  if (attribute == 1)
    device->graph_used_high = device->graph_used;
  else if (attribute == 3)
    device->graph_reserved_high = device->graph_reserved;
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
