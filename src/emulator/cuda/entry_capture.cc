// Entry points: captures: what is submitted to a stream is written into a graph instead of being done.

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "emulator/cuda/graph_nodes.h"
#include "emulator/cuda/streams.h"

namespace tranche::emulator::cuda {
namespace {

enum Status : int { none = 0, active = 1, invalidated = 2 };  // CUstreamCaptureStatus

uint64_t own_thread() { return static_cast<uint64_t>(syscall(SYS_gettid)); }

CUresult begin(CUstream handle, DefaultStream default_stream, int mode, std::shared_ptr<Graph> graph,
               std::vector<CUgraphNode> dependencies) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, default_stream, stream));
  if (mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  Graphs& graphs = driver().graphs;
  auto capture = std::make_shared<Capture>();
  capture->id = graphs.next_id.fetch_add(1);
  capture->graph = graph == nullptr ? new_graph() : std::move(graph);
  capture->origin = handle;
  capture->mode = mode;
  capture->thread = own_thread();
  capture->streams.insert(stream.get());
  stream->capture = std::move(capture);
  stream->capture_dependencies = std::move(dependencies);
  stream->capturing.store(true, std::memory_order_release);
  graphs.captures.fetch_add(1);
  if (mode == 0) graphs.captures_global.fetch_add(1);
  return CUDA_SUCCESS;
}

CUresult begin_capture(CUstream handle, int mode, DefaultStream default_stream) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  return begin(handle, default_stream, mode, nullptr, {});
}

CUresult begin_in_graph(CUstream handle, CUgraph graph_handle, const CUgraphNode* nodes, size_t count,
                        int mode, DefaultStream default_stream) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Graph> graph;
  CUDA_TRY(find_graph(graph_handle, graph));
  if (count > 0 && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return begin(handle, default_stream, mode, std::move(graph), {nodes, nodes + count});
}

void leave(Stream& stream) {
  stream.capturing.store(false, std::memory_order_release);
  stream.capture.reset();
  stream.capture_dependencies.clear();
}

// Whether a stream of the capture has work that the origin does not depend on in the end.
bool is_unjoined(const Capture& capture, const Stream& origin) {
  std::vector<CUgraphNode> open = origin.capture_dependencies;
  std::set<CUgraphNode> reached(open.begin(), open.end());
  while (!open.empty()) {
    const std::shared_ptr<Node> node = driver().graphs.nodes.find(open.back());
    open.pop_back();
    if (node == nullptr) continue;
    for (const CUgraphNode dependency : node->dependencies) {
      if (reached.insert(dependency).second) open.push_back(dependency);
    }
  }
  return std::any_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::any_of(stream->capture_dependencies.begin(), stream->capture_dependencies.end(),
                       [&](CUgraphNode node) { return reached.count(node) == 0; });
  });
}

CUresult end(CUstream handle, CUgraph* graph, DefaultStream default_stream) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, default_stream, stream));
  const std::shared_ptr<Capture> capture = stream->capture;
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != handle) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != 2 && capture->thread != own_thread()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const bool unjoined = !capture->invalidated && is_unjoined(*capture, *stream);
  const std::set<Stream*> members = capture->streams;
  for (Stream* const member : members) leave(*member);
  capture->streams.clear();
  driver().graphs.captures.fetch_sub(1);
  if (capture->mode == 0) driver().graphs.captures_global.fetch_sub(1);
  if (capture->invalidated || unjoined) {
    destroy_graph(capture->graph);
    return unjoined ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = capture->graph->handle;
  return CUDA_SUCCESS;
}

CUresult status_of(const Stream& stream) {
  const bool broken = stream.capture != nullptr && stream.capture->invalidated;
  return static_cast<CUresult>(stream.capture == nullptr ? none : broken ? invalidated : active);
}

CUresult is_capturing(CUstream handle, int* status, DefaultStream mode) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = status_of(*stream);
  return CUDA_SUCCESS;
}

struct Info {
  int* status = nullptr;
  uint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** dependencies = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  size_t* count = nullptr;
};

CUresult information(CUstream handle, const Info& info, DefaultStream mode) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (info.status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info.status = status_of(*stream);
  if (*info.status != active) return CUDA_SUCCESS;
  if (info.id != nullptr) *info.id = stream->capture->id;
  if (info.graph != nullptr) *info.graph = stream->capture->graph->handle;
  if (info.dependencies != nullptr) *info.dependencies = stream->capture_dependencies.data();
  if (info.edges != nullptr) *info.edges = nullptr;
  if (info.count != nullptr) *info.count = stream->capture_dependencies.size();
  return CUDA_SUCCESS;
}

// Flag 0 adds to what the next node depends on, 1 replaces it.
CUresult update_dependencies(CUstream handle, CUgraphNode* nodes, size_t count, unsigned flags,
                             DefaultStream mode) {
  GraphLock lock;
  CUDA_TRY(lock_graphs(lock));
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags > 1 || (count > 0 && nodes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  auto& dependencies = stream->capture_dependencies;
  if (flags == 1) dependencies.clear();
  for (size_t i = 0; i < count; ++i) {
    if (std::find(dependencies.begin(), dependencies.end(), nodes[i]) == dependencies.end()) {
      dependencies.push_back(nodes[i]);
    }
  }
  return CUDA_SUCCESS;
}

CUresult no_interop(CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

void leave_capture(Stream& stream) {
  const std::lock_guard lock(driver().graphs.mutex);
  if (stream.capture == nullptr) return;
  stream.capture->invalidated = true;
  stream.capture->streams.erase(&stream);
  leave(stream);
}

CUresult refuse_if_captured(Stream& stream) {
  if (!stream.capturing.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const std::lock_guard lock(driver().graphs.mutex);
  if (stream.capture == nullptr) return CUDA_SUCCESS;
  stream.capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool legacy_work_breaks_captures(Context& context, CUresult& result) {
  const std::lock_guard lock(driver().graphs.mutex);
  bool broken = false;
  driver().streams.each([&](Stream& stream) {
    const bool blocking = (stream.flags & kStreamNonBlocking) == 0;
    if (stream.context != &context || stream.capture == nullptr || !blocking) return;
    stream.capture->invalidated = true;
    broken = true;
  });
  if (broken) result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  return broken;
}

CUresult capture_record(Stream& stream, CUevent handle) {
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Event> event = driver().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream.capture == nullptr || stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const std::lock_guard event_lock(event->mutex);
  event->capture = stream.capture;
  event->captured_nodes = stream.capture_dependencies;
  return CUDA_SUCCESS;
}

bool capture_wait(Stream& stream, CUevent handle, CUresult& result) {
  if (driver().graphs.captures.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(driver().graphs.mutex);
  const std::shared_ptr<Event> event = driver().events.find(handle);
  if (event == nullptr) return false;
  const std::lock_guard event_lock(event->mutex);
  const std::shared_ptr<Capture> capture = event->capture;
  if (capture == nullptr || capture->streams.empty()) {
    if (stream.capture == nullptr) return false;
    stream.capture->invalidated = true;  // work outside the capture
    result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    return true;
  }
  if (stream.capture != nullptr && stream.capture != capture) {
    result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    return true;
  }
  if (stream.legacy) {
    capture->invalidated = true;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return true;
  }
  stream.capture = capture;
  capture->streams.insert(&stream);
  for (const CUgraphNode node : event->captured_nodes) {
    auto& dependencies = stream.capture_dependencies;
    if (std::find(dependencies.begin(), dependencies.end(), node) == dependencies.end())
      dependencies.push_back(node);
  }
  stream.capturing.store(true, std::memory_order_release);
  result = CUDA_SUCCESS;
  return true;
}

#define CAPTURE_ENTRY(name, parameters, expression)           \
  CUDA_ENTRY name parameters {                                \
    constexpr DefaultStream mode = DefaultStream::legacy;     \
    return expression;                                        \
  }                                                           \
  CUDA_ENTRY name##_ptsz parameters {                         \
    constexpr DefaultStream mode = DefaultStream::per_thread; \
    return expression;                                        \
  }

CAPTURE_ENTRY(cuStreamBeginCapture, (CUstream stream), begin_capture(stream, 0, mode))
CAPTURE_ENTRY(cuStreamBeginCapture_v2, (CUstream stream, int capture_mode),
              begin_capture(stream, capture_mode, mode))
CAPTURE_ENTRY(cuStreamBeginCaptureToGraph,
              (CUstream stream, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData*, size_t count,
               int capture_mode),
              begin_in_graph(stream, graph, nodes, count, capture_mode, mode))
CAPTURE_ENTRY(cuStreamEndCapture, (CUstream stream, CUgraph* graph), end(stream, graph, mode))
CAPTURE_ENTRY(cuStreamIsCapturing, (CUstream stream, int* status), is_capturing(stream, status, mode))
CAPTURE_ENTRY(cuStreamGetCaptureInfo, (CUstream stream, int* status, uint64_t* id),
              information(stream, {status, id, nullptr, nullptr, nullptr, nullptr}, mode))
CAPTURE_ENTRY(cuStreamGetCaptureInfo_v2,
              (CUstream stream, int* status, uint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
               size_t* count),
              information(stream, {status, id, graph, nodes, nullptr, count}, mode))
CAPTURE_ENTRY(cuStreamGetCaptureInfo_v3,
              (CUstream stream, int* status, uint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
               const CUgraphEdgeData** edges, size_t* count),
              information(stream, {status, id, graph, nodes, edges, count}, mode))
CAPTURE_ENTRY(cuStreamUpdateCaptureDependencies,
              (CUstream stream, CUgraphNode* nodes, size_t count, unsigned flags),
              update_dependencies(stream, nodes, count, flags, mode))
CAPTURE_ENTRY(cuStreamUpdateCaptureDependencies_v2,
              (CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData*, size_t count, unsigned flags),
              update_dependencies(stream, nodes, count, flags, mode))
// Captures together with graphics, and captures into a graph that was captured before.
CAPTURE_ENTRY(cuStreamBeginCaptureToCig, (CUstream stream, void*), no_interop(stream, mode))
CAPTURE_ENTRY(cuStreamEndCaptureToCig, (CUstream stream), no_interop(stream, mode))
CAPTURE_ENTRY(cuStreamBeginRecaptureToGraph, (CUstream stream, int, CUgraph, void*, void*),
              no_interop(stream, mode))
#undef CAPTURE_ENTRY

CUDA_ENTRY cuThreadExchangeStreamCaptureMode(int* mode) {
  CUDA_TRY(driver().ready());
  if (mode == nullptr || *mode < 0 || *mode > 2) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, capture_mode_of_thread());
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
