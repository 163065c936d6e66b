#include "emulator/cuda/graph_nodes.h"

#include <algorithm>

#include "emulator/cuda/copies.h"
#include "emulator/cuda/modules.h"

namespace tranche::emulator::cuda {
namespace {

constexpr unsigned kWordsMax = 256;
constexpr unsigned kSemaphoresMax = 1024;

template <class Parameters>
CUresult semaphore_node(NodeType type, const CUexternalSemaphore* semaphores, const Parameters* parameters,
                        unsigned count, Work& work) {
  if (semaphores == nullptr || parameters == nullptr || count == 0 || count > kSemaphoresMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SemaphoreWork made;
  for (unsigned i = 0; i < count; ++i) {
    made.semaphores.push_back(semaphores[i]);
    made.values.push_back(parameters[i].fence_value);
  }
  work = {type, std::move(made)};
  return CUDA_SUCCESS;
}

}  // namespace

CUresult find_graph(CUgraph handle, std::shared_ptr<Graph>& graph) {
  graph = driver().graphs.graphs.find(handle);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult find_node(CUgraphNode handle, std::shared_ptr<Node>& node) {
  node = driver().graphs.nodes.find(handle);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult find_node(CUgraphNode handle, NodeType type, std::shared_ptr<Node>& node) {
  CUDA_TRY(find_node(handle, node));
  return node->work.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_executable(CUgraphExec handle, std::shared_ptr<Executable>& executable) {
  executable = driver().graphs.executables.find(handle);
  return executable == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult find_step(Executable& executable, CUgraphNode node, Step*& step) {
  for (Step& candidate : executable.steps) {
    if (candidate.node != node) continue;
    step = &candidate;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult kernel_node(const CUDA_KERNEL_NODE_PARAMS* request, Work& work) {
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelWork made;
  CUDA_TRY(make_kernel_work(*request, made));
  work = {NodeType::kernel, std::move(made)};
  return CUDA_SUCCESS;
}

CUresult copy_node(const CUDA_MEMCPY3D* request, Work& work) {
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  work = {NodeType::copy, CopyWork{*request}};
  return CUDA_SUCCESS;
}

CUresult fill_node(const CUDA_MEMSET_NODE_PARAMS* request, Work& work) {
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const unsigned element = request->element_bytes;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  work = {NodeType::fill, FillWork{*request}};
  return CUDA_SUCCESS;
}

CUresult host_node(const CUDA_HOST_NODE_PARAMS* request, Work& work) {
  if (request == nullptr || request->function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  work = {NodeType::host, HostWork{request->function, request->data}};
  return CUDA_SUCCESS;
}

CUresult event_node(NodeType type, CUevent event, Work& work) {
  if (driver().events.find(event) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  work = {type, EventWork{event}};
  return CUDA_SUCCESS;
}

CUresult words_node(const CUDA_BATCH_MEM_OP_NODE_PARAMS* request, Work& work) {
  if (request == nullptr || request->operations == nullptr || request->count == 0 ||
      request->count > kWordsMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  work = {NodeType::words,
          WordsWork{{request->operations, request->operations + request->count}, request->flags}};
  return CUDA_SUCCESS;
}

CUresult child_node(CUgraph handle, Work& work) {
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(handle, graph));
  work = {NodeType::graph, ChildWork{clone(*graph)}};
  return CUDA_SUCCESS;
}

CUresult signal_node(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* request, Work& work) {
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return semaphore_node(NodeType::signal_semaphore, request->semaphores, request->parameters, request->count,
                        work);
}

CUresult wait_node(const CUDA_EXT_SEM_WAIT_NODE_PARAMS* request, Work& work) {
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return semaphore_node(NodeType::wait_semaphore, request->semaphores, request->parameters, request->count,
                        work);
}

CUresult any_node(CUgraphNodeParams* request, Work& work) {
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (request->type) {
    case NodeType::kernel:
      return kernel_node(&request->kernel, work);
    case NodeType::copy:
      return copy_node(&request->copy.request, work);
    case NodeType::fill:
      return fill_node(&request->fill.request, work);
    case NodeType::host:
      return host_node(&request->host, work);
    case NodeType::graph:
      return child_node(request->child.graph, work);
    case NodeType::empty:
      work = {};
      return CUDA_SUCCESS;
    case NodeType::wait_event:
    case NodeType::record_event:
      return event_node(request->type, request->event, work);
    case NodeType::signal_semaphore:
      return signal_node(&request->signal, work);
    case NodeType::wait_semaphore:
      return wait_node(&request->wait, work);
    case NodeType::allocate: {
      AllocateWork made{request->allocate, {}};
      CUDA_TRY(reserve_graph_memory(made));
      request->allocate.address = made.request.address;
      work = {NodeType::allocate, std::move(made)};
      return CUDA_SUCCESS;
    }
    case NodeType::free:
      work = {NodeType::free, FreeWork{request->free}};
      return CUDA_SUCCESS;
    case NodeType::words:
      return words_node(&request->words, work);
    case NodeType::conditional:
      return CUDA_ERROR_NOT_SUPPORTED;  // only a running kernel could set the condition
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUDA_KERNEL_NODE_PARAMS kernel_request(KernelWork& work) {
  work.pointers.clear();
  for (std::vector<uint8_t>& parameter : work.parameters) work.pointers.push_back(parameter.data());
  const Shape& shape = work.shape;
  return {work.function, shape.grid_x,       shape.grid_y,
          shape.grid_z,  shape.block_x,      shape.block_y,
          shape.block_z, shape.shared_bytes, work.pointers.empty() ? nullptr : work.pointers.data(),
          nullptr,       work.kernel,        work.context};
}

CUresult replace(Work& target, Work with) {
  if (target.type != with.type) return CUDA_ERROR_INVALID_VALUE;
  if (target.type == NodeType::allocate || target.type == NodeType::free) return CUDA_ERROR_INVALID_VALUE;
  target = std::move(with);
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
