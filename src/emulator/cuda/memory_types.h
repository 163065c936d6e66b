// Structures of the driver API about memory: pools, virtual memory, arrays, copies, handles between
// processes. Layouts are the ABI's (checked against the vendor's headers by tests/abi); names are ours.
#pragma once

#include "emulator/cuda/cuda_api.h"

namespace tranche::emulator::cuda {

// CUmemLocationType.
inline constexpr int kLocationDevice = 1;
inline constexpr int kLocationHost = 2;
inline constexpr int kLocationHostNuma = 3;
inline constexpr int kLocationHostNumaCurrent = 4;

struct CUmemLocation {
  int type;
  int id;
};

// CUmemAllocationType and CUmemAllocationHandleType.
inline constexpr int kAllocationPinned = 1;
inline constexpr int kAllocationManaged = 2;
inline constexpr int kHandleNone = 0;
inline constexpr int kHandleFile = 1;
inline constexpr int kHandleFabric = 8;

struct CUmemAllocationProp {
  int type;
  int handle_types;
  CUmemLocation location;
  void* metadata;
  unsigned char compression;
  unsigned char direct_access;  // for other devices on the bus
  unsigned short usage;
  unsigned char reserved[4];
};

// CUmemAccess_flags.
inline constexpr int kAccessNone = 0;
inline constexpr int kAccessRead = 1;
inline constexpr int kAccessReadWrite = 3;

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};

struct CUmemPoolProps {
  int allocation_type;
  int handle_types;
  CUmemLocation location;
  void* security;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};

struct CUmemPoolPtrExportData {
  unsigned char bytes[64];
};

struct CUipcMemHandle {
  char bytes[64];
};
struct CUipcEventHandle {
  char bytes[64];
};

struct CUDA_ARRAY_DESCRIPTOR {
  size_t width, height;
  int format;
  unsigned channels;
};
struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned width, height;
  int format;
  unsigned channels;
};
struct CUDA_ARRAY3D_DESCRIPTOR {
  size_t width, height, depth;
  int format;
  unsigned channels;
  unsigned flags;
};
struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned width, height, depth;
  int format;
  unsigned channels;
  unsigned flags;
};
struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
  size_t size, alignment;
  unsigned reserved[4];
};
struct CUDA_ARRAY_SPARSE_PROPERTIES {
  unsigned tile_width, tile_height, tile_depth;
  unsigned tail_first_level;
  unsigned long long tail_size;
  unsigned flags;
  unsigned reserved[4];
};

// One side of a copy in two or three dimensions as our code sees it, whatever structure it came in.
struct CUDA_MEMCPY2D_v1 {
  unsigned source_x, source_y;
  CUmemorytype source_type;
  const void* source_host;
  CUdeviceptr_v1 source_device;
  CUarray source_array;
  unsigned source_pitch;
  unsigned target_x, target_y;
  CUmemorytype target_type;
  void* target_host;
  CUdeviceptr_v1 target_device;
  CUarray target_array;
  unsigned target_pitch;
  unsigned width, height;
};
struct CUDA_MEMCPY3D {
  size_t source_x, source_y, source_z, source_level;
  CUmemorytype source_type;
  const void* source_host;
  CUdeviceptr source_device;
  CUarray source_array;
  void* source_context;  // of copies between peers; unused otherwise
  size_t source_pitch, source_height;
  size_t target_x, target_y, target_z, target_level;
  CUmemorytype target_type;
  void* target_host;
  CUdeviceptr target_device;
  CUarray target_array;
  void* target_context;
  size_t target_pitch, target_height;
  size_t width, height, depth;
};
struct CUDA_MEMCPY3D_v1 {
  unsigned source_x, source_y, source_z, source_level;
  CUmemorytype source_type;
  const void* source_host;
  CUdeviceptr_v1 source_device;
  CUarray source_array;
  void* reserved0;
  unsigned source_pitch, source_height;
  unsigned target_x, target_y, target_z, target_level;
  CUmemorytype target_type;
  void* target_host;
  CUdeviceptr_v1 target_device;
  CUarray target_array;
  void* reserved1;
  unsigned target_pitch, target_height;
  unsigned width, height, depth;
};

struct CUmemcpyAttributes {
  int order;
  CUmemLocation source_hint, target_hint;
  unsigned flags;
};

struct CUoffset3D {
  size_t x, y, z;
};
struct CUextent3D {
  size_t width, height, depth;
};

// One side of a copy of a batch: a pointer (type 1) or an array (type 2).
struct CUmemcpy3DOperand {
  int type;
  union {
    struct {
      CUdeviceptr address;
      size_t row_length, layer_height;
      CUmemLocation hint;
    } pointer;
    struct {
      CUarray array;
      CUoffset3D offset;
    } array;
  };
};
struct CUDA_MEMCPY3D_BATCH_OP {
  CUmemcpy3DOperand source, target;
  CUextent3D extent;
  int order;
  unsigned flags;
};

// CUmemRangeHandleType, CUmem_range_attribute and the rest are numbers where they are used.

struct CUmulticastObjectProp {
  unsigned devices;
  size_t size;
  unsigned long long handle_types;
  unsigned long long flags;
};

struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  int type;
  union {
    int file;
    struct {
      void* handle;
      const void* name;
    } windows;
    const void* object;
  };
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
};
struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
  unsigned long long offset, size;
  unsigned flags;
  unsigned reserved[16];
};
struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
  unsigned long long offset;
  CUDA_ARRAY3D_DESCRIPTOR array;
  unsigned levels;
  unsigned reserved[16];
};
struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
  int type;
  union {
    int file;
    struct {
      void* handle;
      const void* name;
    } windows;
    const void* object;
  };
  unsigned flags;
  unsigned reserved[16];
};
// Of 144 bytes each; only the value of a fence is looked at.
struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
  unsigned long long fence_value;
  unsigned char other[136];
};
struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
  unsigned long long fence_value;
  unsigned char other[136];
};

// An operation on a word of memory in a stream (48 bytes); which one `operation` says.
struct CUstreamBatchMemOpParams {
  int operation;
  unsigned reserved;
  CUdeviceptr address;
  uint64_t value;  // the low half for operations of 32 bits
  unsigned flags;
  unsigned padding;
  CUdeviceptr alias;
  uint64_t rest;
};

}  // namespace tranche::emulator::cuda
