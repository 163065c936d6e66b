// Entry points: making graphs: nodes, what they depend on, their parameters, copies of graphs, user objects.

#include <algorithm>
#include <cstdio>

#include "emulator/cuda/graph_nodes.h"

namespace tranche::emulator::cuda {
namespace {

// The nodes that a new one depends on, in an array of the caller's.
CUresult dependencies_of(const CUgraphNode* nodes, size_t count, std::vector<CUgraphNode>& dependencies) {
  constexpr size_t kMost = size_t{1} << 20;
  if (count > kMost || (count > 0 && nodes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  dependencies.assign(nodes, nodes + count);
  return CUDA_SUCCESS;
}

// Adds a node that `make(work)` describes.
template <class Make>
CUresult add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* nodes, size_t count, Make make) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  std::vector<CUgraphNode> dependencies;
  Work work;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(find_graph(graph_handle, graph));
  CUDA_TRY(dependencies_of(nodes, count, dependencies));
  CUDA_TRY(make(work));
  return add_node(*graph, std::move(work), std::move(dependencies), *handle);
}

// Answers `list` into an array of the caller's, as all functions that list do: the count if there is no
// array.
CUresult answer_list(const std::vector<CUgraphNode>& list, CUgraphNode* nodes, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr) {
    for (size_t i = 0; i < *count; ++i) nodes[i] = i < list.size() ? list[i] : nullptr;
    *count = std::min(*count, list.size());
  } else {
    *count = list.size();
  }
  return CUDA_SUCCESS;
}

void clear_edges(CUgraphEdgeData* edges, const size_t* count) {
  if (edges == nullptr || count == nullptr) return;
  for (size_t i = 0; i < *count; ++i) edges[i] = {};
}

CUresult list_nodes(CUgraph handle, bool roots_only, CUgraphNode* nodes, size_t* count) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(handle, graph));
  std::vector<CUgraphNode> list;
  for (const auto& [number, node] : graph->nodes) {
    if (!roots_only || node->dependencies.empty()) list.push_back(node->handle);
  }
  return answer_list(list, nodes, count);
}

CUresult list_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges,
                    size_t* count) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(handle, graph));
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> sources, targets;
  for (const auto& [number, node] : graph->nodes) {
    for (const CUgraphNode dependency : node->dependencies) {
      sources.push_back(dependency);
      targets.push_back(node->handle);
    }
  }
  size_t same = *count;
  CUDA_TRY(answer_list(sources, from, &same));
  CUDA_TRY(answer_list(targets, to, count));
  clear_edges(edges, count);
  return CUDA_SUCCESS;
}

CUresult list_dependencies(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* edges, size_t* count) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  CUDA_TRY(find_node(handle, node));
  CUDA_TRY(answer_list(node->dependencies, nodes, count));
  clear_edges(edges, count);
  return CUDA_SUCCESS;
}

CUresult list_dependents(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* edges, size_t* count) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_node(handle, node));
  CUDA_TRY(find_graph(node->graph, graph));
  std::vector<CUgraphNode> list;
  for (const auto& [number, other] : graph->nodes) {
    const auto& dependencies = other->dependencies;
    if (std::find(dependencies.begin(), dependencies.end(), handle) != dependencies.end())
      list.push_back(other->handle);
  }
  CUDA_TRY(answer_list(list, nodes, count));
  clear_edges(edges, count);
  return CUDA_SUCCESS;
}

CUresult change_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, size_t count,
                             bool add) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(handle, graph));
  if (count > 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<Node> source, target;
    CUDA_TRY(find_node(from[i], source));
    CUDA_TRY(find_node(to[i], target));
    if (source->graph != handle || target->graph != handle || source == target)
      return CUDA_ERROR_INVALID_VALUE;
    auto& list = target->dependencies;
    const auto found = std::find(list.begin(), list.end(), from[i]);
    if (add == (found != list.end())) return CUDA_ERROR_INVALID_VALUE;
    if (add)
      list.push_back(from[i]);
    else
      list.erase(found);
  }
  return CUDA_SUCCESS;
}

CUresult add_any(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes, size_t count,
                 CUgraphNodeParams* parameters) {
  return add(handle, graph, nodes, count, [&](Work& work) { return any_node(parameters, work); });
}

}  // namespace

CUDA_ENTRY cuGraphCreate(CUgraph* handle, unsigned flags) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = new_graph()->handle;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphDestroy(CUgraph handle) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(handle, graph));
  destroy_graph(graph);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphClone(CUgraph* handle, CUgraph original) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(find_graph(original, graph));
  for (const auto& [number, node] : graph->nodes) {
    const bool memory = node->work.type == NodeType::allocate || node->work.type == NodeType::free;
    if (memory) return CUDA_ERROR_NOT_SUPPORTED;  // their addresses are one graph's
  }
  *handle = clone(*graph)->handle;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original, CUgraph handle) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(handle, graph));
  for (const auto& [number, node] : graph->nodes) {
    if (node->original != original || found == nullptr) continue;
    *found = node->handle;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUDA_ENTRY cuGraphGetId(CUgraph handle, unsigned* id) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(handle, graph));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = graph->id;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* request) {
  return add(node, graph, dependencies, count, [&](Work& work) {
    if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS wide = widen(*request);
    return kernel_node(&wide, work);
  });
}
CUDA_ENTRY cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, const CUDA_KERNEL_NODE_PARAMS* request) {
  return add(node, graph, dependencies, count, [&](Work& work) { return kernel_node(request, work); });
}
CUDA_ENTRY cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, const CUDA_MEMCPY3D* request, CUcontext) {
  return add(node, graph, dependencies, count, [&](Work& work) { return copy_node(request, work); });
}
CUDA_ENTRY cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, const CUDA_MEMSET_NODE_PARAMS* request, CUcontext) {
  return add(node, graph, dependencies, count, [&](Work& work) { return fill_node(request, work); });
}
CUDA_ENTRY cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_HOST_NODE_PARAMS* request) {
  return add(node, graph, dependencies, count, [&](Work& work) { return host_node(request, work); });
}
CUDA_ENTRY cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                    size_t count, CUgraph child) {
  return add(node, graph, dependencies, count, [&](Work& work) { return child_node(child, work); });
}
CUDA_ENTRY cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                               size_t count) {
  return add(node, graph, dependencies, count, [](Work&) { return CUDA_SUCCESS; });
}
CUDA_ENTRY cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                     size_t count, CUevent event) {
  return add(node, graph, dependencies, count,
             [&](Work& work) { return event_node(NodeType::record_event, event, work); });
}
CUDA_ENTRY cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, CUevent event) {
  return add(node, graph, dependencies, count,
             [&](Work& work) { return event_node(NodeType::wait_event, event, work); });
}
CUDA_ENTRY cuGraphAddExternalSemaphoresSignalNode(CUgraphNode* node, CUgraph graph,
                                                  const CUgraphNode* dependencies, size_t count,
                                                  const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* request) {
  return add(node, graph, dependencies, count, [&](Work& work) { return signal_node(request, work); });
}
CUDA_ENTRY cuGraphAddExternalSemaphoresWaitNode(CUgraphNode* node, CUgraph graph,
                                                const CUgraphNode* dependencies, size_t count,
                                                const CUDA_EXT_SEM_WAIT_NODE_PARAMS* request) {
  return add(node, graph, dependencies, count, [&](Work& work) { return wait_node(request, work); });
}
CUDA_ENTRY cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                    size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* request) {
  return add(node, graph, dependencies, count, [&](Work& work) { return words_node(request, work); });
}
CUDA_ENTRY cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* request) {
  return add(node, graph, dependencies, count, [&](Work& work) {
    if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
    AllocateWork made{*request, {}};
    CUDA_TRY(reserve_graph_memory(made));
    request->address = made.request.address;
    work = {NodeType::allocate, std::move(made)};
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, CUdeviceptr address) {
  return add(node, graph, dependencies, count, [&](Work& work) {
    work = {NodeType::free, FreeWork{address}};
    return address == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                          CUgraphNodeParams* parameters) {
  return add_any(node, graph, dependencies, count, parameters);
}
CUDA_ENTRY cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                             const CUgraphEdgeData*, size_t count, CUgraphNodeParams* parameters) {
  return add_any(node, graph, dependencies, count, parameters);
}
CUDA_ENTRY cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                             const CUgraphEdgeData*, size_t count, CUgraphNodeParams* parameters) {
  return add_any(node, graph, dependencies, count, parameters);
}
CUDA_ENTRY cuGraphConditionalHandleCreate(uint64_t* handle, CUgraph, CUcontext, unsigned, unsigned) {
  CUDA_TRY(driver().ready());
  return handle == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUDA_ENTRY cuGraphDestroyNode(CUgraphNode handle) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_node(handle, node));
  CUDA_TRY(find_graph(node->graph, graph));
  const bool memory = node->work.type == NodeType::allocate || node->work.type == NodeType::free;
  if (memory) return CUDA_ERROR_NOT_SUPPORTED;
  graph->nodes.erase(node->number);
  for (const auto& [number, other] : graph->nodes) {
    auto& list = other->dependencies;
    list.erase(std::remove(list.begin(), list.end(), handle), list.end());
  }
  if (const auto* child = std::get_if<ChildWork>(&node->work.what)) destroy_graph(child->graph);
  driver().graphs.nodes.remove(handle);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphNodeGetType(CUgraphNode handle, NodeType* type) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  CUDA_TRY(find_node(handle, node));
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->work.type;
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph* graph) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  CUDA_TRY(find_node(handle, node));
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = node->graph;
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuGraphNodeGetLocalId(CUgraphNode handle, unsigned* id) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  CUDA_TRY(find_node(handle, node));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = static_cast<unsigned>(node->number);
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuGraphNodeGetToolsId(CUgraphNode handle, unsigned long long* id) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  CUDA_TRY(find_node(handle, node));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = node->number;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return list_nodes(graph, false, nodes, count);
}
CUDA_ENTRY cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return list_nodes(graph, true, nodes, count);
}
CUDA_ENTRY cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return list_edges(graph, from, to, nullptr, count);
}
CUDA_ENTRY cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges,
                              size_t* count) {
  return list_edges(graph, from, to, edges, count);
}
CUDA_ENTRY cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return list_dependencies(node, nodes, nullptr, count);
}
CUDA_ENTRY cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                         size_t* count) {
  return list_dependencies(node, nodes, edges, count);
}
CUDA_ENTRY cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return list_dependents(node, nodes, nullptr, count);
}
CUDA_ENTRY cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                           size_t* count) {
  return list_dependents(node, nodes, edges, count);
}
CUDA_ENTRY cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                  size_t count) {
  return change_dependencies(graph, from, to, count, true);
}
CUDA_ENTRY cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                     const CUgraphEdgeData*, size_t count) {
  return change_dependencies(graph, from, to, count, true);
}
CUDA_ENTRY cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                     size_t count) {
  return change_dependencies(graph, from, to, count, false);
}
CUDA_ENTRY cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        const CUgraphEdgeData*, size_t count) {
  return change_dependencies(graph, from, to, count, false);
}

}  // namespace tranche::emulator::cuda
