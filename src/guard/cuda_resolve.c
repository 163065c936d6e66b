// Functions that programs ask the driver for by name: the driver's own resolver decides which one a name, a
// CUDA version and a default stream mean, and the wrapper is chosen by the address that it returns.
#include <dlfcn.h>
#include <pthread.h>

#include "guard/cuda_wrappers.h"
#include "guard/real_library.h"

__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver pthread_once,pthread_once@GLIBC_2.2.5");

enum {
  WRAPPERS = 0
#define X(name) +1
#include "guard/cuda_wrapper_names.inc"
#undef X
  ,
  PLACES = 512
};

struct Pair {
  const void* real;
  void* wrapper;
};

static struct Pair pairs[PLACES];  // open-addressed, by the driver's address
static pthread_once_t built = PTHREAD_ONCE_INIT;

static unsigned place_of(const void* address) {
  return (unsigned)(((uintptr_t)address >> 2) * UINT64_C(0x9e3779b97f4a7c15) >> 55);
}

// This library as programs see it: a name that is hidden here (fit.c) is not wrapped.
static void* own_library(void) {
  Dl_info info;
  return dladdr((void*)(uintptr_t)&cuMemAlloc_v2, &info) == 0
             ? 0
             : dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

static void build(void) {
#define X(name) #name,
  static const char* const names[WRAPPERS] = {
#include "guard/cuda_wrapper_names.inc"
  };
#undef X
#define X(name) (void*)(uintptr_t)&name,
  void* const wrappers[WRAPPERS] = {
#include "guard/cuda_wrapper_names.inc"
  };
#undef X
  void* library = own_library();
  for (unsigned i = 0; i < WRAPPERS; ++i) {
    const void* real = real_cuda(names[i]);
    if (real == 0 || library == 0 || dlsym(library, names[i]) != wrappers[i]) continue;
    unsigned place = place_of(real);
    while (pairs[place].real != 0 && pairs[place].real != real) place = (place + 1) % PLACES;
    pairs[place] = (struct Pair){real, wrappers[i]};
  }
}

static void* in_place_of(void* real) {
  pthread_once(&built, build);
  for (unsigned place = place_of(real); pairs[place].real != 0; place = (place + 1) % PLACES) {
    if (pairs[place].real == real) return pairs[place].wrapper;
  }
  return real;
}

CUresult cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  REAL(cuGetProcAddress)
  const CUresult result = real(name, function, version, flags);
  if (result == CUDA_SUCCESS && function != 0 && *function != 0) *function = in_place_of(*function);
  return result;
}

CUresult cuGetProcAddress_ptsz(const char* name, void** function, int version, uint64_t flags) {
  REAL(cuGetProcAddress_ptsz)
  const CUresult result = real(name, function, version, flags);
  if (result == CUDA_SUCCESS && function != 0 && *function != 0) *function = in_place_of(*function);
  return result;
}

CUresult cuGetProcAddress_v2_ptsz(const char* name, void** function, int version, uint64_t flags,
                                  int* status) {
  REAL(cuGetProcAddress_v2_ptsz)
  const CUresult result = real(name, function, version, flags, status);
  if (result == CUDA_SUCCESS && function != 0 && *function != 0) *function = in_place_of(*function);
  return result;
}

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  REAL(cuGetProcAddress_v2)
  const CUresult result = real(name, function, version, flags, status);
  if (result == CUDA_SUCCESS && function != 0 && *function != 0) *function = in_place_of(*function);
  return result;
}
