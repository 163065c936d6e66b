// Graphs of work, and work as such: what a stream does at once, a capture writes down and a graph repeats.
//
// Threading: graphs, nodes and executables are changed under Graphs::mutex; an executable is launched under
// its own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "emulator/cuda/graph_types.h"
#include "emulator/cuda/handle_table.h"

namespace tranche::emulator::cuda {

struct Context;
struct Stream;
struct Graph;

struct Shape {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
};

// A launch. Parameters are copied, since the caller's are gone when a graph runs.
struct KernelWork {
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  CUcontext context = nullptr;
  Shape shape;
  std::vector<std::vector<uint8_t>> parameters;
  std::vector<uint8_t> packed;  // parameters given as one buffer
  std::vector<void*> pointers;  // to the copies, for who asks
};
struct CopyWork {
  CUDA_MEMCPY3D request{};
};
struct FillWork {
  CUDA_MEMSET_NODE_PARAMS request{};
};
struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
struct EventWork {
  CUevent event = nullptr;
};
struct AllocateWork {
  CUDA_MEM_ALLOC_NODE_PARAMS request{};
  std::vector<CUmemAccessDesc> access;
};
struct FreeWork {
  CUdeviceptr address = 0;
};
struct WordsWork {
  std::vector<CUstreamBatchMemOpParams> operations;
  unsigned flags = 0;
};
struct SemaphoreWork {
  std::vector<CUexternalSemaphore> semaphores;
  std::vector<unsigned long long> values;
};
struct ChildWork {
  std::shared_ptr<Graph> graph;
};

struct Work {
  NodeType type = NodeType::empty;
  std::variant<std::monostate, KernelWork, CopyWork, FillWork, HostWork, EventWork, AllocateWork, FreeWork,
               WordsWork, SemaphoreWork, ChildWork>
      what;
};

struct Node {
  CUgraphNode handle = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode original = nullptr;  // of which this is the clone
  uint64_t number = 0;             // in order of creation
  Work work;
  std::vector<CUgraphNode> dependencies;
};

struct UserObject {
  CUuserObject handle = nullptr;
  void* object = nullptr;
  CUhostFn destroy = nullptr;
  uint64_t references = 0;
};

struct Graph {
  CUgraph handle = nullptr;
  CUgraph parent = nullptr;
  unsigned id = 0;
  std::map<uint64_t, std::shared_ptr<Node>> nodes;  // by number
  std::map<CUuserObject, uint64_t> objects;
};

// A node of an executable.
struct Step {
  CUgraphNode node = nullptr;
  std::vector<CUgraphNode> dependencies;
  Work work;
  bool enabled = true;
  std::vector<Step> child;
};

struct Executable {
  CUgraphExec handle = nullptr;
  unsigned id = 0;
  uint64_t flags = 0;
  std::shared_ptr<Context> context;
  std::mutex mutex;                 // of what follows
  std::vector<Step> steps;          // each after what it depends on
  std::set<CUdeviceptr> allocated;  // by its nodes and not freed
};

// A capture in progress.
struct Capture {
  uint64_t id = 0;
  std::shared_ptr<Graph> graph;
  CUstream origin = nullptr;
  int mode = 0;
  uint64_t thread = 0;
  bool invalidated = false;
  std::set<Stream*> streams;  // that take part
};

struct Graphs {
  std::recursive_mutex mutex;
  HandleTable<CUgraph, Graph> graphs;
  HandleTable<CUgraphNode, Node> nodes;
  HandleTable<CUgraphExec, Executable> executables;
  HandleTable<CUuserObject, UserObject> objects;
  std::atomic<uint32_t> captures{0};         // in progress
  std::atomic<uint32_t> captures_global{0};  // of those, in the mode that forbids unsafe calls of any thread
  std::atomic<uint64_t> next_id{1};
};

// Does the work in a stream, at once.
CUresult execute(const Work& work, const std::shared_ptr<Stream>& stream);
// Writes the work down if the stream is being captured: true, and `result` is what to answer.
bool captured(Stream& stream, Work work, CUresult& result);
// Adds a node; `dependencies` are live nodes of the graph.
CUresult add_node(Graph& graph, Work work, std::vector<CUgraphNode> dependencies, CUgraphNode& handle);
std::shared_ptr<Graph> new_graph();
std::shared_ptr<Graph> clone(const Graph& graph);
void destroy_graph(const std::shared_ptr<Graph>& graph);
CUresult instantiate(const Graph& graph, std::vector<Step>& steps);
CUresult launch_steps(std::vector<Step>& steps, const std::shared_ptr<Stream>& stream);

// Drops references to a user object; the last one destroys it.
void release_object(CUuserObject object, uint64_t count);

// Copies the parameters of a launch.
CUresult make_kernel_work(const CUDA_KERNEL_NODE_PARAMS& request, KernelWork& work);
// The time and demand of a kernel on the current GPU.
CUresult launch_kernel(const KernelWork& work, const std::shared_ptr<Stream>& stream);
CUresult launch_on(CUfunction function, const Shape& shape, const std::shared_ptr<Stream>& stream,
                   void** parameters, void** extra);

// Memory of graphs: addresses fixed with the node, bytes taken at launch and kept for the next.
CUresult reserve_graph_memory(AllocateWork& work);
CUresult allocate_graph_memory(const AllocateWork& work);
CUresult free_graph_memory(CUdeviceptr address);  // CUDA_ERROR_INVALID_VALUE if it is none

}  // namespace tranche::emulator::cuda
