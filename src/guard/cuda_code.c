// Code: what it takes is the driver's secret, so it is measured. Drivers load functions one by one when they
// are first needed, which would be at a launch, where the guard is not; so each is loaded when the program is
// given its handle.
#include <stdbool.h>

#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/real_library.h"

// What a module or library takes while nobody has seen it; measured right after.
static const uint64_t kModuleEstimate = UINT64_C(4) << 20;
// And a function, at most in what has been seen; what it takes more is measured too.
static const uint64_t kFunctionEstimate = BLOCK_PAGE;

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

// A variable takes its memory when it is first asked for, or with its module; so does the module of a library
// in a context.
#define GET_VARIABLE(call)                                                       \
  struct Measured measured;                                                      \
  const CUresult begun = measured_begin(&measured, gpu_of_current_context(), 0); \
  if (begun != CUDA_SUCCESS) return begun;                                       \
  CUdeviceptr place = 0;                                                         \
  size_t size = 0;                                                               \
  const CUresult result = call;                                                  \
  return end_variable(&measured, result, place, size, address, bytes)

static CUresult end_variable(struct Measured* measured, CUresult result, CUdeviceptr place, size_t size,
                             CUdeviceptr* address, size_t* bytes) {
  if (result == CUDA_SUCCESS && measured->counted && size < BLOCK_PAGE) measured_at(place, size);
  if (result == CUDA_SUCCESS && address != 0) *address = place;
  if (result == CUDA_SUCCESS && bytes != 0) *bytes = size;
  return measured_end(measured, result == CUDA_SUCCESS) ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  REAL(cuModuleGetGlobal_v2)
  GET_VARIABLE(real(&place, &size, module, name));
}
CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  REAL(cuLibraryGetGlobal)
  GET_VARIABLE(real(&place, &size, library, name));
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  REAL(cuLibraryGetModule)
  struct Measured measured;
  const CUresult begun = measured_begin(&measured, gpu_of_current_context(), 0);
  if (begun != CUDA_SUCCESS) return begun;
  const CUresult result = real(module, library);
  return measured_end(&measured, result == CUDA_SUCCESS) ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

#define UNLOAD(call)                                                                       \
  struct Measured measured;                                                                \
  if (measured_begin(&measured, gpu_of_current_context(), 0) != CUDA_SUCCESS) return call; \
  const CUresult result = call;                                                            \
  if (result == CUDA_SUCCESS) code_forget_all();                                           \
  measured_end(&measured, result == CUDA_SUCCESS);                                         \
  return result

CUresult cuModuleUnload(CUmodule module) {
  REAL(cuModuleUnload)
  UNLOAD(real(module));
}
CUresult cuLibraryUnload(CUlibrary library) {
  REAL(cuLibraryUnload)
  UNLOAD(real(library));
}

// --- functions and kernels
// ------------------------------------------------------------------------------------

// What was loaded: programs ask for the same function before every launch, and measuring takes a question to
// the management library. A handle may be given again after anything was unloaded, so all is forgotten then.
// Written in measured calls alone, read by anybody.
enum { LOADED_PLACES = 4096 };  // a power of two
static uint64_t loaded[LOADED_PLACES];

void code_forget_all(void) {
  for (int i = 0; i < LOADED_PLACES; ++i) __atomic_store_n(&loaded[i], 0, __ATOMIC_RELAXED);
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}

// A function by its name in `where` (a module, or a library in a context).
static uint64_t key_of(const void* where, const void* context, const char* name) {
  uint64_t hash = mix(mix(1, (uintptr_t)where), (uintptr_t)context);
  for (; name != 0 && *name != '\0'; ++name) hash = mix(hash, (unsigned char)*name);
  return hash == 0 ? 1 : hash;
}

static uint64_t* place_of(uint64_t key) { return &loaded[key & (LOADED_PLACES - 1)]; }
static bool is_loaded(uint64_t key) { return __atomic_load_n(place_of(key), __ATOMIC_RELAXED) == key; }
static void keep_loaded(uint64_t key) { __atomic_store_n(place_of(key), key, __ATOMIC_RELAXED); }

static CUcontext current_context(void) {
  static CUresult (*current_of)(CUcontext*);
  if (current_of == 0) *(void**)&current_of = real_cuda("cuCtxGetCurrent");
  CUcontext context = 0;
  return current_of != 0 && current_of(&context) == CUDA_SUCCESS ? context : 0;
}

// Drivers before 550 have no such call; they load a function when they give its handle.
static CUresult load_function(CUfunction function) {
  static CUresult (*load)(CUfunction);
  if (load == 0) *(void**)&load = real_cuda("cuFuncLoad");
  return load == 0 ? CUDA_SUCCESS : load(function);
}

static CUresult load_kernel(CUkernel kernel) {
  static CUresult (*function_of)(CUfunction*, CUkernel);
  if (function_of == 0) *(void**)&function_of = real_cuda("cuKernelGetFunction");
  CUfunction function = 0;
  if (function_of == 0) return CUDA_SUCCESS;
  const CUresult result = function_of(&function, kernel);
  return result == CUDA_SUCCESS ? load_function(function) : result;
}

// Has a function loaded whose handle the program gets. What else a driver finds wrong with it, it says at the
// launch.
static CUresult end_load(struct Measured* measured, CUresult load_result, uint64_t key) {
  if (measured->counted && load_result == CUDA_SUCCESS) keep_loaded(key);
  const bool held = measured_end(measured, true);
  return held && load_result != CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// `call` gives the function, of a module or for a kernel in the current context.
#define GET_FUNCTION(key, call)                                                              \
  const uint64_t own_key = key;                                                              \
  if (is_loaded(own_key)) return call;                                                       \
  struct Measured measured;                                                                  \
  CUresult result = measured_begin(&measured, gpu_of_current_context(), kFunctionEstimate);  \
  if (result != CUDA_SUCCESS) return result;                                                 \
  result = call;                                                                             \
  if (result == CUDA_SUCCESS) return end_load(&measured, load_function(*function), own_key); \
  measured_end(&measured, false);                                                            \
  return result

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  REAL(cuModuleGetFunction)
  GET_FUNCTION(key_of(module, 0, name), real(function, module, name));
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  REAL(cuKernelGetFunction)
  GET_FUNCTION(key_of(kernel, current_context(), 0), real(function, kernel));
}

// A kernel can be launched by its own handle. It is loaded into the context that is current now; without one,
// or in another, at its first launch.
static CUresult take_kernel(CUkernel kernel, uint64_t key) {
  if (is_loaded(key)) return CUDA_SUCCESS;
  struct Measured measured;
  const CUresult begun = measured_begin(&measured, gpu_of_current_context(), kFunctionEstimate);
  return begun != CUDA_SUCCESS ? begun : end_load(&measured, load_kernel(kernel), key);
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  REAL(cuLibraryGetKernel)
  const CUresult result = real(kernel, library, name);
  const CUcontext context = result == CUDA_SUCCESS ? current_context() : 0;
  return context == 0 ? result : take_kernel(*kernel, key_of(*kernel, context, 0));
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned room, CUlibrary library) {
  REAL(cuLibraryEnumerateKernels)
  CUresult (*count_of)(unsigned*, CUlibrary) = 0;
  *(void**)&count_of = real_cuda("cuLibraryGetKernelCount");
  unsigned count = 0;
  CUresult result = real(kernels, room, library);
  const CUcontext context = result == CUDA_SUCCESS ? current_context() : 0;
  if (context == 0 || count_of == 0 || count_of(&count, library) != CUDA_SUCCESS) return result;
  for (unsigned i = 0; i < count && i < room && result == CUDA_SUCCESS; ++i) {
    result = take_kernel(kernels[i], key_of(kernels[i], context, 0));
  }
  return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned room, CUmodule module) {
  REAL(cuModuleEnumerateFunctions)
  CUresult (*count_of)(unsigned*, CUmodule) = 0;
  *(void**)&count_of = real_cuda("cuModuleGetFunctionCount");
  unsigned count = 0;
  CUresult result = real(functions, room, module);
  if (result != CUDA_SUCCESS || count_of == 0 || count_of(&count, module) != CUDA_SUCCESS) return result;
  for (unsigned i = 0; i < count && i < room && result == CUDA_SUCCESS; ++i) {
    const uint64_t key = key_of(functions[i], 0, 0);
    if (is_loaded(key)) continue;
    struct Measured measured;
    result = measured_begin(&measured, gpu_of_current_context(), kFunctionEstimate);
    if (result == CUDA_SUCCESS) result = end_load(&measured, load_function(functions[i]), key);
  }
  return result;
}
