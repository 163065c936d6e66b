// Entry points: contexts, primary contexts, peers.

#include <algorithm>

#include "emulator/cuda/streams.h"

namespace tranche::emulator::cuda {
namespace {

constexpr unsigned kContextFlagsAll = 0xFF;
constexpr unsigned kApiVersion = 3020;

CUresult check_flags(unsigned flags) {
  const unsigned schedule = flags & 7;  // 0, or one bit
  const bool valid = (flags & ~kContextFlagsAll) == 0 && (schedule & (schedule - 1)) == 0;
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult create(CUcontext* handle, unsigned flags, unsigned version, CUdevice device) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(check_flags(flags));
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().create_context(device, flags, version, false, context));
  *handle = context->handle;
  context_stack().push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult create_with_affinity(CUcontext* context, const CUexecAffinityParam* affinity, int count,
                              unsigned flags, CUdevice device) {
  if (count < 0 || (count > 0) != (affinity != nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(context, flags, kApiVersion, device);
}

CUresult destroy(CUcontext handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;  // released, not destroyed
  driver().destroy_context(context);
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult push(CUcontext handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* handle) {
  CUDA_TRY(driver().ready());
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = stack.back() == nullptr ? nullptr : stack.back()->handle;
  stack.pop_back();
  return CUDA_SUCCESS;
}

// Device memory that a limit above its default takes: the stack of every thread that fits on the GPU, the
// buffer of printf, the heap of malloc.
uint64_t bytes_of_limit(const Context& context, size_t limit, size_t value) {
  const Board& board = driver().model().board(context.gpu);
  constexpr size_t kStack = 0, kPrintf = 1, kHeap = 2;
  const size_t before = Context().limits[limit];
  if (value <= before || limit > kHeap) return 0;
  const uint64_t more = value - before;
  static_assert(kStack < kPrintf);
  if (limit != kStack) return round_up_to_page(std::min<uint64_t>(more, uint64_t{1} << 50));
  const uint64_t threads = uint64_t{board.multiprocessors} * board.threads_per_multiprocessor;
  return round_up_to_page(std::min<uint64_t>(more, uint64_t{1} << 30) * threads);
}

// The context's mutex is held.
CUresult charge_limits(Context& context, size_t limit, size_t value) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < kLimitCount; ++i)
    bytes += bytes_of_limit(context, i, i == limit ? value : context.limits[i]);
  DeviceMemory& memory = *driver().device(context.device)->memory;
  if (bytes > context.limit_bytes) {
    if (!memory.charge(bytes - context.limit_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  } else if (bytes < context.limit_bytes) {
    memory.discharge(context.limit_bytes - bytes);
  }
  context.limit_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult synchronise_context(Context& context) {
  if (driver().graphs.captures.load(std::memory_order_relaxed) != 0) {
    CUresult result = CUDA_SUCCESS;
    if (legacy_work_breaks_captures(context, result)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return driver().synchronise(context.legacy_stream);
}

CUresult release_primary(CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  const std::lock_guard lock(driver().device_mutex());
  if (device->primary_users == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->primary_users == 0) {
    driver().destroy_context(device->primary);
    device->primary.reset();
  }
  return CUDA_SUCCESS;
}

CUresult reset_primary(CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  const std::lock_guard lock(driver().device_mutex());
  if (device->primary != nullptr) driver().destroy_context(device->primary);
  device->primary.reset();
  device->primary_users = 0;
  device->primary_flags = 0;
  return CUDA_SUCCESS;
}

CUresult set_primary_flags(CUdevice ordinal, unsigned flags) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  CUDA_TRY(check_flags(flags));
  const std::lock_guard lock(driver().device_mutex());
  device->primary_flags = flags;
  if (device->primary != nullptr) device->primary->flags = flags;
  return CUDA_SUCCESS;
}

}  // namespace

CUDA_ENTRY cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return create(context, flags, kApiVersion, device);
}
CUDA_ENTRY cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create(context, flags, kApiVersion, device);
}
// Execution affinity limits the multiprocessors of MPS clients; without MPS it is refused, as the driver
// does.
CUDA_ENTRY cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count, unsigned flags,
                          CUdevice device) {
  CUDA_TRY(driver().ready());
  return create_with_affinity(context, affinity, count, flags, device);
}
CUDA_ENTRY cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags,
                          CUdevice device) {
  CUDA_TRY(driver().ready());
  if (parameters == nullptr) return create(context, flags, kApiVersion, device);
  const bool both = parameters->affinity != nullptr && parameters->graphics != nullptr;
  if (both || parameters->graphics != nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create_with_affinity(context, parameters->affinity, parameters->affinity_count, flags, device);
}
CUDA_ENTRY cuCtxDestroy(CUcontext context) { return destroy(context); }
CUDA_ENTRY cuCtxDestroy_v2(CUcontext context) { return destroy(context); }
CUDA_ENTRY cuCtxPushCurrent(CUcontext context) { return push(context); }
CUDA_ENTRY cuCtxPushCurrent_v2(CUcontext context) { return push(context); }
CUDA_ENTRY cuCtxPopCurrent(CUcontext* context) { return pop(context); }
CUDA_ENTRY cuCtxPopCurrent_v2(CUcontext* context) { return pop(context); }

CUDA_ENTRY cuCtxSetCurrent(CUcontext handle) {
  CUDA_TRY(driver().ready());
  auto& stack = context_stack();
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty())
    stack.push_back(context);
  else
    stack.back() = context;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetCurrent(CUcontext* handle) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = context_stack();
  *handle = stack.empty() || stack.back() == nullptr ? nullptr : stack.back()->handle;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetDevice(CUdevice* device) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetFlags(unsigned* flags) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxSetFlags(unsigned flags) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  CUDA_TRY(check_flags(flags));
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetId(CUcontext handle, unsigned long long* id) {
  std::shared_ptr<Context> context;
  if (handle == nullptr)
    CUDA_TRY(driver().current(context));
  else
    context = driver().contexts.find(handle);
  CUDA_TRY(driver().ready());
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().ready());
  if (handle == nullptr)
    CUDA_TRY(driver().current(context));
  else
    context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxSynchronize() {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  return synchronise_context(*context);
}

CUDA_ENTRY cuCtxSynchronize_v2(CUcontext handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return synchronise_context(*context);
}

CUDA_ENTRY cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetExecAffinity(CUexecAffinityParam* affinity, int type) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (affinity == nullptr || type != 0) return CUDA_ERROR_INVALID_VALUE;
  affinity->type = 0;
  affinity->multiprocessors = driver().model().board(context->gpu).multiprocessors;
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuDeviceGetExecAffinitySupport(int* supported, int type, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (supported == nullptr || type != 0) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}

// Counted uses of a context, of CUDA 2.
CUDA_ENTRY cuCtxAttach(CUcontext* handle, unsigned flags) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  context->attached.fetch_add(1);
  *handle = context->handle;
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuCtxDetach(CUcontext handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->attached.fetch_sub(1) > 1 ? CUDA_SUCCESS : destroy(handle);
}

CUDA_ENTRY cuCtxSetLimit(int limit, size_t value) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (limit < 0) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<size_t>(limit) >= kLimitCount) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const std::lock_guard lock(context->mutex);
  CUDA_TRY(charge_limits(*context, static_cast<size_t>(limit), value));
  context->limits[static_cast<size_t>(limit)] = value;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetLimit(size_t* value, int limit) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (value == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<size_t>(limit) >= kLimitCount) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const std::lock_guard lock(context->mutex);
  *value = context->limits[static_cast<size_t>(limit)];
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetCacheConfig(int* configuration) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (configuration == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(context->mutex);
  *configuration = context->cache_configuration;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxSetCacheConfig(int configuration) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (configuration < 0 || configuration > 3) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(context->mutex);
  context->cache_configuration = configuration;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetSharedMemConfig(int* configuration) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (configuration == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(context->mutex);
  *configuration = context->shared_configuration;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxSetSharedMemConfig(int configuration) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (configuration < 0 || configuration > 2) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(context->mutex);
  context->shared_configuration = configuration;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxResetPersistingL2Cache() {
  std::shared_ptr<Context> context;
  return driver().current(context);
}

CUDA_ENTRY cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().device_mutex());
  if (device->primary == nullptr) {
    CUDA_TRY(driver().create_context(ordinal, device->primary_flags, kApiVersion, true, device->primary));
  }
  ++device->primary_users;
  *handle = device->primary->handle;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDevicePrimaryCtxRelease(CUdevice device) { return release_primary(device); }
CUDA_ENTRY cuDevicePrimaryCtxRelease_v2(CUdevice device) { return release_primary(device); }
CUDA_ENTRY cuDevicePrimaryCtxReset(CUdevice device) { return reset_primary(device); }
CUDA_ENTRY cuDevicePrimaryCtxReset_v2(CUdevice device) { return reset_primary(device); }
CUDA_ENTRY cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return set_primary_flags(device, flags);
}
CUDA_ENTRY cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return set_primary_flags(device, flags);
}

CUDA_ENTRY cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(driver().device_mutex());
  *flags = device->primary_flags;
  *active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer);

CUDA_ENTRY cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned flags) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Context> peer = driver().contexts.find(peer_handle);
  if (peer == nullptr || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  int can = 0;
  CUDA_TRY(cuDeviceCanAccessPeer(&can, context->device, peer->device));
  if (can == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const std::lock_guard lock(context->mutex);
  return context->peers.insert(peer_handle).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUDA_ENTRY cuCtxDisablePeerAccess(CUcontext peer) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  const std::lock_guard lock(context->mutex);
  return context->peers.erase(peer) == 1 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace tranche::emulator::cuda
