#include "emulator/cuda/graph.h"

#include <algorithm>
#include <cstring>

#include "emulator/cuda/copies.h"
#include "emulator/cuda/modules.h"
#include "emulator/cuda/streams.h"

namespace tranche::emulator::cuda {
namespace {

CUresult execute_words(const WordsWork& work, const std::shared_ptr<Stream>& stream) {
  for (const CUstreamBatchMemOpParams& operation : work.operations) CUDA_TRY(do_word(operation, stream));
  return CUDA_SUCCESS;
}

CUresult execute_allocate(const AllocateWork& work) { return allocate_graph_memory(work); }

}  // namespace

CUresult execute(const Work& work, const std::shared_ptr<Stream>& stream) {
  switch (work.type) {
    case NodeType::kernel:
      return launch_kernel(std::get<KernelWork>(work.what), stream);
    case NodeType::copy:
      return copy_in(*stream, std::get<CopyWork>(work.what).request);
    case NodeType::fill:
      return fill_in(*stream, std::get<FillWork>(work.what).request);
    case NodeType::host: {
      const auto& host = std::get<HostWork>(work.what);
      const auto call = [](void* target, void* argument) { reinterpret_cast<CUhostFn>(target)(argument); };
      driver().run_on_host(stream, call, reinterpret_cast<void*>(host.function), host.data);
      return CUDA_SUCCESS;
    }
    case NodeType::wait_event:
      return wait_in_stream(stream, std::get<EventWork>(work.what).event);
    case NodeType::record_event:
      return record_in_stream(stream, std::get<EventWork>(work.what).event);
    case NodeType::allocate:
      return execute_allocate(std::get<AllocateWork>(work.what));
    case NodeType::free:
      return driver().free_block(std::get<FreeWork>(work.what).address, driver().moment(*stream));
    case NodeType::words:
      return execute_words(std::get<WordsWork>(work.what), stream);
    case NodeType::signal_semaphore:
    case NodeType::wait_semaphore:
      return do_semaphores(std::get<SemaphoreWork>(work.what), work.type == NodeType::signal_semaphore,
                           stream);
    case NodeType::graph:
    case NodeType::empty:
    case NodeType::conditional:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult add_node(Graph& graph, Work work, std::vector<CUgraphNode> dependencies, CUgraphNode& handle) {
  Graphs& graphs = driver().graphs;
  for (const CUgraphNode dependency : dependencies) {
    const std::shared_ptr<Node> node = graphs.nodes.find(dependency);
    if (node == nullptr || node->graph != graph.handle) return CUDA_ERROR_INVALID_VALUE;
  }
  std::sort(dependencies.begin(), dependencies.end());
  if (std::adjacent_find(dependencies.begin(), dependencies.end()) != dependencies.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto node = std::make_shared<Node>();
  node->graph = graph.handle;
  node->number = graphs.next_id.fetch_add(1);
  node->work = std::move(work);
  node->dependencies = std::move(dependencies);
  graph.nodes.emplace(node->number, node);
  handle = graphs.nodes.add(std::move(node));
  return CUDA_SUCCESS;
}

std::shared_ptr<Graph> new_graph() {
  auto graph = std::make_shared<Graph>();
  graph->id = static_cast<unsigned>(driver().graphs.next_id.fetch_add(1));
  driver().graphs.graphs.add(graph);
  return graph;
}

std::shared_ptr<Graph> clone(const Graph& graph) {
  std::shared_ptr<Graph> copy = new_graph();
  std::map<CUgraphNode, CUgraphNode> names;
  for (const auto& [number, node] : graph.nodes) {
    Work work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work.what)) {
      child->graph = clone(*child->graph);
      child->graph->parent = copy->handle;
    }
    CUgraphNode handle = nullptr;
    static_cast<void>(add_node(*copy, std::move(work), {}, handle));
    names[node->handle] = handle;
    driver().graphs.nodes.find(handle)->original = node->handle;
  }
  for (const auto& [number, node] : graph.nodes) {
    Node& target = *driver().graphs.nodes.find(names[node->handle]);
    for (const CUgraphNode dependency : node->dependencies) target.dependencies.push_back(names[dependency]);
  }
  return copy;
}

void destroy_graph(const std::shared_ptr<Graph>& graph) {
  Graphs& graphs = driver().graphs;
  for (const auto& [number, node] : graph->nodes) {
    graphs.nodes.remove(node->handle);
    if (const auto* child = std::get_if<ChildWork>(&node->work.what)) destroy_graph(child->graph);
  }
  graphs.graphs.remove(graph->handle);
  graph->nodes.clear();
  for (const auto& [handle, count] : graph->objects) release_object(handle, count);
}

// Kahn's order, the oldest node first: fails if the dependencies go in a circle.
CUresult instantiate(const Graph& graph, std::vector<Step>& steps) {
  std::map<CUgraphNode, size_t> waiting;
  for (const auto& [number, node] : graph.nodes) waiting[node->handle] = node->dependencies.size();
  std::set<CUgraphNode> done;
  while (done.size() < graph.nodes.size()) {
    const size_t before = done.size();
    for (const auto& [number, node] : graph.nodes) {
      if (done.count(node->handle) != 0) continue;
      const auto& dependencies = node->dependencies;
      if (!std::all_of(dependencies.begin(), dependencies.end(),
                       [&](CUgraphNode d) { return done.count(d) != 0; })) {
        continue;
      }
      done.insert(node->handle);
      Step step{node->handle, dependencies, node->work, true, {}};
      if (const auto* child = std::get_if<ChildWork>(&node->work.what)) {
        CUDA_TRY(instantiate(*child->graph, step.child));
      }
      steps.push_back(std::move(step));
    }
    if (done.size() == before) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult launch_steps(std::vector<Step>& steps, const std::shared_ptr<Stream>& stream) {
  for (Step& step : steps) {
    if (!step.enabled) continue;
    if (step.work.type == NodeType::graph)
      CUDA_TRY(launch_steps(step.child, stream));
    else
      CUDA_TRY(execute(step.work, stream));
  }
  return CUDA_SUCCESS;
}

bool captured(Stream& stream, Work work, CUresult& result) {
  if (!stream.capturing.load(std::memory_order_acquire)) {
    if (!stream.legacy || driver().graphs.captures.load(std::memory_order_relaxed) == 0) return false;
    return legacy_work_breaks_captures(*stream.context, result);
  }
  const std::lock_guard lock(driver().graphs.mutex);
  if (stream.capture == nullptr) return false;
  if (stream.capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return true;
  }
  CUgraphNode node = nullptr;
  result = add_node(*stream.capture->graph, std::move(work), stream.capture_dependencies, node);
  if (result == CUDA_SUCCESS) stream.capture_dependencies = {node};
  return true;
}

void release_object(CUuserObject handle, uint64_t count) {
  const std::shared_ptr<UserObject> object = driver().graphs.objects.find(handle);
  if (object == nullptr) return;
  object->references -= std::min(object->references, count);
  if (object->references > 0) return;
  driver().graphs.objects.remove(handle);
  object->destroy(object->object);
}

}  // namespace tranche::emulator::cuda
