// tranche-gpu-proof: what holds on this machine's GPUs, tried out. Whoever starts Tranche runs it
// (tranche-up):
//
//   tranche-gpu-proof list         the UUID of each GPU, a line each
//   tranche-gpu-proof release      `driver` and its release
//   tranche-gpu-proof contexts     UUID and bytes that one context takes, without the guard
//   tranche-gpu-proof fences MIB   under the guard with a limit of MIB on each GPU: UUID and `held`, or what
//   was not; before them `driver` and its release
//   tranche-gpu-proof driver MIB   without the guard, in a cgroup that the driver itself limits to MIB on
//   each GPU: UUID and `enforced`, or what was not
//
// It takes memory for a moment on each GPU and leaves nothing. Libraries are found as programs find them.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guard/abi.h"

enum { MOST_BLOCKS = 4096, MOST_PROCESSES = 4096, UUID_TEXT = 96 };

static CUresult (*device_count)(int*);
static CUresult (*uuid_of)(CUuuid*, CUdevice);
static CUresult (*total_of)(size_t*, CUdevice);
static CUresult (*create_context)(CUcontext*, unsigned, CUdevice);
static CUresult (*destroy_context)(CUcontext);
static CUresult (*memory_info)(size_t*, size_t*);
static CUresult (*allocate)(CUdeviceptr*, size_t);
static CUresult (*release)(CUdeviceptr);
static nvmlReturn (*device_of_uuid)(const char*, nvmlDevice*);
static nvmlReturn (*nvml_memory)(nvmlDevice, nvmlMemory*);
static nvmlReturn (*nvml_processes)(nvmlDevice, uint32_t*, nvmlProcessInfoV2*);
static nvmlReturn (*driver_version)(char*, unsigned);

static bool find(void* library, const char* name, void* function) {
  *(void**)function = library == 0 ? 0 : dlsym(library, name);
  return *(void**)function != 0;
}

static bool load(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  CUresult (*init)(unsigned) = 0;
  nvmlReturn (*nvml_init)(void) = 0;
  bool found =
      find(cuda, "cuInit", &init) && find(cuda, "cuDeviceGetCount", &device_count) &&
      (find(cuda, "cuDeviceGetUuid_v2", &uuid_of) || find(cuda, "cuDeviceGetUuid", &uuid_of)) &&
      find(cuda, "cuDeviceTotalMem_v2", &total_of) && find(cuda, "cuCtxCreate_v2", &create_context) &&
      find(cuda, "cuCtxDestroy_v2", &destroy_context) && find(cuda, "cuMemGetInfo_v2", &memory_info) &&
      find(cuda, "cuMemAlloc_v2", &allocate) && find(cuda, "cuMemFree_v2", &release);
  found = found && find(nvml, "nvmlInit_v2", &nvml_init) &&
          find(nvml, "nvmlDeviceGetHandleByUUID", &device_of_uuid) &&
          find(nvml, "nvmlSystemGetDriverVersion", &driver_version) &&
          find(nvml, "nvmlDeviceGetMemoryInfo", &nvml_memory);
  if (found && !find(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml_processes)) {
    found = find(nvml, "nvmlDeviceGetComputeRunningProcesses_v2", &nvml_processes);
  }
  return found && init(0) == CUDA_SUCCESS && nvml_init() == NVML_SUCCESS;
}

static bool name_device(CUdevice device, char text[UUID_TEXT]) {
  CUuuid uuid;
  if (uuid_of(&uuid, device) != CUDA_SUCCESS) return false;
  int length = snprintf(text, UUID_TEXT, "GPU-");
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    length += snprintf(text + length, (size_t)(UUID_TEXT - length), "%s%02x", dash ? "-" : "", uuid.bytes[i]);
  }
  return true;
}

// What the management library says that this process holds; 0: it does not say.
static uint64_t own_memory(nvmlDevice device) {
  static nvmlProcessInfoV2 processes[MOST_PROCESSES];
  uint32_t count = MOST_PROCESSES;
  if (nvml_processes(device, &count, processes) != NVML_SUCCESS) return 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (processes[i].pid == (uint32_t)getpid() && processes[i].used != NVML_VALUE_NOT_AVAILABLE)
      return processes[i].used;
  }
  return 0;
}

static void tell_context(CUdevice device, const char* uuid) {
  nvmlDevice handle = 0;
  CUcontext context = 0;
  if (device_of_uuid(uuid, &handle) != NVML_SUCCESS || create_context(&context, 0, device) != CUDA_SUCCESS)
    return;
  const uint64_t bytes = own_memory(handle);
  destroy_context(context);
  if (bytes != 0) printf("%s %llu\n", uuid, (unsigned long long)bytes);
}

// Takes memory until it is refused. Returns what refused it, and gives everything back.
static CUresult fill(size_t step, size_t most, size_t* taken) {
  static CUdeviceptr blocks[MOST_BLOCKS];
  int count = 0;
  CUresult result = CUDA_SUCCESS;
  *taken = 0;
  while (count < MOST_BLOCKS && *taken <= most && (result = allocate(&blocks[count], step)) == CUDA_SUCCESS) {
    *taken += step;
    ++count;
  }
  while (count > 0) release(blocks[--count]);
  return result;
}

// Null: it holds.
static const char* fault_of(CUdevice device, const char* uuid, size_t limit) {
  nvmlDevice handle = 0;
  nvmlMemory seen;
  CUcontext context = 0;
  size_t total = 0;
  size_t left = 0;
  size_t taken = 0;
  if (total_of(&total, device) != CUDA_SUCCESS || total != limit)
    return "the device's total is not the limit";
  if (device_of_uuid(uuid, &handle) != NVML_SUCCESS || nvml_memory(handle, &seen) != NVML_SUCCESS) {
    return "the management library does not answer";
  }
  if (seen.total != limit) return "the management library's total is not the limit";
  if (create_context(&context, 0, device) != CUDA_SUCCESS)
    return "no context could be made: is the GPU full?";
  const char* fault = 0;
  if (memory_info(&left, &total) != CUDA_SUCCESS || total != limit || left >= limit) {
    fault = "free memory is not the limit less what is charged";
  } else if (nvml_memory(handle, &seen) != NVML_SUCCESS || seen.free != left) {
    fault = "the two libraries tell different free memory";
  } else if (fill((size_t)2 << 20, limit, &taken) != CUDA_ERROR_OUT_OF_MEMORY || taken > left) {
    fault = "memory beyond the limit was given";
  } else if (taken + ((size_t)2 << 20) <= left) {
    fault = "memory within the limit was refused: is the GPU full?";
  }
  destroy_context(context);
  return fault;
}

// The same for a limit that the driver holds. What it keeps of it for itself is its own affair.
static const char* driver_fault_of(CUdevice device, size_t limit) {
  CUcontext context = 0;
  size_t taken = 0;
  if (create_context(&context, 0, device) != CUDA_SUCCESS)
    return "no context could be made: is the GPU full?";
  const char* fault = 0;
  if (fill((size_t)2 << 20, limit, &taken) != CUDA_ERROR_OUT_OF_MEMORY || taken > limit) {
    fault = "the driver gave memory beyond the limit";
  } else if (taken < limit / 4) {
    fault = "memory within the limit was refused: is the GPU full?";
  }
  destroy_context(context);
  return fault;
}

static void tell_driver(void) {
  char version[UUID_TEXT] = "";
  if (driver_version(version, sizeof version) == NVML_SUCCESS) printf("driver %s\n", version);
}

int main(int argc, char** argv) {
  const bool fences = argc == 3 && strcmp(argv[1], "fences") == 0;
  const bool driver = argc == 3 && strcmp(argv[1], "driver") == 0;
  const bool contexts = argc == 2 && strcmp(argv[1], "contexts") == 0;
  const bool release_only = argc == 2 && strcmp(argv[1], "release") == 0;
  if (!fences && !driver && !contexts && !release_only && !(argc == 2 && strcmp(argv[1], "list") == 0)) {
    fputs("usage: tranche-gpu-proof list|release|contexts|fences MIB|driver MIB\n", stderr);
    return 2;
  }
  int count = 0;
  if (!load() || device_count(&count) != CUDA_SUCCESS) return fputs("no NVIDIA driver answers\n", stderr), 1;
  if (fences || release_only) tell_driver();
  if (release_only) return 0;
  for (CUdevice device = 0; device < count; ++device) {
    char uuid[UUID_TEXT];
    if (!name_device(device, uuid)) continue;
    if (contexts) {
      tell_context(device, uuid);
    } else if (driver) {
      const char* fault = driver_fault_of(device, (size_t)strtoull(argv[2], 0, 10) << 20);
      printf("%s %s\n", uuid, fault == 0 ? "enforced" : fault);
    } else if (fences) {
      const char* fault = fault_of(device, uuid, (size_t)strtoull(argv[2], 0, 10) << 20);
      printf("%s %s\n", uuid, fault == 0 ? "held" : fault);
    } else {
      puts(uuid);
    }
  }
  return 0;
}
