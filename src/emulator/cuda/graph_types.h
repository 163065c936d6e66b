// Structures of the driver API about launches and graphs. Layouts are the ABI's (checked against the vendor's
// headers by tests/abi); names are ours.
#pragma once

#include "emulator/cuda/memory_types.h"

namespace tranche::emulator::cuda {

struct CUDA_LAUNCH_PARAMS {
  CUfunction function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  void** parameters;
};

// CUgraphNodeType.
enum class NodeType : int {
  kernel = 0,
  copy = 1,
  fill = 2,
  host = 3,
  graph = 4,
  empty = 5,
  wait_event = 6,
  record_event = 7,
  signal_semaphore = 8,
  wait_semaphore = 9,
  allocate = 10,
  free = 11,
  words = 12,  // batch of operations on words of memory
  conditional = 13
};

struct CUDA_KERNEL_NODE_PARAMS_v1 {
  CUfunction function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
};
struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  CUkernel kernel;
  CUcontext context;
};

struct CUDA_MEMSET_NODE_PARAMS {
  CUdeviceptr target;
  size_t pitch;
  unsigned value;
  unsigned element_bytes;
  size_t width, height;
};

struct CUDA_HOST_NODE_PARAMS {
  CUhostFn function;
  void* data;
};

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps pool;
  const CUmemAccessDesc* access;
  size_t access_count;
  size_t bytes;
  CUdeviceptr address;
};

struct CUDA_BATCH_MEM_OP_NODE_PARAMS {
  CUcontext context;
  unsigned count;
  CUstreamBatchMemOpParams* operations;
  unsigned flags;
};

struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
  CUexternalSemaphore* semaphores;
  const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* parameters;
  unsigned count;
};
struct CUDA_EXT_SEM_WAIT_NODE_PARAMS {
  CUexternalSemaphore* semaphores;
  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* parameters;
  unsigned count;
};

// The parameters of a node of any type (256 bytes): which of them `type` says.
struct CUgraphNodeParams {
  NodeType type;
  int reserved0[3];
  union {
    CUDA_KERNEL_NODE_PARAMS kernel;
    struct {
      int flags, reserved;
      CUcontext context;
      CUDA_MEMCPY3D request;
    } copy;
    struct {
      CUDA_MEMSET_NODE_PARAMS request;
      CUcontext context;
    } fill;
    CUDA_HOST_NODE_PARAMS host;
    struct {
      CUgraph graph;
      int ownership;
    } child;
    CUevent event;
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signal;
    CUDA_EXT_SEM_WAIT_NODE_PARAMS wait;
    CUDA_MEM_ALLOC_NODE_PARAMS allocate;
    CUdeviceptr free;
    CUDA_BATCH_MEM_OP_NODE_PARAMS words;
    char bytes[232];
  };
  long long reserved2;
};

struct CUgraphEdgeData {
  unsigned char from_port, to_port, type;
  unsigned char reserved[5];
};

struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  uint64_t flags;
  CUstream upload_stream;
  CUgraphNode error_node;
  int result;
};

struct CUgraphExecUpdateResultInfo {
  int result;
  CUgraphNode error_node, error_from_node;
};

}  // namespace tranche::emulator::cuda
