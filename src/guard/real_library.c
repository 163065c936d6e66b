#include "guard/real_library.h"

#include <dlfcn.h>

// The oldest C library that the guard loads on is 2.17: names that moved since are asked for by their old
// version.
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");

static void* handle_of(const char* file, void** known) {
  void* handle = __atomic_load_n(known, __ATOMIC_ACQUIRE);
  if (handle != 0) return handle;
  handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  __atomic_store_n(known, handle, __ATOMIC_RELEASE);
  return handle;
}

void* real_cuda(const char* name) {
  static void* library;
  void* handle = handle_of(REAL_CUDA, &library);
  return handle == 0 ? 0 : dlsym(handle, name);
}

void* real_nvml(const char* name) {
  static void* library;
  static void* in_front;
  // The driver's library calls itself by its public name, and who asks for that name next gets what was
  // loaded first.
  handle_of("libnvidia-ml.so.1", &in_front);
  void* handle = handle_of(REAL_NVML, &library);
  return handle == 0 ? 0 : dlsym(handle, name);
}
