#include "guard/devices.h"

#include "guard/lease.h"
#include "guard/real_library.h"

enum { MAX_DEVICES = 64 };

static int gpus[MAX_DEVICES];
static int device_count;  // 0: not known yet
static int only_gpu;      // valid when there is one device: no question about contexts then

// Before cuInit the driver knows no devices, and every call that could allocate fails in the driver.
static bool know_devices(void) {
  if (__atomic_load_n(&device_count, __ATOMIC_ACQUIRE) > 0) return true;
  CUresult (*count_of)(int*) = 0;
  CUresult (*uuid_of)(CUuuid*, CUdevice) = 0;
  *(void**)&count_of = real_cuda("cuDeviceGetCount");
  *(void**)&uuid_of = real_cuda("cuDeviceGetUuid_v2");  // a MIG instance's own, where there are instances
  if (uuid_of == 0) *(void**)&uuid_of = real_cuda("cuDeviceGetUuid");
  int count = 0;
  if (count_of == 0 || uuid_of == 0 || count_of(&count) != CUDA_SUCCESS || count <= 0) return false;
  if (count > MAX_DEVICES) count = MAX_DEVICES;
  for (int device = 0; device < count; ++device) {
    CUuuid uuid;
    if (uuid_of(&uuid, device) != CUDA_SUCCESS) return false;
    const int gpu = lease_gpu_of(uuid.bytes);
    if (gpu == LEASE_GPU_UNKNOWN) return false;
    gpus[device] = gpu;
  }
  only_gpu = gpus[0];
  __atomic_store_n(&device_count, count, __ATOMIC_RELEASE);
  return true;
}

int gpu_of_device(CUdevice device) {
  if (!know_devices()) return LEASE_GPU_UNKNOWN;
  return device < 0 || device >= device_count ? LEASE_GPU_UNCOUNTED : gpus[device];
}

int gpu_of_current_context(void) {
  if (!know_devices()) return LEASE_GPU_UNKNOWN;
  if (device_count == 1) return only_gpu;
  static CUresult (*device_of)(CUdevice*);
  if (device_of == 0) *(void**)&device_of = real_cuda("cuCtxGetDevice");
  CUdevice device = 0;
  // Without a context the call fails in the driver.
  return device_of != 0 && device_of(&device) == CUDA_SUCCESS ? gpu_of_device(device) : LEASE_GPU_UNCOUNTED;
}

CUresult refusal_of(int gpu) {
  CUresult (*count_of)(int*) = 0;
  int count = 0;
  if (gpu == LEASE_GPU_UNKNOWN) *(void**)&count_of = real_cuda("cuDeviceGetCount");
  const CUresult driver = count_of == 0 ? CUDA_SUCCESS : count_of(&count);
  return driver == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : driver;
}

CUdevice device_of_gpu(int gpu) {
  for (CUdevice device = 0; know_devices() && device < device_count; ++device) {
    if (gpus[device] == gpu) return device;
  }
  return -1;
}
