// What management tools see inside a job: the job's limit and charge as the GPU's memory, and its own
// processes only.
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "guard/abi.h"
#include "guard/lease.h"
#include "guard/real_library.h"
#include "wire/guard.h"

__attribute__((constructor)) static void look_only(void) { lease_be_viewer(); }

// --- which GPU a device handle is
// -------------------------------------------------------------------------------

enum { MOST_DEVICES = 256, UUID_TEXT = 96 };
static struct {
  nvmlDevice device;
  int gpu;
} known[MOST_DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int hex_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// "GPU-8-4-4-4-12" or "MIG-..." as 16 bytes.
static bool parse_uuid(const char* text, uint8_t uuid[16]) {
  const char* at = strchr(text, '-');
  int digits = 0;
  if (at == 0) return false;
  for (++at; *at != '\0' && digits < 32; ++at) {
    const int digit = hex_of(*at);
    if (digit < 0) continue;
    uuid[digits / 2] = (uint8_t)(digits % 2 == 0 ? digit << 4 : uuid[digits / 2] | digit);
    ++digits;
  }
  return digits == 32;
}

static int ask_gpu(nvmlDevice device) {
  nvmlReturn (*uuid_of)(nvmlDevice, char*, unsigned) = 0;
  *(void**)&uuid_of = real_nvml("nvmlDeviceGetUUID");
  char text[UUID_TEXT] = "";
  uint8_t uuid[16];
  if (uuid_of == 0 || uuid_of(device, text, sizeof text) != NVML_SUCCESS || !parse_uuid(text, uuid)) {
    return LEASE_GPU_UNCOUNTED;
  }
  return lease_gpu_of(uuid);
}

static int gpu_of(nvmlDevice device) {
  int gpu = LEASE_GPU_UNKNOWN;
  bool found = false;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MOST_DEVICES && !found && known[i].device != 0; ++i) {
    found = known[i].device == device;
    if (found) gpu = known[i].gpu;
  }
  pthread_mutex_unlock(&mutex);
  if (found) return gpu;
  gpu = ask_gpu(device);
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MOST_DEVICES && gpu >= 0; ++i) {
    if (known[i].device != 0 && known[i].device != device) continue;
    known[i].device = device;
    known[i].gpu = gpu;
    break;
  }
  pthread_mutex_unlock(&mutex);
  return gpu;
}

// --- memory
// -----------------------------------------------------------------------------------------------------

static void memory_of(int gpu, uint64_t* total, uint64_t* used, uint64_t* left) {
  struct Usage usage;
  lease_usage(gpu, &usage);
  *total = usage.limit;
  *used = usage.charged < usage.limit ? usage.charged : usage.limit;
  *left = usage.available;
}

GUARD_EXPORT nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice device, nvmlMemory* memory) {
  REAL_NVML_OF(nvmlDeviceGetMemoryInfo)
  const nvmlReturn result = real(device, memory);
  const int gpu = result == NVML_SUCCESS ? gpu_of(device) : LEASE_GPU_UNCOUNTED;
  if (gpu < 0) return result;
  memory_of(gpu, &memory->total, &memory->used, &memory->free);
  return NVML_SUCCESS;
}

GUARD_EXPORT nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, nvmlMemoryV2* memory) {
  REAL_NVML_OF(nvmlDeviceGetMemoryInfo_v2)
  const nvmlReturn result = real(device, memory);
  const int gpu = result == NVML_SUCCESS ? gpu_of(device) : LEASE_GPU_UNCOUNTED;
  if (gpu < 0) return result;
  memory_of(gpu, &memory->total, &memory->used, &memory->free);
  memory->reserved = 0;  // the driver's reserve is nobody's part
  return NVML_SUCCESS;
}

// --- processes
// ----------------------------------------------------------------------------------------------------

struct Own {
  int32_t pids[TRANCHE_GUARD_MAX_PROCESSES];
  int count;  // -1: not known, nothing is shown
};

static void know_own(struct Own* own) { own->count = lease_pids(own->pids, TRANCHE_GUARD_MAX_PROCESSES); }

static bool is_own(const struct Own* own, uint32_t pid) {
  int low = 0, high = own->count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (own->pids[middle] < (int32_t)pid) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < own->count && own->pids[low] == (int32_t)pid;
}

// Keeps the entries of the task's own processes, in their order. `pid_at`: where an entry has its pid.
static uint32_t keep_own(void* entries, uint32_t count, size_t size, size_t pid_at) {
  struct Own own;
  know_own(&own);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const char* entry = (const char*)entries + i * size;
    uint32_t pid = 0;
    memcpy(&pid, entry + pid_at, sizeof pid);
    if (!is_own(&own, pid)) continue;
    if (kept != i) memcpy((char*)entries + kept * size, entry, size);
    ++kept;
  }
  return kept;
}

typedef nvmlReturn (*List)(nvmlDevice, uint32_t*, void*);
enum { FIRST_ROOM = 256, MOST_ROOM = 1 << 16 };

// All of the driver's list, however little room the caller has. The caller frees `entries`.
static nvmlReturn whole_list(List real, nvmlDevice device, size_t size, void** entries, uint32_t* count) {
  nvmlReturn result = NVML_ERROR_INSUFFICIENT_SIZE;
  for (uint32_t room = FIRST_ROOM; room <= MOST_ROOM && result == NVML_ERROR_INSUFFICIENT_SIZE; room *= 4) {
    free(*entries);
    *entries = calloc(room, size);
    *count = room;
    if (*entries == 0) return result;
    result = real(device, count, *entries);
  }
  return result;
}

static nvmlReturn list_own(List real, nvmlDevice device, uint32_t* count, void* entries, size_t size) {
  if (count == 0 || gpu_of(device) == LEASE_GPU_UNCOUNTED) return real(device, count, entries);
  void* all = 0;
  uint32_t found = 0;
  nvmlReturn result = whole_list(real, device, size, &all, &found);
  if (result == NVML_SUCCESS) {
    const uint32_t kept = keep_own(all, found, size, 0);
    const bool fits = kept <= *count && (kept == 0 || entries != 0);
    if (fits && kept != 0) memcpy(entries, all, kept * size);
    if (!fits) result = NVML_ERROR_INSUFFICIENT_SIZE;
    *count = kept;
  }
  free(all);
  return result;
}

#define PROCESS_LIST(name, type)                                                   \
  GUARD_EXPORT nvmlReturn name(nvmlDevice device, uint32_t* count, type* entries); \
  nvmlReturn name(nvmlDevice device, uint32_t* count, type* entries) {             \
    REAL_NVML_OF(name)                                                             \
    return list_own((List)(void*)real, device, count, entries, sizeof(type));      \
  }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfoV1)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfoV2)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfoV2)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfoV1)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfoV2)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfoV2)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfoV1)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfoV2)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfoV2)

// Lists whose array the caller gives in a struct: filled by the driver, then thinned out in place.
GUARD_EXPORT nvmlReturn nvmlDeviceGetRunningProcessDetailList(nvmlDevice device,
                                                              nvmlProcessDetailList* list) {
  REAL_NVML_OF(nvmlDeviceGetRunningProcessDetailList)
  const nvmlReturn result = real(device, list);
  if (result != NVML_SUCCESS || list->processes == 0 || gpu_of(device) == LEASE_GPU_UNCOUNTED) return result;
  list->count = keep_own(list->processes, list->count, sizeof *list->processes, 0);
  return NVML_SUCCESS;
}

GUARD_EXPORT nvmlReturn nvmlDeviceGetProcessUtilization(nvmlDevice device,
                                                        nvmlProcessUtilizationSample* samples,
                                                        uint32_t* count, unsigned long long last_seen_us) {
  REAL_NVML_OF(nvmlDeviceGetProcessUtilization)
  const nvmlReturn result = real(device, samples, count, last_seen_us);
  if (result != NVML_SUCCESS || samples == 0 || gpu_of(device) == LEASE_GPU_UNCOUNTED) return result;
  *count = keep_own(samples, *count, sizeof *samples, 0);
  return NVML_SUCCESS;
}

GUARD_EXPORT nvmlReturn nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice device,
                                                              nvmlProcessesUtilization* list) {
  REAL_NVML_OF(nvmlDeviceGetProcessesUtilizationInfo)
  const nvmlReturn result = real(device, list);
  if (result != NVML_SUCCESS || list->processes == 0 || gpu_of(device) == LEASE_GPU_UNCOUNTED) return result;
  list->count = keep_own(list->processes, list->count, sizeof *list->processes,
                         offsetof(nvmlProcessUtilizationInfo, pid));
  return NVML_SUCCESS;
}
