// Graphs that allocate: what their nodes will take is read from the graph when it is instantiated, and
// refused there, not at a launch. Memory of graphs that is still allocated when they are gone, or that the
// driver keeps of it, is charged until it is freed and trimmed.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/lease.h"
#include "guard/real_library.h"
#include "wire/guard.h"

enum { MOST_DEPTH = 16 };

struct Executable {
  CUgraphExec handle;
  uint64_t needs[TRANCHE_GUARD_MAX_GPUS];  // bytes of its allocation nodes
  struct Executable* next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct Executable* executables;
static uint64_t charged[TRANCHE_GUARD_MAX_GPUS];

// --- what a graph needs
// ------------------------------------------------------------------------------------------

static bool add_node(CUgraphNode node, uint64_t* needs, int depth);

static bool add_graph(CUgraph graph, uint64_t* needs, int depth) {
  CUresult (*nodes_of)(CUgraph, CUgraphNode*, size_t*) = 0;
  *(void**)&nodes_of = real_cuda("cuGraphGetNodes");
  size_t count = 0;
  if (nodes_of == 0 || depth > MOST_DEPTH || nodes_of(graph, 0, &count) != CUDA_SUCCESS) return true;
  CUgraphNode* nodes = count == 0 ? 0 : calloc(count, sizeof *nodes);
  bool good = count == 0 || (nodes != 0 && nodes_of(graph, nodes, &count) == CUDA_SUCCESS);
  for (size_t i = 0; i < count && good; ++i) good = add_node(nodes[i], needs, depth);
  free(nodes);
  return good;
}

static bool add_node(CUgraphNode node, uint64_t* needs, int depth) {
  CUresult (*type_of)(CUgraphNode, int*) = 0;
  CUresult (*parameters_of)(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS*) = 0;
  CUresult (*child_of)(CUgraphNode, CUgraph*) = 0;
  *(void**)&type_of = real_cuda("cuGraphNodeGetType");
  *(void**)&parameters_of = real_cuda("cuGraphMemAllocNodeGetParams");
  *(void**)&child_of = real_cuda("cuGraphChildGraphNodeGetGraph");
  int type = -1;
  if (type_of == 0 || type_of(node, &type) != CUDA_SUCCESS) return true;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = 0;
    return child_of == 0 || child_of(node, &child) != CUDA_SUCCESS || add_graph(child, needs, depth + 1);
  }
  CUDA_MEM_ALLOC_NODE_PARAMS parameters;
  memset(&parameters, 0, sizeof parameters);
  if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || parameters_of == 0) return true;
  if (parameters_of(node, &parameters) != CUDA_SUCCESS) return true;
  const int gpu = gpu_of_device(parameters.pool.location.id);
  if (gpu < 0) return gpu == LEASE_GPU_UNCOUNTED;
  uint64_t bytes = parameters.bytes;
  if (bytes > UINT64_MAX - BLOCK_PAGE) return false;
  bytes = (bytes + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
  return !__builtin_add_overflow(needs[gpu], bytes, &needs[gpu]);
}

// --- what is charged
// -----------------------------------------------------------------------------------------------

static uint64_t kept_by_driver(int gpu) {
  static CUresult (*attribute_of)(CUdevice, int, void*);
  if (attribute_of == 0) *(void**)&attribute_of = real_cuda("cuDeviceGetGraphMemAttribute");
  uint64_t bytes = 0;
  if (attribute_of == 0) return 0;
  const CUresult result = attribute_of(device_of_gpu(gpu), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
  return result == CUDA_SUCCESS ? bytes : 0;
}

uint64_t graphs_early(int gpu) {
  const uint64_t known = __atomic_load_n(&charged[gpu], __ATOMIC_ACQUIRE);
  const uint64_t kept = known == 0 ? 0 : kept_by_driver(gpu);
  return known > kept ? known - kept : 0;
}

// With the mutex held. False: there is no room for what is needed.
static bool settle(int gpu) {
  uint64_t wanted = 0;
  for (const struct Executable* executable = executables; executable != 0; executable = executable->next) {
    wanted += executable->needs[gpu];
  }
  const uint64_t kept = kept_by_driver(gpu);
  if (kept > wanted) wanted = kept;
  if (wanted > charged[gpu] && !charge_more(gpu, wanted - charged[gpu])) return false;
  if (wanted < charged[gpu]) charge_less(gpu, charged[gpu] - wanted);
  __atomic_store_n(&charged[gpu], wanted, __ATOMIC_RELEASE);
  return true;
}

static bool settle_all(void) {
  bool good = true;
  for (int gpu = 0; gpu < TRANCHE_GUARD_MAX_GPUS; ++gpu) {
    if (device_of_gpu(gpu) >= 0) good = settle(gpu) && good;
  }
  return good;
}

// What an executable graph has reserved stays with the device when it is gone, and whether another one can
// use it is the driver's secret: what nobody is known to need goes back, or the next launch could take more
// than is charged.
static void spare_kept(const struct Executable* gone) {
  CUresult (*trim)(CUdevice) = 0;
  *(void**)&trim = real_cuda("cuDeviceGraphMemTrim");
  for (int gpu = 0; gpu < TRANCHE_GUARD_MAX_GPUS && trim != 0; ++gpu) {
    if (gone->needs[gpu] != 0 && device_of_gpu(gpu) >= 0) trim(device_of_gpu(gpu));
  }
}

static void remove_executable(const struct Executable* executable) {
  struct Executable** place = &executables;
  while (*place != 0 && *place != executable) place = &(*place)->next;
  if (*place != 0) *place = executable->next;
}

static bool needs_memory(const struct Executable* executable) {
  for (int gpu = 0; gpu < TRANCHE_GUARD_MAX_GPUS; ++gpu) {
    if (executable->needs[gpu] != 0) return true;
  }
  return false;
}

// Before the driver's call: null with `refused` unset means that the graph allocates nothing.
static struct Executable* begin(CUgraph graph, bool* refused) {
  struct Executable* executable = calloc(1, sizeof *executable);
  *refused = executable == 0 || !add_graph(graph, executable->needs, 0);
  if (!*refused && needs_memory(executable)) {
    pthread_mutex_lock(&mutex);
    executable->next = executables;
    executables = executable;
    *refused = !settle_all();
    if (*refused) {
      remove_executable(executable);
      settle_all();
    }
    pthread_mutex_unlock(&mutex);
    if (!*refused) return executable;
  }
  free(executable);
  return 0;
}

static CUresult end(struct Executable* executable, CUresult result, const CUgraphExec* handle) {
  if (executable == 0) return result;
  pthread_mutex_lock(&mutex);
  if (result == CUDA_SUCCESS) {
    executable->handle = *handle;
  } else {
    remove_executable(executable);
    settle_all();
    free(executable);
  }
  pthread_mutex_unlock(&mutex);
  return result;
}

#define INSTANTIATE(graph, call)                          \
  bool refused = false;                                   \
  struct Executable* executable = begin(graph, &refused); \
  if (refused) return CUDA_ERROR_OUT_OF_MEMORY;           \
  return end(executable, call, handle)

CUresult cuGraphInstantiate(CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t size) {
  REAL(cuGraphInstantiate)
  INSTANTIATE(graph, real(handle, graph, error_node, log, size));
}
CUresult cuGraphInstantiate_v2(CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t size) {
  REAL(cuGraphInstantiate_v2)
  INSTANTIATE(graph, real(handle, graph, error_node, log, size));
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
  REAL(cuGraphInstantiateWithFlags)
  INSTANTIATE(graph, real(handle, graph, flags));
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* handle, CUgraph graph, void* parameters) {
  REAL(cuGraphInstantiateWithParams)
  INSTANTIATE(graph, real(handle, graph, parameters));
}
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* handle, CUgraph graph, void* parameters) {
  REAL(cuGraphInstantiateWithParams_ptsz)
  INSTANTIATE(graph, real(handle, graph, parameters));
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  REAL(cuGraphExecDestroy)
  pthread_mutex_lock(&mutex);
  const CUresult result = real(handle);
  struct Executable* executable = executables;
  while (executable != 0 && executable->handle != handle) executable = executable->next;
  if (result == CUDA_SUCCESS && executable != 0) {
    remove_executable(executable);
    spare_kept(executable);
    settle_all();
    free(executable);
  }
  pthread_mutex_unlock(&mutex);
  return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  REAL(cuDeviceGraphMemTrim)
  const CUresult result = real(device);
  const int gpu = gpu_of_device(device);
  if (gpu < 0) return result;
  pthread_mutex_lock(&mutex);
  settle(gpu);
  pthread_mutex_unlock(&mutex);
  return result;
}

void graphs_forget_all(void) {
  const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  mutex = fresh;
  executables = 0;
  memset(charged, 0, sizeof charged);
}
