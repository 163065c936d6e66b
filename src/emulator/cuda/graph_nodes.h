// What the entry points about graphs share: finding graphs and nodes, and the parameters of nodes as work.
#pragma once

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {

using GraphLock = std::unique_lock<std::recursive_mutex>;

// Takes the lock of all graphs once the driver is ready.
inline CUresult lock_graphs(GraphLock& lock) {
  CUDA_TRY(driver().ready());
  lock = GraphLock(driver().graphs.mutex);
  return CUDA_SUCCESS;
}
CUresult find_graph(CUgraph handle, std::shared_ptr<Graph>& graph);
CUresult find_node(CUgraphNode handle, std::shared_ptr<Node>& node);
// The node, which is of that type.
CUresult find_node(CUgraphNode handle, NodeType type, std::shared_ptr<Node>& node);
CUresult find_executable(CUgraphExec handle, std::shared_ptr<Executable>& executable);
// The step of an executable that came from that node.
CUresult find_step(Executable& executable, CUgraphNode node, Step*& step);

CUresult kernel_node(const CUDA_KERNEL_NODE_PARAMS* request, Work& work);
CUresult copy_node(const CUDA_MEMCPY3D* request, Work& work);
CUresult fill_node(const CUDA_MEMSET_NODE_PARAMS* request, Work& work);
CUresult host_node(const CUDA_HOST_NODE_PARAMS* request, Work& work);
CUresult event_node(NodeType type, CUevent event, Work& work);
CUresult words_node(const CUDA_BATCH_MEM_OP_NODE_PARAMS* request, Work& work);
CUresult child_node(CUgraph graph, Work& work);
CUresult signal_node(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* request, Work& work);
CUresult wait_node(const CUDA_EXT_SEM_WAIT_NODE_PARAMS* request, Work& work);
// Of any type, from the general structure; the address of an allocation is written back.
CUresult any_node(CUgraphNodeParams* request, Work& work);

CUDA_KERNEL_NODE_PARAMS kernel_request(KernelWork& work);

inline CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1& old) {
  return {old.function, old.grid_x,       old.grid_y,     old.grid_z, old.block_x, old.block_y,
          old.block_z,  old.shared_bytes, old.parameters, old.extra,  nullptr,     nullptr};
}

// Puts other parameters into a node or a step: of the same type, and of the same kind of kernel.
CUresult replace(Work& target, Work with);

// Reads or replaces the work of a node of that type.
template <class Use>
CUresult with_node(CUgraphNode handle, NodeType type, Use use) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Node> node;
  CUDA_TRY(find_node(handle, type, node));
  return use(*node);
}

template <class Make>
CUresult set_node(CUgraphNode handle, NodeType type, Make make) {
  return with_node(handle, type, [&](Node& node) {
    Work work;
    CUDA_TRY(make(work));
    return replace(node.work, std::move(work));
  });
}

}  // namespace tranche::emulator::cuda
