// Contexts, and code in them: what they take is the driver's secret, so it is measured.
#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/lease.h"
#include "guard/real_library.h"

// A context of a GPU that nobody has measured yet: this much is held for it, or the whole limit. With less in
// hand a context could take more than there is.
static const uint64_t kLargestContext = UINT64_C(1) << 30;
// What a module or library takes while nobody has seen it; measured right after.
static const uint64_t kModuleEstimate = UINT64_C(4) << 20;

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
static CUresult end_of_context(CUresult result, int gpu) {
  if (result != CUDA_SUCCESS || gpu < 0) return result;
  struct Measured measured;
  if (measured_begin(&measured, gpu, 0) != CUDA_SUCCESS) return result;
  sweep_blocks(gpu);
  measured_end(&measured, true);
  return result;
}

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
  const int gpu = gpu_of_context(context);
  return end_of_context(real(context), gpu);
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  REAL(cuCtxDestroy_v2)
  const int gpu = gpu_of_context(context);
  return end_of_context(real(context), gpu);
}

static CUresult end_of_primary(CUresult result, CUdevice device) {
  return primary_is_there(device) ? result : end_of_context(result, gpu_of_device(device));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  REAL(cuDevicePrimaryCtxRelease)
  return end_of_primary(real(device), device);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  REAL(cuDevicePrimaryCtxRelease_v2)
  return end_of_primary(real(device), device);
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  REAL(cuDevicePrimaryCtxReset)
  return end_of_context(real(device), gpu_of_device(device));
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  REAL(cuDevicePrimaryCtxReset_v2)
  return end_of_context(real(device), gpu_of_device(device));
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
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Larger stacks, printf buffers and heaps are taken from the device at once.
CUresult cuCtxSetLimit(int limit, size_t value) {
  REAL(cuCtxSetLimit)
  struct Measured measured;
  const CUresult begun = measured_begin(&measured, gpu_of_current_context(), 0);
  if (begun != CUDA_SUCCESS) return begun;
  const CUresult result = real(limit, value);
  return measured_end(&measured, result == CUDA_SUCCESS) ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

// --- modules and libraries
// ------------------------------------------------------------------------------------

#define LOAD(handle, undo, call)                                                                \
  struct Measured measured;                                                                     \
  const CUresult begun = measured_begin(&measured, gpu_of_current_context(), kModuleEstimate);  \
  if (begun != CUDA_SUCCESS) return begun;                                                      \
  const CUresult result = call;                                                                 \
  if (measured_end(&measured, result == CUDA_SUCCESS) || result != CUDA_SUCCESS) return result; \
  undo(*handle);                                                                                \
  return CUDA_ERROR_OUT_OF_MEMORY

CUresult cuModuleLoad(CUmodule* module, const char* file) {
  REAL(cuModuleLoad)
  LOAD(module, cuModuleUnload, real(module, file));
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  REAL(cuModuleLoadData)
  LOAD(module, cuModuleUnload, real(module, image));
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, void* options,
                            void* values) {
  REAL(cuModuleLoadDataEx)
  LOAD(module, cuModuleUnload, real(module, image, count, options, values));
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  REAL(cuModuleLoadFatBinary)
  LOAD(module, cuModuleUnload, real(module, image));
}
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, void* jit, void* jit_values,
                           unsigned jit_count, void* options, void* values, unsigned count) {
  REAL(cuLibraryLoadData)
  LOAD(library, cuLibraryUnload, real(library, code, jit, jit_values, jit_count, options, values, count));
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file, void* jit, void* jit_values,
                               unsigned jit_count, void* options, void* values, unsigned count) {
  REAL(cuLibraryLoadFromFile)
  LOAD(library, cuLibraryUnload, real(library, file, jit, jit_values, jit_count, options, values, count));
}

// Lazily loaded code takes its memory at first use.
#define FIRST_USE(call)                                                          \
  struct Measured measured;                                                      \
  const CUresult begun = measured_begin(&measured, gpu_of_current_context(), 0); \
  if (begun != CUDA_SUCCESS) return begun;                                       \
  const CUresult result = call;                                                  \
  return measured_end(&measured, result == CUDA_SUCCESS) ? result : CUDA_ERROR_OUT_OF_MEMORY

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  REAL(cuModuleGetGlobal_v2)
  FIRST_USE(real(address, bytes, module, name));
}
CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  REAL(cuLibraryGetGlobal)
  FIRST_USE(real(address, bytes, library, name));
}

static CUresult unloaded(CUresult result) {
  struct Measured measured;
  if (result != CUDA_SUCCESS || measured_begin(&measured, gpu_of_current_context(), 0) != CUDA_SUCCESS)
    return result;
  measured_end(&measured, true);
  return result;
}

CUresult cuModuleUnload(CUmodule module) {
  REAL(cuModuleUnload)
  return unloaded(real(module));
}
CUresult cuLibraryUnload(CUlibrary library) {
  REAL(cuLibraryUnload)
  return unloaded(real(library));
}
