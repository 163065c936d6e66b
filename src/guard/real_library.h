// The driver's own libraries. They lie in the task's library folder under private names and are dependencies
// of the guard's, so a name that the guard does not have is found there, at the address that the driver gives
// it.
#pragma once

#define REAL_CUDA "libtranche-driver-cuda.so.1"
#define REAL_NVML "libtranche-driver-nvml.so.1"

// Looks `name` up in the driver's library alone; null if this driver has no such function. Thread-safe.
void* real_cuda(const char* name);
void* real_nvml(const char* name);  // loads the library on first use

// Declares `real`, the driver's function of the wrapper `name` that it stands in, looked up once.
#define REAL_OF(look_up, name)                                              \
  static __typeof__(&name) real_##name;                                     \
  __typeof__(&name) real = __atomic_load_n(&real_##name, __ATOMIC_ACQUIRE); \
  if (__builtin_expect(real == 0, 0)) {                                     \
    *(void**)&real = look_up(#name);                                        \
    if (real == 0) return (look_up##_missing);                              \
    __atomic_store_n(&real_##name, real, __ATOMIC_RELEASE);                 \
  }
// A driver without the function answers as drivers do for what they do not know. The name itself is hidden
// from programs then (fit.c), so only a caller that insists comes here.
enum { real_cuda_missing = 500, real_nvml_missing = 13 };
#define REAL(name) REAL_OF(real_cuda, name)
#define REAL_NVML_OF(name) REAL_OF(real_nvml, name)
