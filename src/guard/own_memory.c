#include "guard/own_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "guard/devices.h"
#include "guard/lease.h"
#include "guard/real_library.h"

__asm__(".symver pthread_once,pthread_once@GLIBC_2.2.5");

enum { FIRST_ROOM = 64, MOST_ROOM = 1 << 16 };

static nvmlReturn (*list_processes)(nvmlDevice, uint32_t*, void*);
static size_t entry_size;  // two layouts have existed
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void load(void) {
  nvmlReturn (*init)(void) = 0;
  *(void**)&init = real_nvml("nvmlInit_v2");
  if (init == 0 || init() != NVML_SUCCESS) return;
  static const char* const names[] = {"nvmlDeviceGetComputeRunningProcesses_v3",
                                      "nvmlDeviceGetComputeRunningProcesses_v2",
                                      "nvmlDeviceGetComputeRunningProcesses"};
  for (int i = 0; i < 3 && list_processes == 0; ++i) {
    *(void**)&list_processes = real_nvml(names[i]);
    entry_size = i == 2 ? sizeof(nvmlProcessInfoV1) : sizeof(nvmlProcessInfoV2);
  }
}

// The management library names devices by address on the bus, whatever CUDA_VISIBLE_DEVICES says.
static nvmlDevice device_of(int gpu) {
  CUresult (*bus_id_of)(char*, int, CUdevice) = 0;
  nvmlReturn (*by_bus_id)(const char*, nvmlDevice*) = 0;
  *(void**)&bus_id_of = real_cuda("cuDeviceGetPCIBusId");
  *(void**)&by_bus_id = real_nvml("nvmlDeviceGetHandleByPciBusId_v2");
  char bus_id[32];
  nvmlDevice device = 0;
  if (bus_id_of == 0 || by_bus_id == 0) return 0;
  if (bus_id_of(bus_id, sizeof bus_id, device_of_gpu(gpu)) != CUDA_SUCCESS) return 0;
  return by_bus_id(bus_id, &device) == NVML_SUCCESS ? device : 0;
}

static enum OwnMemory find_own(const void* entries, uint32_t count, uint64_t* bytes) {
  const int32_t own = lease_own_pid();
  for (uint32_t i = 0; i < count; ++i) {
    // Both layouts begin alike.
    const nvmlProcessInfoV1* entry = (const void*)((const char*)entries + i * entry_size);
    if ((int32_t)entry->pid != own) continue;
    *bytes = entry->used;
    return entry->used == NVML_VALUE_NOT_AVAILABLE ? OWN_MEMORY_UNKNOWN : OWN_MEMORY_KNOWN;
  }
  return OWN_MEMORY_NONE;
}

enum OwnMemory own_memory(int gpu, uint64_t* bytes) {
  pthread_once(&loaded, load);
  const nvmlDevice device = list_processes == 0 ? 0 : device_of(gpu);
  if (device == 0 || lease_own_pid() == 0) return OWN_MEMORY_UNKNOWN;
  for (uint32_t room = FIRST_ROOM; room <= MOST_ROOM; room *= 4) {
    void* entries = calloc(room, entry_size);
    uint32_t count = room;
    if (entries == 0) return OWN_MEMORY_UNKNOWN;
    const nvmlReturn result = list_processes(device, &count, entries);
    const enum OwnMemory found =
        result == NVML_SUCCESS ? find_own(entries, count, bytes) : OWN_MEMORY_UNKNOWN;
    free(entries);
    if (result != NVML_ERROR_INSUFFICIENT_SIZE) return found;
  }
  return OWN_MEMORY_UNKNOWN;
}
