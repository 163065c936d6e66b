// Entry points: what the nodes of graphs do: their parameters, read and replaced; user objects.

#include <cstring>

#include "emulator/cuda/graph_nodes.h"

namespace tranche::emulator::cuda {
namespace {

constexpr size_t kNodeAttributeBytes = 64;  // of any attribute of a launch

CUresult answer_event(const Node& node, CUevent* event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = std::get<EventWork>(node.work.what).event;
  return CUDA_SUCCESS;
}

CUresult write_params(Work& work, CUgraphNodeParams& request) {
  switch (work.type) {
    case NodeType::kernel:
      request.kernel = kernel_request(std::get<KernelWork>(work.what));
      return CUDA_SUCCESS;
    case NodeType::copy:
      request.copy.request = std::get<CopyWork>(work.what).request;
      return CUDA_SUCCESS;
    case NodeType::fill:
      request.fill.request = std::get<FillWork>(work.what).request;
      return CUDA_SUCCESS;
    case NodeType::host:
      request.host = {std::get<HostWork>(work.what).function, std::get<HostWork>(work.what).data};
      return CUDA_SUCCESS;
    case NodeType::graph:
      request.child.graph = std::get<ChildWork>(work.what).graph->handle;
      return CUDA_SUCCESS;
    case NodeType::wait_event:
    case NodeType::record_event:
      request.event = std::get<EventWork>(work.what).event;
      return CUDA_SUCCESS;
    case NodeType::allocate:
      request.allocate = std::get<AllocateWork>(work.what).request;
      return CUDA_SUCCESS;
    case NodeType::free:
      request.free = std::get<FreeWork>(work.what).address;
      return CUDA_SUCCESS;
    case NodeType::words: {
      auto& words = std::get<WordsWork>(work.what);
      request.words = {nullptr, static_cast<unsigned>(words.operations.size()), words.operations.data(),
                       words.flags};
      return CUDA_SUCCESS;
    }
    case NodeType::empty:
      return CUDA_SUCCESS;
    case NodeType::signal_semaphore:
    case NodeType::wait_semaphore:
    case NodeType::conditional:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUDA_ENTRY cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* request) {
  return with_node(handle, NodeType::kernel, [&](Node& node) {
    if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *request = kernel_request(std::get<KernelWork>(node.work.what));
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1* request) {
  CUDA_KERNEL_NODE_PARAMS wide{};
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(cuGraphKernelNodeGetParams_v2(handle, &wide));
  *request = {wide.function, wide.grid_x,  wide.grid_y,       wide.grid_z,     wide.block_x,
              wide.block_y,  wide.block_z, wide.shared_bytes, wide.parameters, wide.extra};
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuGraphKernelNodeSetParams_v2(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS* request) {
  return set_node(handle, NodeType::kernel, [&](Work& work) { return kernel_node(request, work); });
}
CUDA_ENTRY cuGraphKernelNodeSetParams(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1* request) {
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widen(*request);
  return cuGraphKernelNodeSetParams_v2(handle, &wide);
}
CUDA_ENTRY cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* request) {
  return with_node(handle, NodeType::copy, [&](Node& node) {
    if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *request = std::get<CopyWork>(node.work.what).request;
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphMemcpyNodeSetParams(CUgraphNode handle, const CUDA_MEMCPY3D* request) {
  return set_node(handle, NodeType::copy, [&](Work& work) { return copy_node(request, work); });
}
CUDA_ENTRY cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* request) {
  return with_node(handle, NodeType::fill, [&](Node& node) {
    if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *request = std::get<FillWork>(node.work.what).request;
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphMemsetNodeSetParams(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS* request) {
  return set_node(handle, NodeType::fill, [&](Work& work) { return fill_node(request, work); });
}
CUDA_ENTRY cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* request) {
  return with_node(handle, NodeType::host, [&](Node& node) {
    if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto& host = std::get<HostWork>(node.work.what);
    *request = {host.function, host.data};
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphHostNodeSetParams(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS* request) {
  return set_node(handle, NodeType::host, [&](Work& work) { return host_node(request, work); });
}
CUDA_ENTRY cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) {
  return with_node(handle, NodeType::graph, [&](Node& node) {
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *graph = std::get<ChildWork>(node.work.what).graph->handle;
    return CUDA_SUCCESS;
  });
}

CUDA_ENTRY cuGraphEventRecordNodeGetEvent(CUgraphNode handle, CUevent* event) {
  return with_node(handle, NodeType::record_event, [&](Node& node) { return answer_event(node, event); });
}
CUDA_ENTRY cuGraphEventRecordNodeSetEvent(CUgraphNode handle, CUevent event) {
  return set_node(handle, NodeType::record_event,
                  [&](Work& work) { return event_node(NodeType::record_event, event, work); });
}
CUDA_ENTRY cuGraphEventWaitNodeGetEvent(CUgraphNode handle, CUevent* event) {
  return with_node(handle, NodeType::wait_event, [&](Node& node) { return answer_event(node, event); });
}
CUDA_ENTRY cuGraphEventWaitNodeSetEvent(CUgraphNode handle, CUevent event) {
  return set_node(handle, NodeType::wait_event,
                  [&](Work& work) { return event_node(NodeType::wait_event, event, work); });
}

CUDA_ENTRY cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* request) {
  return with_node(handle, NodeType::words, [&](Node& node) {
    if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto& words = std::get<WordsWork>(node.work.what);
    *request = {nullptr, static_cast<unsigned>(words.operations.size()), words.operations.data(),
                words.flags};
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphBatchMemOpNodeSetParams(CUgraphNode handle, const CUDA_BATCH_MEM_OP_NODE_PARAMS* request) {
  return set_node(handle, NodeType::words, [&](Work& work) { return words_node(request, work); });
}

CUDA_ENTRY cuGraphExternalSemaphoresSignalNodeSetParams(CUgraphNode handle,
                                                        const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* request) {
  return set_node(handle, NodeType::signal_semaphore, [&](Work& work) { return signal_node(request, work); });
}
CUDA_ENTRY cuGraphExternalSemaphoresWaitNodeSetParams(CUgraphNode handle,
                                                      const CUDA_EXT_SEM_WAIT_NODE_PARAMS* request) {
  return set_node(handle, NodeType::wait_semaphore, [&](Work& work) { return wait_node(request, work); });
}

CUDA_ENTRY cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* request) {
  return with_node(handle, NodeType::allocate, [&](Node& node) {
    if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *request = std::get<AllocateWork>(node.work.what).request;
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* address) {
  return with_node(handle, NodeType::free, [&](Node& node) {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *address = std::get<FreeWork>(node.work.what).address;
    return CUDA_SUCCESS;
  });
}

// Of any type, from the general structure.
CUDA_ENTRY cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* request) {
  CUDA_TRY(driver().ready());
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (request->type == NodeType::allocate || request->type == NodeType::free) return CUDA_ERROR_INVALID_VALUE;
  return set_node(handle, request->type, [&](Work& work) { return any_node(request, work); });
}
CUDA_ENTRY cuGraphNodeSetParams_v2(CUgraphNode handle, CUgraphNodeParams* request) {
  return cuGraphNodeSetParams(handle, request);
}

CUDA_ENTRY cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams* request) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  CUDA_TRY(find_node(handle, node));
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memset(static_cast<void*>(request), 0, sizeof *request);
  request->type = node->work.type;
  return write_params(node->work, *request);
}

// Attributes of kernels (priority, clusters, ...) change nothing here, so every node has them at zero.
CUDA_ENTRY cuGraphKernelNodeGetAttribute(CUgraphNode handle, int attribute, void* value) {
  return with_node(handle, NodeType::kernel, [&](Node&) {
    if (value == nullptr || attribute < 0) return CUDA_ERROR_INVALID_VALUE;
    std::memset(value, 0, kNodeAttributeBytes);
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphKernelNodeSetAttribute(CUgraphNode handle, int attribute, const void* value) {
  return with_node(handle, NodeType::kernel, [&](Node&) {
    return value == nullptr || attribute < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  CUDA_TRY(with_node(from, NodeType::kernel, [](Node&) { return CUDA_SUCCESS; }));
  return with_node(to, NodeType::kernel, [](Node&) { return CUDA_SUCCESS; });
}

CUDA_ENTRY cuUserObjectCreate(CUuserObject* handle, void* object, CUhostFn destroy, unsigned references,
                              unsigned flags) {
  CUDA_TRY(driver().ready());
  constexpr unsigned kNoDestructorSynchronisation = 1;
  if (handle == nullptr || destroy == nullptr || references == 0 || flags != kNoDestructorSynchronisation) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto made = std::make_shared<UserObject>();
  made->object = object;
  made->destroy = destroy;
  made->references = references;
  *handle = driver().graphs.objects.add(std::move(made));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuUserObjectRetain(CUuserObject handle, unsigned count) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  const std::shared_ptr<UserObject> object = driver().graphs.objects.find(handle);
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuUserObjectRelease(CUuserObject handle, unsigned count) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  if (driver().graphs.objects.find(handle) == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  release_object(handle, count);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count,
                                   unsigned flags) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(graph_handle, graph));
  const std::shared_ptr<UserObject> object = driver().graphs.objects.find(handle);
  constexpr unsigned kMove = 1;
  if (object == nullptr || count == 0 || flags > kMove) return CUDA_ERROR_INVALID_VALUE;
  graph->objects[handle] += count;
  if (flags != kMove) object->references += count;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(graph_handle, graph));
  const auto held = graph->objects.find(handle);
  if (held == graph->objects.end() || count == 0 || held->second < count) return CUDA_ERROR_INVALID_VALUE;
  held->second -= count;
  release_object(handle, count);
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
