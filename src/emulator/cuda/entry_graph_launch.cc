// Entry points: graphs made executable, changed and launched.

#include <algorithm>
#include <cstdio>

#include "emulator/cuda/graph_nodes.h"

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kAutoFree = 1, kUpload = 2, kFlagsAll = 15;

// CUgraphExecUpdateResult.
enum Update : int { updated = 0, failed = 1, other_topology = 2, other_type = 3, not_supported = 6 };

CUresult make_executable(CUgraphExec* handle, CUgraph graph_handle, uint64_t flags) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  std::shared_ptr<Context> context;
  if (handle == nullptr || flags > kFlagsAll) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(find_graph(graph_handle, graph));
  CUDA_TRY(driver().current(context));
  auto executable = std::make_shared<Executable>();
  executable->id = static_cast<unsigned>(driver().graphs.next_id.fetch_add(1));
  executable->flags = flags;
  executable->context = context;
  CUDA_TRY(instantiate(*graph, executable->steps));
  *handle = driver().graphs.executables.add(std::move(executable));
  return CUDA_SUCCESS;
}

CUresult instantiate_with_log(CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node, char* log,
                              size_t bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && bytes > 0) log[0] = '\0';
  return make_executable(handle, graph, 0);
}

CUresult instantiate_with_params(CUgraphExec* handle, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  parameters->error_node = nullptr;
  const CUresult result = make_executable(handle, graph, parameters->flags);
  parameters->result = result == CUDA_SUCCESS ? 0 : 1;
  return result;
}

// What a launch allocates and does not free stays allocated, unless the executable frees it at its next
// launch.
CUresult free_leftovers(Executable& executable) {
  if ((executable.flags & kAutoFree) == 0) return CUDA_SUCCESS;
  for (const Step& step : executable.steps) {
    if (step.work.type != NodeType::allocate) continue;
    static_cast<void>(free_graph_memory(std::get<AllocateWork>(step.work.what).request.address));
  }
  return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec handle, CUstream stream_handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Executable> executable;
  CUDA_TRY(driver().resolve_stream(stream_handle, mode, stream));
  CUDA_TRY(find_executable(handle, executable));
  if (stream->capturing.load()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(executable->mutex);
  CUDA_TRY(free_leftovers(*executable));
  return launch_steps(executable->steps, stream);
}

CUresult upload(CUgraphExec handle, CUstream stream_handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Executable> executable;
  CUDA_TRY(driver().resolve_stream(stream_handle, mode, stream));
  return find_executable(handle, executable);
}

// Takes the parameters of a graph of the same shape: node by node, in the order of their making.
CUresult update(CUgraphExec handle, CUgraph graph_handle, int& result, CUgraphNode& error_node) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Executable> executable;
  std::shared_ptr<Graph> graph;
  result = failed;
  error_node = nullptr;
  CUDA_TRY(find_executable(handle, executable));
  CUDA_TRY(find_graph(graph_handle, graph));
  std::vector<Step> steps;
  CUDA_TRY(instantiate(*graph, steps));
  const std::lock_guard steps_lock(executable->mutex);
  if (steps.size() != executable->steps.size()) {
    result = other_topology;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& old = executable->steps[i];
    const bool same_type = steps[i].work.type == old.work.type;
    if (same_type && steps[i].dependencies.size() == old.dependencies.size()) continue;
    error_node = steps[i].node;
    result = same_type ? other_topology : other_type;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    executable->steps[i].work = std::move(steps[i].work);
    executable->steps[i].child = std::move(steps[i].child);
  }
  result = updated;
  return CUDA_SUCCESS;
}

template <class Use>
CUresult with_step(CUgraphExec handle, CUgraphNode node, Use use) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Executable> executable;
  Step* step = nullptr;
  CUDA_TRY(find_executable(handle, executable));
  const std::lock_guard steps_lock(executable->mutex);
  CUDA_TRY(find_step(*executable, node, step));
  return use(*step);
}

template <class Make>
CUresult set_step(CUgraphExec handle, CUgraphNode node, Make make) {
  return with_step(handle, node, [&](Step& step) {
    Work work;
    CUDA_TRY(make(work));
    return replace(step.work, std::move(work));
  });
}

}  // namespace

CUDA_ENTRY cuGraphInstantiate(CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node, char* log,
                              size_t bytes) {
  return instantiate_with_log(handle, graph, error_node, log, bytes);
}
CUDA_ENTRY cuGraphInstantiate_v2(CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node, char* log,
                                 size_t bytes) {
  return instantiate_with_log(handle, graph, error_node, log, bytes);
}
CUDA_ENTRY cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
  return make_executable(handle, graph, flags);
}
CUDA_ENTRY cuGraphInstantiateWithParams(CUgraphExec* handle, CUgraph graph,
                                        CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return instantiate_with_params(handle, graph, parameters);
}
CUDA_ENTRY cuGraphInstantiateWithParams_ptsz(CUgraphExec* handle, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return instantiate_with_params(handle, graph, parameters);
}
CUDA_ENTRY cuGraphUpload(CUgraphExec handle, CUstream stream) {
  return upload(handle, stream, DefaultStream::legacy);
}
CUDA_ENTRY cuGraphUpload_ptsz(CUgraphExec handle, CUstream stream) {
  return upload(handle, stream, DefaultStream::per_thread);
}
CUDA_ENTRY cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  return launch(handle, stream, DefaultStream::legacy);
}
CUDA_ENTRY cuGraphLaunch_ptsz(CUgraphExec handle, CUstream stream) {
  return launch(handle, stream, DefaultStream::per_thread);
}

CUDA_ENTRY cuGraphExecDestroy(CUgraphExec handle) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  return driver().graphs.executables.remove(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphExecGetFlags(CUgraphExec handle, uint64_t* flags) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Executable> executable;
  CUDA_TRY(find_executable(handle, executable));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = executable->flags;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphExecGetId(CUgraphExec handle, unsigned* id) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Executable> executable;
  CUDA_TRY(find_executable(handle, executable));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = executable->id;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode* error_node, int* result) {
  int outcome = failed;
  CUgraphNode where = nullptr;
  const CUresult answer = update(handle, graph, outcome, where);
  if (error_node != nullptr) *error_node = where;
  if (result != nullptr) *result = outcome;
  return answer;
}
CUDA_ENTRY cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  info->error_from_node = nullptr;
  return update(handle, graph, info->result, info->error_node);
}

CUDA_ENTRY cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node,
                                             const CUDA_KERNEL_NODE_PARAMS* request) {
  return set_step(handle, node, [&](Work& work) { return kernel_node(request, work); });
}
CUDA_ENTRY cuGraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                          const CUDA_KERNEL_NODE_PARAMS_v1* request) {
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widen(*request);
  return cuGraphExecKernelNodeSetParams_v2(handle, node, &wide);
}
CUDA_ENTRY cuGraphExecMemcpyNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_MEMCPY3D* request,
                                          CUcontext) {
  return set_step(handle, node, [&](Work& work) { return copy_node(request, work); });
}
CUDA_ENTRY cuGraphExecMemsetNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                          const CUDA_MEMSET_NODE_PARAMS* request, CUcontext) {
  return set_step(handle, node, [&](Work& work) { return fill_node(request, work); });
}
CUDA_ENTRY cuGraphExecHostNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                        const CUDA_HOST_NODE_PARAMS* request) {
  return set_step(handle, node, [&](Work& work) { return host_node(request, work); });
}
CUDA_ENTRY cuGraphExecEventRecordNodeSetEvent(CUgraphExec handle, CUgraphNode node, CUevent event) {
  return set_step(handle, node, [&](Work& work) { return event_node(NodeType::record_event, event, work); });
}
CUDA_ENTRY cuGraphExecEventWaitNodeSetEvent(CUgraphExec handle, CUgraphNode node, CUevent event) {
  return set_step(handle, node, [&](Work& work) { return event_node(NodeType::wait_event, event, work); });
}
CUDA_ENTRY cuGraphExecBatchMemOpNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                              const CUDA_BATCH_MEM_OP_NODE_PARAMS* request) {
  return set_step(handle, node, [&](Work& work) { return words_node(request, work); });
}
CUDA_ENTRY cuGraphExecExternalSemaphoresSignalNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                                            const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* request) {
  return set_step(handle, node, [&](Work& work) { return signal_node(request, work); });
}
CUDA_ENTRY cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                                          const CUDA_EXT_SEM_WAIT_NODE_PARAMS* request) {
  return set_step(handle, node, [&](Work& work) { return wait_node(request, work); });
}
CUDA_ENTRY cuGraphExecNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraphNodeParams* request) {
  CUDA_TRY(driver().ready());
  if (request == nullptr || request->type == NodeType::allocate) return CUDA_ERROR_INVALID_VALUE;
  return set_step(handle, node, [&](Work& work) { return any_node(request, work); });
}

CUDA_ENTRY cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraph child) {
  return with_step(handle, node, [&](Step& step) {
    std::shared_ptr<Graph> graph;
    std::vector<Step> steps;
    CUDA_TRY(find_graph(child, graph));
    if (step.work.type != NodeType::graph) return CUDA_ERROR_INVALID_VALUE;
    CUDA_TRY(instantiate(*graph, steps));
    if (steps.size() != step.child.size()) return CUDA_ERROR_INVALID_VALUE;
    step.child = std::move(steps);
    return CUDA_SUCCESS;
  });
}

CUDA_ENTRY cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned enabled) {
  return with_step(handle, node, [&](Step& step) {
    const NodeType type = step.work.type;
    const bool allowed = type == NodeType::kernel || type == NodeType::copy || type == NodeType::fill;
    if (!allowed) return CUDA_ERROR_INVALID_VALUE;
    step.enabled = enabled != 0;
    return CUDA_SUCCESS;
  });
}
CUDA_ENTRY cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned* enabled) {
  return with_step(handle, node, [&](Step& step) {
    if (enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *enabled = step.enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUDA_ENTRY cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(handle, graph));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* const file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fprintf(file, "digraph graph_%u {\n", graph->id);
  for (const auto& [number, node] : graph->nodes) {
    const auto name = static_cast<unsigned long long>(number);
    std::fprintf(file, "  n%llu [label=\"%d\"];\n", name, static_cast<int>(node->work.type));
    for (const CUgraphNode dependency : node->dependencies) {
      const auto from = static_cast<unsigned long long>(driver().graphs.nodes.find(dependency)->number);
      std::fprintf(file, "  n%llu -> n%llu;\n", from, name);
    }
  }
  std::fprintf(file, "}\n");
  return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tranche::emulator::cuda
