/* Sizes and places of what the guard reads of the driver's structs, and numbers that it compares: printed
   from the vendor's headers (-DVENDOR_CUDA, -DVENDOR_NVML) or from the guard's own declarations; the two must
   be alike. */
#include <stdio.h>
#if defined(VENDOR_CUDA)
#include <cuda.h>
#define OF(vendor, own) vendor
#elif defined(VENDOR_NVML)
#include <nvml.h>
#define OF(vendor, own) vendor
#else
#include "guard/abi.h"
#define OF(vendor, own) own
#endif
#include <stddef.h>
#define SIZE(vendor, own) printf(#vendor " %zu\n", sizeof(OF(vendor, own)))
#define AT(vendor, field, own, own_field)                                                  \
  printf(#vendor "." #field " %zu %zu\n", offsetof(OF(vendor, own), OF(field, own_field)), \
         sizeof(((OF(vendor, own)*)0)->OF(field, own_field)))
#define NUMBER(name) printf(#name " %d\n", (int)name)

static void cuda(void) {
#ifndef VENDOR_NVML
  SIZE(CUdeviceptr, CUdeviceptr);
  SIZE(CUdevice, CUdevice);
  SIZE(CUuuid, CUuuid);
  SIZE(CUmemGenericAllocationHandle, CUmemHandle);
  AT(CUmemAllocationProp, location, CUmemAllocationProp, location);
  AT(CUmemLocation, type, CUmemLocation, type);
  AT(CUmemLocation, id, CUmemLocation, id);
  AT(CUDA_ARRAY_DESCRIPTOR, Width, CUDA_ARRAY_DESCRIPTOR, width);
  AT(CUDA_ARRAY_DESCRIPTOR, Format, CUDA_ARRAY_DESCRIPTOR, format);
  AT(CUDA_ARRAY_DESCRIPTOR, NumChannels, CUDA_ARRAY_DESCRIPTOR, channels);
  AT(CUDA_ARRAY3D_DESCRIPTOR, Depth, CUDA_ARRAY3D_DESCRIPTOR, depth);
  AT(CUDA_ARRAY3D_DESCRIPTOR, Format, CUDA_ARRAY3D_DESCRIPTOR, format);
  AT(CUDA_ARRAY3D_DESCRIPTOR, NumChannels, CUDA_ARRAY3D_DESCRIPTOR, channels);
  AT(CUDA_ARRAY3D_DESCRIPTOR, Flags, CUDA_ARRAY3D_DESCRIPTOR, flags);
  SIZE(CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS);
  AT(CUDA_MEM_ALLOC_NODE_PARAMS, poolProps, CUDA_MEM_ALLOC_NODE_PARAMS, pool);
  AT(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize, CUDA_MEM_ALLOC_NODE_PARAMS, bytes);
  AT(CUmemPoolProps, location, CUmemPoolProps, location);
  NUMBER(CUDA_SUCCESS);
  NUMBER(CUDA_ERROR_INVALID_VALUE);
  NUMBER(CUDA_ERROR_OUT_OF_MEMORY);
  NUMBER(CUDA_ERROR_NOT_FOUND);
  NUMBER(CU_MEM_LOCATION_TYPE_DEVICE);
  NUMBER(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  NUMBER(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  NUMBER(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  NUMBER(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  NUMBER(CU_GRAPH_NODE_TYPE_GRAPH);
  NUMBER(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
#endif
}

static void nvml(void) {
#ifndef VENDOR_CUDA
  SIZE(nvmlMemory_t, nvmlMemory);
  AT(nvmlMemory_t, free, nvmlMemory, free);
  SIZE(nvmlMemory_v2_t, nvmlMemoryV2);
  AT(nvmlMemory_v2_t, reserved, nvmlMemoryV2, reserved);
  AT(nvmlMemory_v2_t, free, nvmlMemoryV2, free);
  AT(nvmlMemory_v2_t, used, nvmlMemoryV2, used);
  SIZE(nvmlProcessInfo_v1_t, nvmlProcessInfoV1);
  AT(nvmlProcessInfo_v1_t, usedGpuMemory, nvmlProcessInfoV1, used);
  SIZE(nvmlProcessInfo_v2_t, nvmlProcessInfoV2);
  AT(nvmlProcessInfo_v2_t, usedGpuMemory, nvmlProcessInfoV2, used);
  SIZE(nvmlProcessDetail_v1_t, nvmlProcessDetail);
  SIZE(nvmlProcessDetailList_v1_t, nvmlProcessDetailList);
  AT(nvmlProcessDetailList_v1_t, numProcArrayEntries, nvmlProcessDetailList, count);
  AT(nvmlProcessDetailList_v1_t, procArray, nvmlProcessDetailList, processes);
  SIZE(nvmlProcessUtilizationSample_t, nvmlProcessUtilizationSample);
  SIZE(nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationInfo);
  AT(nvmlProcessUtilizationInfo_v1_t, pid, nvmlProcessUtilizationInfo, pid);
  SIZE(nvmlProcessesUtilizationInfo_v1_t, nvmlProcessesUtilization);
  AT(nvmlProcessesUtilizationInfo_v1_t, processSamplesCount, nvmlProcessesUtilization, count);
  AT(nvmlProcessesUtilizationInfo_v1_t, procUtilArray, nvmlProcessesUtilization, processes);
  NUMBER(NVML_SUCCESS);
  NUMBER(NVML_ERROR_INVALID_ARGUMENT);
  NUMBER(NVML_ERROR_INSUFFICIENT_SIZE);
#endif
}

int main(void) {
  cuda();
  nvml();
  return 0;
}
