// What the guard uses of NVIDIA's public C interfaces, declared here because Debian has no cuda.h or nvml.h.
// Layouts and numbers are those of the vendor's headers; tests/guard holds them against every version
// fetched.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GUARD_EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void* CUcontext;
typedef void* CUstream;
typedef void* CUmodule;
typedef void* CUlibrary;
typedef void* CUfunction;
typedef void* CUkernel;
typedef void* CUevent;
typedef void* CUarray;
typedef void* CUmipmappedArray;
typedef void* CUmemoryPool;
typedef void* CUgraph;
typedef void* CUgraphNode;
typedef void* CUgraphExec;
typedef uint64_t CUmemHandle;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_FOUND = 500,
};

typedef struct {
  uint8_t bytes[16];
} CUuuid;

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };

typedef struct {
  int type;
  int id;
} CUmemLocation;

typedef struct {
  int type;
  int handle_types;
  CUmemLocation location;
  void* win32;
  uint8_t flags[8];
} CUmemAllocationProp;

typedef struct {
  int alloc_type;
  int handle_types;
  CUmemLocation location;
  void* win32;
  size_t max_size;
  uint16_t usage;
  uint8_t reserved[54];
} CUmemPoolProps;

enum {
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
  CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_GRAPH_NODE_TYPE_GRAPH = 4,
  CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
};

typedef struct {
  size_t width;
  size_t height;
  int format;
  unsigned channels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
  size_t width;
  size_t height;
  size_t depth;
  int format;
  unsigned channels;
  unsigned flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
  CUmemPoolProps pool;
  const void* access;
  size_t access_count;
  size_t bytes;
  CUdeviceptr address;
} CUDA_MEM_ALLOC_NODE_PARAMS;

// NVML.
typedef int nvmlReturn;
typedef void* nvmlDevice;

enum { NVML_SUCCESS = 0, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_INSUFFICIENT_SIZE = 7 };
#define NVML_VALUE_NOT_AVAILABLE UINT64_MAX

typedef struct {
  uint64_t total;
  uint64_t free;
  uint64_t used;
} nvmlMemory;

typedef struct {
  uint32_t version;
  uint64_t total;
  uint64_t reserved;
  uint64_t free;
  uint64_t used;
} nvmlMemoryV2;

typedef struct {
  uint32_t pid;
  uint64_t used;
} nvmlProcessInfoV1;

typedef struct {
  uint32_t pid;
  uint64_t used;
  uint32_t gpu_instance;
  uint32_t compute_instance;
} nvmlProcessInfoV2;

typedef struct {
  uint32_t pid;
  uint64_t used;
  uint32_t gpu_instance;
  uint32_t compute_instance;
  uint64_t used_protected;
} nvmlProcessDetail;

typedef struct {
  uint32_t version;
  uint32_t mode;
  uint32_t count;
  nvmlProcessDetail* processes;
} nvmlProcessDetailList;

typedef struct {
  uint32_t pid;
  uint64_t timestamp_us;
  uint32_t sm;
  uint32_t memory;
  uint32_t encoder;
  uint32_t decoder;
} nvmlProcessUtilizationSample;

typedef struct {
  uint64_t timestamp_us;
  uint32_t pid;
  uint32_t sm;
  uint32_t memory;
  uint32_t encoder;
  uint32_t decoder;
  uint32_t jpeg;
  uint32_t optical_flow;
} nvmlProcessUtilizationInfo;

typedef struct {
  uint32_t version;
  uint32_t count;
  uint64_t last_seen_us;
  nvmlProcessUtilizationInfo* processes;
} nvmlProcessesUtilization;
