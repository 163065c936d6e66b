/* A driver that has what emulated ones have not: the first API with 32-bit addresses, resolvers of the
   per-thread stream, processes that draw or compute under MPS. Names that no other check can reach are held
   against it (hooks_test.py). Built twice, as libcuda.so.1 and as libnvidia-ml.so.1; what a process holds
   lies in a file that both know. One device, with the UUID of FIRST_DRIVER_UUID (32 hex digits). It knows
   nothing of limits. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { STRANGER = 1, CONTEXT = 96 << 20, STEP = 2 << 20, NOT_FOUND = 500, TOO_SMALL = 7 };

static uint64_t* held(void) {
  static uint64_t* bytes;
  char path[64];
  if (bytes != 0) return bytes;
  snprintf(path, sizeof path, "/dev/shm/first-driver.%d", getpid());
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof *bytes) != 0) abort();
  bytes = mmap(0, sizeof *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (bytes == MAP_FAILED) abort();
  return bytes;
}

#ifdef FIRST_DRIVER_CUDA

typedef struct {
  unsigned width, height, format, channels;
} Flat;
typedef struct {
  unsigned width, height, depth, format, channels, flags;
} Deep;

static const uint64_t kTotal = UINT64_C(3) << 30;

/* Every block in pages of its own; freeing wants its size again. */
static struct {
  unsigned address;
  uint64_t bytes;
} blocks[4096];
static unsigned block_count;
static unsigned next_address = STEP;

static int take(unsigned* address, uint64_t bytes) {
  bytes = (bytes + STEP - 1) / STEP * STEP;
  if (*held() + bytes > kTotal || block_count == 4096) return 2;
  *held() += bytes;
  *address = next_address;
  blocks[block_count].address = next_address;
  blocks[block_count++].bytes = bytes;
  next_address += (unsigned)bytes;
  return 0;
}

EXPORT int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
EXPORT int cuDeviceGetCount(int* count) { return *count = 1, 0; }
EXPORT int cuDeviceGetUuid_v2(uint8_t* uuid, int device) {
  const char* text = getenv("FIRST_DRIVER_UUID");
  for (int i = 0; i < 16; ++i) {
    unsigned value = 0;
    if (text == 0 || sscanf(text + 2 * i, "%2x", &value) != 1) return 1;
    uuid[i] = (uint8_t)value;
  }
  return device;
}
EXPORT int cuDeviceGetPCIBusId(char* text, int size, int device) {
  return snprintf(text, (size_t)size, "00000000:01:00.0"), device;
}
EXPORT int cuCtxGetDevice(int* device) { return *device = 0; }
EXPORT int cuCtxCreate_v2(void** context, unsigned flags, int device) {
  *held() += CONTEXT;
  return *context = blocks, (int)flags + device;
}
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = kTotal, device; }
EXPORT int cuMemGetInfo_v2(size_t* left, size_t* total) {
  return *total = kTotal, *left = kTotal - *held(), 0;
}
EXPORT int cuDeviceTotalMem(unsigned* bytes, int device) { return *bytes = (unsigned)kTotal, device; }
EXPORT int cuMemGetInfo(unsigned* left, unsigned* total) {
  return *total = (unsigned)kTotal, *left = (unsigned)(kTotal - *held()), 0;
}
EXPORT int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  unsigned short_address = 0;
  const int result = take(&short_address, bytes);
  return *address = short_address, result;
}
EXPORT int cuMemAlloc(unsigned* address, unsigned bytes) { return take(address, bytes); }
EXPORT int cuMemAllocPitch(unsigned* address, unsigned* pitch, unsigned width, unsigned height,
                           unsigned element) {
  *pitch = (width + 511) / 512 * 512;
  return element == 0 ? 1 : take(address, (uint64_t)*pitch * height);
}
EXPORT int cuMemFree(unsigned address) {
  for (unsigned i = 0; i < block_count; ++i) {
    if (blocks[i].address != address) continue;
    *held() -= blocks[i].bytes;
    blocks[i] = blocks[--block_count];
    return 0;
  }
  return 1;
}
EXPORT int cuMemFree_v2(uint64_t address) { return cuMemFree((unsigned)address); }
/* Of pools that do not tell what they keep. */
EXPORT int cuMemAllocAsync(uint64_t* address, size_t bytes, void* stream) {
  return stream == 0 ? cuMemAlloc_v2(address, bytes) : 1;
}
EXPORT int cuMemFreeAsync(uint64_t address, void* stream) { return stream == 0 ? cuMemFree_v2(address) : 1; }
EXPORT int cuMemFreeAsync_ptsz(uint64_t address, void* stream) { return cuMemFreeAsync(address, stream); }
EXPORT int cuArrayCreate(void** array, const Flat* flat) {
  unsigned address = 0;
  const int result = take(&address, (uint64_t)flat->width * flat->height * flat->channels * 4);
  return *array = (void*)(uintptr_t)address, result;
}
EXPORT int cuArray3DCreate(void** array, const Deep* deep) {
  unsigned address = 0;
  const int result = take(&address, (uint64_t)deep->width * deep->height * deep->depth * deep->channels * 4);
  return *array = (void*)(uintptr_t)address, result;
}
EXPORT int cuArrayDestroy(void* array) { return cuMemFree((unsigned)(uintptr_t)array); }

static int resolve(const char* name, void** function, int version, uint64_t flags) {
  *function = strcmp(name, "cuMemAlloc") == 0 ? (void*)(uintptr_t)&cuMemAlloc_v2 : 0;
  return *function == 0 || version < 3020 || flags > 2 ? NOT_FOUND : 0;
}
EXPORT int cuGetProcAddress_ptsz(const char* name, void** function, int version, uint64_t flags) {
  return resolve(name, function, version, flags);
}
EXPORT int cuGetProcAddress_v2_ptsz(const char* name, void** function, int version, uint64_t flags,
                                    int* status) {
  if (status != 0) *status = 0;
  return resolve(name, function, version, flags);
}

#else /* the management library */

typedef struct {
  uint32_t pid;
  uint64_t used;
} ProcessV1;
typedef struct {
  uint32_t pid;
  uint64_t used;
  uint32_t gpu_instance, compute_instance;
} ProcessV2;
typedef struct {
  uint64_t total, free, used;
} Memory;

static char device_here;

EXPORT int nvmlInit_v2(void) { return 0; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return *device = &device_here, index == 0 ? 0 : 2;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  return *device = &device_here, bus_id == 0;
}
EXPORT int nvmlDeviceGetUUID(const void* device, char* text, unsigned size) {
  const char* hex = getenv("FIRST_DRIVER_UUID");
  return hex == 0 || device == 0 || snprintf(text, size, "GPU-%s", hex) >= (int)size;
}
EXPORT int nvmlDeviceGetMemoryInfo(const void* device, Memory* memory) {
  *memory = (Memory){UINT64_C(3) << 30, (UINT64_C(3) << 30) - *held(), *held()};
  return device == 0;
}

/* The asking process and a stranger, in whatever kind of list. */
static int list_v1(uint32_t* count, ProcessV1* entries) {
  const uint32_t room = *count;
  *count = 2;
  if (room < 2) return TOO_SMALL;
  entries[0] = (ProcessV1){STRANGER, 5 << 20};
  entries[1] = (ProcessV1){(uint32_t)getpid(), *held()};
  return 0;
}
static int list_v2(uint32_t* count, ProcessV2* entries) {
  const uint32_t room = *count;
  *count = 2;
  if (room < 2) return TOO_SMALL;
  entries[0] = (ProcessV2){STRANGER, 5 << 20, UINT32_MAX, UINT32_MAX};
  entries[1] = (ProcessV2){(uint32_t)getpid(), *held(), UINT32_MAX, UINT32_MAX};
  return 0;
}
#define LISTS(kind)                                                                        \
  EXPORT int nvmlDeviceGet##kind##RunningProcesses(const void* device, uint32_t* count,    \
                                                   ProcessV1* entries) {                   \
    return device == 0 ? 2 : list_v1(count, entries);                                      \
  }                                                                                        \
  EXPORT int nvmlDeviceGet##kind##RunningProcesses_v2(const void* device, uint32_t* count, \
                                                      ProcessV2* entries) {                \
    return device == 0 ? 2 : list_v2(count, entries);                                      \
  }                                                                                        \
  EXPORT int nvmlDeviceGet##kind##RunningProcesses_v3(const void* device, uint32_t* count, \
                                                      ProcessV2* entries) {                \
    return device == 0 ? 2 : list_v2(count, entries);                                      \
  }
LISTS(Compute)
LISTS(Graphics)
LISTS(MPSCompute)

#endif
