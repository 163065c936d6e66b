// Contexts: what they take is the driver's secret, so it is measured.
#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/lease.h"
#include "guard/real_library.h"

// A context of a GPU that nobody has measured yet: this much is held for it, or the whole limit. With less in
// hand a context could take more than there is.
static const uint64_t kLargestContext = UINT64_C(1) << 30;

static CUresult begin_context(struct Measured* measured, int gpu, uint64_t* before) {
  *before = gpu < 0 ? 0 : measured_overhead(gpu);
  uint64_t bytes = gpu < 0 ? 0 : lease_context_bytes(gpu);
  if (gpu >= 0 && bytes == 0) {
    struct Usage usage;
    lease_usage(gpu, &usage);
    bytes = usage.limit < kLargestContext ? usage.limit : kLargestContext;
  }
  return measured_begin(measured, gpu, bytes);
}

static CUresult end_context(struct Measured* measured, CUresult result, CUcontext* context, uint64_t before) {
  const bool held = measured_end(measured, result == CUDA_SUCCESS);
  if (!measured->counted || result != CUDA_SUCCESS) return result;
  const uint64_t now = measured_overhead(measured->gpu);
  if (held) {
    if (before == 0 && now > 0) lease_report_context(measured->gpu, now);
    return CUDA_SUCCESS;
  }
  cuCtxDestroy_v2(*context);
  *context = 0;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

#define CREATE_CONTEXT(device, ...)                                                \
  struct Measured measured;                                                        \
  uint64_t before = 0;                                                             \
  const CUresult begun = begin_context(&measured, gpu_of_device(device), &before); \
  if (begun != CUDA_SUCCESS) return begun;                                         \
  return end_context(&measured, real(__VA_ARGS__), context, before)

CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  REAL(cuCtxCreate)
  CREATE_CONTEXT(device, context, flags, device);
}
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  REAL(cuCtxCreate_v2)
  CREATE_CONTEXT(device, context, flags, device);
}
CUresult cuCtxCreate_v3(CUcontext* context, void* affinity, int count, unsigned flags, CUdevice device) {
  REAL(cuCtxCreate_v3)
  CREATE_CONTEXT(device, context, affinity, count, flags, device);
}
CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags, CUdevice device) {
  REAL(cuCtxCreate_v4)
  CREATE_CONTEXT(device, context, parameters, flags, device);
}

// Only the first of many makes it.
static bool primary_is_there(CUdevice device) {
  static CUresult (*state_of)(CUdevice, unsigned*, int*);
  if (state_of == 0) *(void**)&state_of = real_cuda("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  return state_of != 0 && state_of(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  REAL(cuDevicePrimaryCtxRetain)
  const int gpu = gpu_of_device(device);
  if (gpu == LEASE_GPU_UNCOUNTED || primary_is_there(device)) return real(context, device);
  struct Measured measured;
  uint64_t before = 0;
  const CUresult begun = begin_context(&measured, gpu, &before);
  if (begun != CUDA_SUCCESS) return begun;
  const CUresult result = real(context, device);
  const bool held = measured_end(&measured, result == CUDA_SUCCESS);
  if (!measured.counted || result != CUDA_SUCCESS) return result;
  if (held) {
    const uint64_t now = measured_overhead(gpu);
    if (before == 0 && now > 0) lease_report_context(gpu, now);
    return CUDA_SUCCESS;
  }
  cuDevicePrimaryCtxRelease_v2(device);
  *context = 0;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Everything of a context goes with it: its blocks, modules, arrays.
#define END_CONTEXT(gpu_of_it, call)                                             \
  struct Measured measured;                                                      \
  const int gpu = gpu_of_it;                                                     \
  if (gpu < 0 || measured_begin(&measured, gpu, 0) != CUDA_SUCCESS) return call; \
  const CUresult result = call;                                                  \
  if (measured.counted && result == CUDA_SUCCESS) {                              \
    sweep_blocks(gpu);                                                           \
    code_forget_all();                                                           \
  }                                                                              \
  measured_end(&measured, result == CUDA_SUCCESS);                               \
  return result

static int gpu_of_context(CUcontext context) {
  static CUresult (*push)(CUcontext);
  static CUresult (*pop)(CUcontext*);
  if (push == 0) *(void**)&push = real_cuda("cuCtxPushCurrent_v2");
  if (pop == 0) *(void**)&pop = real_cuda("cuCtxPopCurrent_v2");
  if (push == 0 || pop == 0 || push(context) != CUDA_SUCCESS) return LEASE_GPU_UNCOUNTED;
  const int gpu = gpu_of_current_context();
  CUcontext popped = 0;
  pop(&popped);
  return gpu;
}

CUresult cuCtxDestroy(CUcontext context) {
  REAL(cuCtxDestroy)
  END_CONTEXT(gpu_of_context(context), real(context));
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  REAL(cuCtxDestroy_v2)
  END_CONTEXT(gpu_of_context(context), real(context));
}

// A release that is not the last takes nothing away: sweeping then finds every block.
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  REAL(cuDevicePrimaryCtxRelease)
  END_CONTEXT(gpu_of_device(device), real(device));
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  REAL(cuDevicePrimaryCtxRelease_v2)
  END_CONTEXT(gpu_of_device(device), real(device));
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  REAL(cuDevicePrimaryCtxReset)
  END_CONTEXT(gpu_of_device(device), real(device));
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  REAL(cuDevicePrimaryCtxReset_v2)
  END_CONTEXT(gpu_of_device(device), real(device));
}

// A part of the primary context's processors: it has memory of its own.
CUresult cuGreenCtxCreate(void** context, void* resources, CUdevice device, unsigned flags) {
  REAL(cuGreenCtxCreate)
  struct Measured measured;
  const CUresult begun = measured_begin(&measured, gpu_of_device(device), 0);
  if (begun != CUDA_SUCCESS) return begun;
  const CUresult result = real(context, resources, device, flags);
  if (measured_end(&measured, result == CUDA_SUCCESS) || result != CUDA_SUCCESS) return result;
  CUresult (*destroy)(void*) = 0;
  *(void**)&destroy = real_cuda("cuGreenCtxDestroy");
  if (destroy != 0) destroy(*context);
  measured_settle(measured.gpu, false);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Larger stacks, printf buffers and heaps are taken from the device at once: a stack for each thread that can
// be resident, the others as they are.
static uint64_t limit_estimate(int gpu, int limit, size_t before, size_t value) {
  enum { STACK = 0, PRINTF = 1, HEAP = 2, PROCESSORS = 16, THREADS = 39 };
  static CUresult (*attribute_of)(int*, int, CUdevice);
  if (attribute_of == 0) *(void**)&attribute_of = real_cuda("cuDeviceGetAttribute");
  if (gpu < 0 || value <= before || limit < STACK || limit > HEAP) return 0;
  if (limit != STACK) return value - before;
  int processors = 0;
  int threads = 0;
  if (attribute_of == 0 || attribute_of(&processors, PROCESSORS, device_of_gpu(gpu)) != CUDA_SUCCESS ||
      attribute_of(&threads, THREADS, device_of_gpu(gpu)) != CUDA_SUCCESS) {
    return 0;
  }
  const uint64_t resident = (uint64_t)processors * (uint64_t)threads;
  uint64_t bytes = 0;
  return __builtin_mul_overflow(value - before, resident, &bytes) ? UINT64_MAX - BLOCK_PAGE : bytes;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
  REAL(cuCtxSetLimit)
  static CUresult (*value_of)(size_t*, int);
  if (value_of == 0) *(void**)&value_of = real_cuda("cuCtxGetLimit");
  size_t before = value;
  const int gpu = gpu_of_current_context();
  if (value_of == 0 || value_of(&before, limit) != CUDA_SUCCESS) before = value;
  uint64_t estimate = limit_estimate(gpu, limit, before, value);
  estimate = (estimate + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
  struct Measured measured;
  const CUresult begun = measured_begin(&measured, gpu, estimate);
  if (begun != CUDA_SUCCESS) return begun;
  const CUresult result = real(limit, value);
  if (measured_end(&measured, result == CUDA_SUCCESS) || result != CUDA_SUCCESS) return result;
  real(limit, before);
  measured_settle(gpu, false);
  return CUDA_ERROR_OUT_OF_MEMORY;
}
