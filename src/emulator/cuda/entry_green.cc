// Entry points: green contexts: parts of a GPU's multiprocessors inside one process. They reserve nothing
// against other processes. A green context is a context of its own on the GPU whose kernels run on its part.

#include <algorithm>
#include <vector>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

constexpr int kMultiprocessors = 1;  // CUdevResourceType
constexpr unsigned kDefaultStream = 1;

struct ResourceDescription {
  CUdevResourceDesc handle = nullptr;
  unsigned multiprocessors = 0;
};

HandleTable<CUdevResourceDesc, ResourceDescription>& descriptions() {
  static auto* const table = new HandleTable<CUdevResourceDesc, ResourceDescription>;
  return *table;
}

// The least part and the multiple of it: by architecture (compute 7: 2 and 2, 8: 4 and 2, from 9: 8 and 8).
unsigned least_part(const Board& board) {
  return board.compute_major >= 9 ? 8 : board.compute_major == 8 ? 4 : 2;
}
unsigned alignment_of(const Board& board) { return board.compute_major >= 9 ? 8 : 2; }

CUresult describe(const Board& board, unsigned count, CUdevResource* resource, int type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != kMultiprocessors) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = {};
  resource->type = type;
  resource->multiprocessors = {count, least_part(board), alignment_of(board), 0};
  return CUDA_SUCCESS;
}

CUresult split(CUdevResource* parts, unsigned* count, const CUdevResource* whole, CUdevResource* remainder,
               unsigned least) {
  if (count == nullptr || whole == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (whole->type != kMultiprocessors) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const unsigned alignment = std::max(whole->multiprocessors.alignment, 1u);
  least = std::max({least, whole->multiprocessors.least, 1u});
  if (least > whole->multiprocessors.count) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const unsigned size = (least + alignment - 1) / alignment * alignment;
  const unsigned most = whole->multiprocessors.count / size;
  if (most == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (parts == nullptr) {
    *count = most;
    return CUDA_SUCCESS;
  }
  *count = std::min(*count, most);
  for (unsigned i = 0; i < *count; ++i) {
    parts[i] = *whole;
    parts[i].multiprocessors.count = size;
  }
  if (remainder == nullptr) return CUDA_SUCCESS;
  *remainder = *whole;
  remainder->multiprocessors.count -= *count * size;
  if (remainder->multiprocessors.count == 0) remainder->type = 0;
  return CUDA_SUCCESS;
}

CUresult find_green(CUgreenCtx handle, std::shared_ptr<GreenContext>& green) {
  CUDA_TRY(driver().ready());
  green = driver().green_contexts.find(handle);
  return green == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult resource_of_context(const Context& context, CUdevResource* resource, int type) {
  const Board& board = driver().model().board(context.gpu);
  const auto own = static_cast<unsigned>(context.multiprocessors);
  return describe(board, own == 0 ? board.multiprocessors : own, resource, type);
}

}  // namespace

CUDA_ENTRY cuDeviceGetDevResource(CUdevice ordinal, CUdevResource* resource, int type) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  const Board& board = driver().model().board(device->gpu);
  return describe(board, board.multiprocessors, resource, type);
}

CUDA_ENTRY cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, int type) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : resource_of_context(*context, resource, type);
}

CUDA_ENTRY cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource, int type) {
  std::shared_ptr<GreenContext> green;
  CUDA_TRY(find_green(handle, green));
  return resource_of_context(*green->context, resource, type);
}

CUDA_ENTRY cuStreamGetDevResource(CUstream handle, CUdevResource* resource, int type) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, DefaultStream::legacy, stream));
  return resource_of_context(*stream->context, resource, type);
}
CUDA_ENTRY cuStreamGetDevResource_ptsz(CUstream handle, CUdevResource* resource, int type) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, DefaultStream::per_thread, stream));
  return resource_of_context(*stream->context, resource, type);
}

CUDA_ENTRY cuDevSmResourceSplitByCount(CUdevResource* parts, unsigned* count, const CUdevResource* whole,
                                       CUdevResource* remainder, unsigned flags, unsigned least) {
  CUDA_TRY(driver().ready());
  return flags > 3 ? CUDA_ERROR_INVALID_VALUE : split(parts, count, whole, remainder, least);
}

CUDA_ENTRY cuDevResourceGenerateDesc(CUdevResourceDesc* handle, CUdevResource* resources, unsigned count) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto description = std::make_shared<ResourceDescription>();
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].type != kMultiprocessors) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    description->multiprocessors += resources[i].multiprocessors.count;
  }
  *handle = descriptions().add(std::move(description));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
CUDA_ENTRY cuDevicePrimaryCtxRelease_v2(CUdevice device);

CUDA_ENTRY cuGreenCtxCreate(CUgreenCtx* handle, CUdevResourceDesc description_handle, CUdevice ordinal,
                            unsigned flags) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  const std::shared_ptr<ResourceDescription> description = descriptions().find(description_handle);
  if (handle == nullptr || description == nullptr || flags != kDefaultStream) return CUDA_ERROR_INVALID_VALUE;
  auto green = std::make_shared<GreenContext>();
  CUcontext primary = nullptr;  // its code and its buffers are shared
  CUDA_TRY(cuDevicePrimaryCtxRetain(&primary, ordinal));
  const CUresult created = driver().create_context(ordinal, 0, 3020, false, green->context, kDevicePage);
  if (created != CUDA_SUCCESS) {
    cuDevicePrimaryCtxRelease_v2(ordinal);
    return created;
  }
  green->device = ordinal;
  green->id = green->context->id;
  green->multiprocessors = static_cast<int>(description->multiprocessors);
  green->context->multiprocessors = green->multiprocessors;
  const std::shared_ptr<Context> context = green->context;
  *handle = driver().green_contexts.add(std::move(green));
  context->green = *handle;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGreenCtxDestroy(CUgreenCtx handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<GreenContext> green = driver().green_contexts.remove(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  driver().destroy_context(green->context);
  return cuDevicePrimaryCtxRelease_v2(green->device);
}

CUDA_ENTRY cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx handle) {
  std::shared_ptr<GreenContext> green;
  CUDA_TRY(find_green(handle, green));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = green->context->handle;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
  std::shared_ptr<GreenContext> green;
  CUDA_TRY(find_green(handle, green));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = green->id;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxRecordEvent(CUcontext context, CUevent event);
CUDA_ENTRY cuCtxWaitEvent(CUcontext context, CUevent event);

CUDA_ENTRY cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
  std::shared_ptr<GreenContext> green;
  CUDA_TRY(find_green(handle, green));
  return cuCtxRecordEvent(green->context->handle, event);
}
CUDA_ENTRY cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
  std::shared_ptr<GreenContext> green;
  CUDA_TRY(find_green(handle, green));
  return cuCtxWaitEvent(green->context->handle, event);
}

CUDA_ENTRY cuGreenCtxStreamCreate(CUstream* handle, CUgreenCtx green_handle, unsigned flags, int priority) {
  std::shared_ptr<GreenContext> green;
  CUDA_TRY(find_green(green_handle, green));
  if (handle == nullptr || flags != kStreamNonBlocking) return CUDA_ERROR_INVALID_VALUE;
  auto stream = std::make_shared<Stream>();
  stream->context = green->context.get();
  stream->owner = green->context;
  stream->flags = flags;
  stream->priority = std::clamp(priority, -5, 0);
  stream->id = next_block_id() | uint64_t{1} << 48;
  stream->green = green_handle;
  *handle = driver().streams.add(std::move(stream));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, DefaultStream::legacy, stream));
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = stream->green;
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
