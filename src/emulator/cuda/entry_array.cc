// Entry points: arrays and mipmapped arrays. Their bytes lie in rows without gaps; what a real GPU adds for
// its own order of texels is not modelled, only that memory comes in pages.

#include <algorithm>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

constexpr unsigned kLayered = 1, kCubemap = 4, kSparse = 0x40, kDeferred = 0x80;
constexpr size_t kDimensionMax = size_t{1} << 18;

// Bytes of one channel of a CUarray_format; 0 for a format that arrays of texels with channels do not have.
size_t channel_bytes(int format) {
  switch (format) {
    case 0x01:
    case 0x08:
      return 1;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;
    case 0x03:
    case 0x0A:
    case 0x20:
      return 4;
    default:
      return 0;
  }
}

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& description, size_t& element_bytes) {
  element_bytes = channel_bytes(description.format) * description.channels;
  const bool channels = description.channels == 1 || description.channels == 2 || description.channels == 4;
  if (element_bytes == 0 || !channels || description.width == 0) return CUDA_ERROR_INVALID_VALUE;
  if (description.width > kDimensionMax || description.height > kDimensionMax ||
      description.depth > kDimensionMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((description.flags & kCubemap) != 0 && description.depth % 6 != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((description.flags & (kSparse | kDeferred)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& description, size_t element_bytes) {
  return description.width * element_bytes * std::max<size_t>(description.height, 1) *
         std::max<size_t>(description.depth, 1);
}

CUresult create(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& description) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  CUDA_TRY(driver().refuse_in_capture());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto array = std::make_shared<Array>();
  CUDA_TRY(check(description, array->element_bytes));
  const uint64_t bytes = bytes_of(description, array->element_bytes);
  DeviceMemory& memory = *driver().device(context->device)->memory;
  CUDA_TRY(memory.allocate(bytes, context->handle, array->address, BlockKind::array));
  array->device = context->device;
  array->context = context;
  array->description = description;
  *handle = driver().arrays.add(std::move(array));
  return CUDA_SUCCESS;
}

CUresult find(CUarray handle, std::shared_ptr<Array>& array) {
  CUDA_TRY(driver().ready());
  array = driver().arrays.find(handle);
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& whole, unsigned level) {
  const auto half = [level](size_t size) { return size == 0 ? size : std::max<size_t>(size >> level, 1); };
  CUDA_ARRAY3D_DESCRIPTOR description = whole;
  description.width = half(whole.width);
  description.height = half(whole.height);
  if ((whole.flags & (kLayered | kCubemap)) == 0) description.depth = half(whole.depth);
  return description;
}

// Makes the levels of a mipmapped array one behind the other from `address` on.
void make_levels(MipmappedArray& mipmapped, unsigned count, size_t element_bytes) {
  CUdeviceptr address = mipmapped.address;
  for (unsigned level = 0; level < count; ++level) {
    auto array = std::make_shared<Array>();
    array->device = mipmapped.context->device;
    array->context = mipmapped.context;
    array->description = level_of(mipmapped.description, level);
    array->element_bytes = element_bytes;
    array->address = address;
    array->is_level = true;
    address += bytes_of(array->description, element_bytes);
    mipmapped.levels.push_back(driver().arrays.add(std::move(array)));
  }
}

CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* answer, uint64_t bytes, CUdevice device) {
  if (answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (driver().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *answer = {round_up_to_page(bytes), kDevicePage, {}};
  return CUDA_SUCCESS;
}

}  // namespace

CUresult create_mipmapped(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR& description,
                          unsigned levels, CUdeviceptr address, uint64_t room) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  size_t element_bytes = 0;
  CUDA_TRY(check(description, element_bytes));
  size_t largest = std::max({description.width, description.height, description.depth});
  unsigned most = 1;
  for (; largest > 1; largest >>= 1) ++most;
  if (handle == nullptr || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  levels = std::min(levels, most);
  auto mipmapped = std::make_shared<MipmappedArray>();
  mipmapped->context = context;
  mipmapped->description = description;
  for (unsigned i = 0; i < levels; ++i) mipmapped->bytes += bytes_of(level_of(description, i), element_bytes);
  mipmapped->owns_bytes = address == 0;
  mipmapped->address = address;
  if (address != 0 && mipmapped->bytes > room) return CUDA_ERROR_INVALID_VALUE;
  if (address == 0) {
    DeviceMemory& memory = *driver().device(context->device)->memory;
    CUDA_TRY(memory.allocate(mipmapped->bytes, context->handle, mipmapped->address, BlockKind::array));
  }
  make_levels(*mipmapped, levels, element_bytes);
  *handle = driver().mipmapped_arrays.add(std::move(mipmapped));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* description) {
  CUDA_TRY(driver().ready());
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(handle,
                {description->width, description->height, 0, description->format, description->channels, 0});
}

CUDA_ENTRY cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* description) {
  CUDA_TRY(driver().ready());
  return description == nullptr ? CUDA_ERROR_INVALID_VALUE : create(handle, *description);
}

CUDA_ENTRY cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* description, CUarray handle) {
  std::shared_ptr<Array> array;
  CUDA_TRY(find(handle, array));
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& from = array->description;
  *description = {from.width, from.height, from.format, from.channels};
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* description, CUarray handle) {
  std::shared_ptr<Array> array;
  CUDA_TRY(find(handle, array));
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *description = array->description;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray handle) {
  std::shared_ptr<Array> array;
  CUDA_TRY(find(handle, array));
  static_cast<void>(properties);
  return CUDA_ERROR_INVALID_VALUE;  // no array is sparse
}

CUDA_ENTRY cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* answer, CUarray handle,
                                        CUdevice device) {
  std::shared_ptr<Array> array;
  CUDA_TRY(find(handle, array));
  return requirements(answer, bytes_of(array->description, array->element_bytes), device);
}

CUDA_ENTRY cuArrayGetPlane(CUarray* plane, CUarray handle, unsigned) {
  std::shared_ptr<Array> array;
  CUDA_TRY(find(handle, array));
  static_cast<void>(plane);
  return CUDA_ERROR_INVALID_VALUE;  // no array has planes
}

CUDA_ENTRY cuArrayDestroy(CUarray handle) {
  std::shared_ptr<Array> array;
  CUDA_TRY(find(handle, array));
  if (array->is_level) return CUDA_ERROR_INVALID_VALUE;
  driver().arrays.remove(handle);
  driver().device(array->device)->memory->release(array->address);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMipmappedArrayCreate(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* description,
                                  unsigned levels) {
  CUDA_TRY(driver().ready());
  CUDA_TRY(driver().refuse_in_capture());
  return description == nullptr ? CUDA_ERROR_INVALID_VALUE
                                : create_mipmapped(handle, *description, levels, 0, 0);
}

CUDA_ENTRY cuMipmappedArrayGetLevel(CUarray* handle, CUmipmappedArray from, unsigned level) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<MipmappedArray> mipmapped = driver().mipmapped_arrays.find(from);
  if (mipmapped == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (handle == nullptr || level >= mipmapped->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *handle = mipmapped->levels[level];
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUmipmappedArray handle) {
  CUDA_TRY(driver().ready());
  const bool known = driver().mipmapped_arrays.find(handle) != nullptr;
  return known ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

CUDA_ENTRY cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* answer,
                                                 CUmipmappedArray handle, CUdevice device) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<MipmappedArray> mipmapped = driver().mipmapped_arrays.find(handle);
  if (mipmapped == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return requirements(answer, mipmapped->bytes, device);
}

CUDA_ENTRY cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<MipmappedArray> mipmapped = driver().mipmapped_arrays.remove(handle);
  if (mipmapped == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUarray level : mipmapped->levels) driver().arrays.remove(level);
  const CUdevice device = mipmapped->context->device;
  if (mipmapped->owns_bytes) driver().device(device)->memory->release(mipmapped->address);
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
