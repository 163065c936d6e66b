// Entry points: streams, events and host functions.

#include <algorithm>
#include <cstring>
#include <memory>

#include "emulator/cuda/streams.h"

namespace tranche::emulator::cuda {
namespace {

constexpr int kGreatestPriority = -5;

CUresult create_stream(CUstream* handle, unsigned flags, int priority) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (handle == nullptr || (flags & ~kStreamNonBlocking) != 0) return CUDA_ERROR_INVALID_VALUE;
  static std::atomic<uint64_t> next_id{1};
  auto stream = std::make_shared<Stream>();
  stream->context = context.get();
  stream->owner = context;
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, 0);
  stream->id = next_id.fetch_add(1);
  *handle = driver().streams.add(std::move(stream));
  return CUDA_SUCCESS;
}

// Work that was submitted goes on.
CUresult destroy_stream(CUstream handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Stream> stream = driver().streams.remove(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capturing.load()) leave_capture(*stream);
  return CUDA_SUCCESS;
}

CUresult query_stream(CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  CUDA_TRY(refuse_if_captured(*stream));
  const uint64_t tag = driver().tag_of(*stream);
  const bool done = driver().model().is_done(driver().slot(), stream->context->gpu, tag) &&
                    stream->host->pending.load(std::memory_order_acquire) == 0;
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult synchronise_stream(CUstream handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  CUDA_TRY(refuse_if_captured(*stream));
  return driver().synchronise(*stream);
}

// Whether what the event marks is done; notes when. The caller holds the event's mutex.
bool is_done(Event& event) {
  if (event.shared != nullptr && !event.recorded) return is_shared_done(event);
  if (!event.recorded || event.done_ns != 0) return true;
  DeviceModel& model = driver().model();
  if (!model.is_done(driver().slot(), event.gpu, event.tag)) return false;
  event.done_ns = std::max(event.recorded_ns, model.time_done(driver().slot(), event.gpu, event.tag,
                                                              event.recorded_ns, event.reached_tag));
  return true;
}

void wait_for(Event& event) {
  uint32_t gpu = 0;
  uint64_t tag = 0;
  for (;;) {
    {
      const std::lock_guard lock(event.mutex);
      if (is_done(event)) return;
      if (event.recorded) {
        gpu = event.gpu;
        tag = event.tag;
        break;
      }
    }
    wait_shared(event);
  }
  driver().model().wait(driver().slot(), gpu, tag);
}

CUresult record_event(CUevent handle, CUstream stream_handle, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(stream_handle, mode, stream));
  if (stream->capturing.load()) return capture_record(*stream, handle);
  return record_in_stream(stream, handle);
}

CUresult stream_wait(CUstream handle, CUevent event_handle, unsigned flags, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  if (capture_wait(*stream, event_handle, result)) return result;
  return wait_in_stream(stream, event_handle);
}

CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Event> start = driver().events.find(start_handle);
  const std::shared_ptr<Event> end = driver().events.find(end_handle);
  if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int64_t times[2] = {0, 0};
  for (Event* event : {start.get(), end.get()}) {
    const std::lock_guard lock(event->mutex);
    if (!event->recorded || (event->flags & kEventDisableTiming) != 0) return CUDA_ERROR_INVALID_HANDLE;
    if (!is_done(*event)) return CUDA_ERROR_NOT_READY;
    times[event == end.get() ? 1 : 0] = static_cast<int64_t>(event->done_ns);
    if (start == end) times[0] = times[1];
  }
  *milliseconds = static_cast<float>(static_cast<double>(times[1] - times[0]) / 1e6);
  return CUDA_SUCCESS;
}

CUresult run_host_function(CUstream handle, CUhostFn function, void* data, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  if (captured(*stream, {NodeType::host, HostWork{function, data}}, result)) return result;
  const auto call = [](void* target, void* argument) { reinterpret_cast<CUhostFn>(target)(argument); };
  driver().run_on_host(stream, call, reinterpret_cast<void*>(function), data);
  return CUDA_SUCCESS;
}

struct Callback {
  CUstream stream;
  CUstreamCallback function;
  void* data;
};

CUresult add_callback(CUstream handle, CUstreamCallback function, void* data, unsigned flags,
                      DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(refuse_if_captured(*stream));
  const auto call = [](void* target, void*) {
    const std::unique_ptr<Callback> callback(static_cast<Callback*>(target));
    callback->function(callback->stream, CUDA_SUCCESS, callback->data);
  };
  driver().run_on_host(stream, call, std::make_unique<Callback>(Callback{handle, function, data}).release(),
                       nullptr);
  return CUDA_SUCCESS;
}

CUresult context_and_green(CUstream handle, CUcontext* context, CUgreenCtx* green, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->green == nullptr ? stream->context->handle : nullptr;
  if (green != nullptr) *green = stream->green;
  return CUDA_SUCCESS;
}

constexpr size_t kStreamAttributeBytes = 64;
constexpr int kAttributeMax = 32;

CUresult get_attribute(CUstream handle, int attribute, void* value, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (value == nullptr || attribute < 1 || attribute > kAttributeMax) return CUDA_ERROR_INVALID_VALUE;
  std::memset(value, 0, kStreamAttributeBytes);
  return CUDA_SUCCESS;
}
CUresult set_attribute(CUstream handle, int attribute, const void* value, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  const bool valid = value != nullptr && attribute >= 1 && attribute <= kAttributeMax;
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult copy_attributes(CUstream to, CUstream from, DefaultStream mode) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(to, mode, stream));
  return driver().resolve_stream(from, mode, stream);
}

// A property of a stream, for the functions that read one.
template <class Value, class Read>
CUresult read_stream(CUstream handle, DefaultStream mode, Value* value, Read read) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = read(*stream);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult record_in_stream(const std::shared_ptr<Stream>& stream, CUevent handle) {
  const std::shared_ptr<Event> event = driver().events.find(handle);
  if (event == nullptr || event->context->device != stream->context->device) return CUDA_ERROR_INVALID_HANDLE;
  driver().finish_host_functions(*stream);
  const PoolMoment moment = driver().moment(*stream);
  const std::lock_guard lock(event->mutex);
  event->recorded = true;
  event->capture.reset();
  event->gpu = stream->context->gpu;
  event->tag = moment.tag;
  event->reached_tag = moment.reached;
  event->recorded_ns = driver().model().now();
  event->done_ns = 0;
  if (event->shared != nullptr) record_shared(*event);
  return CUDA_SUCCESS;
}

// On one GPU a process's work is served in order, so waiting is only remembered; for another GPU's event, or
// another process's, the submitting thread waits.
CUresult wait_in_stream(const std::shared_ptr<Stream>& stream, CUevent handle) {
  const std::shared_ptr<Event> event = driver().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context->gpu != stream->context->gpu || event->shared != nullptr) {
    wait_for(*event);
    return CUDA_SUCCESS;
  }
  const std::lock_guard lock(event->mutex);
  if (event->recorded) stream->last_tag.store(std::max(stream->last_tag.load(), event->tag));
  return CUDA_SUCCESS;
}

// A function that takes a stream, in its two forms; EXPRESSION uses `mode`.
#define STREAM_ENTRY(name, parameters, expression)            \
  CUDA_ENTRY name parameters {                                \
    constexpr DefaultStream mode = DefaultStream::legacy;     \
    return expression;                                        \
  }                                                           \
  CUDA_ENTRY name##_ptsz parameters {                         \
    constexpr DefaultStream mode = DefaultStream::per_thread; \
    return expression;                                        \
  }

CUDA_ENTRY cuStreamCreate(CUstream* stream, unsigned flags) { return create_stream(stream, flags, 0); }
CUDA_ENTRY cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return create_stream(stream, flags, priority);
}
CUDA_ENTRY cuStreamDestroy(CUstream stream) { return destroy_stream(stream); }
CUDA_ENTRY cuStreamDestroy_v2(CUstream stream) { return destroy_stream(stream); }

STREAM_ENTRY(cuStreamQuery, (CUstream stream), query_stream(stream, mode))
STREAM_ENTRY(cuStreamSynchronize, (CUstream stream), synchronise_stream(stream, mode))
STREAM_ENTRY(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
             stream_wait(stream, event, flags, mode))
STREAM_ENTRY(cuStreamGetFlags, (CUstream stream, unsigned* flags),
             read_stream(stream, mode, flags, [](const Stream& s) { return s.flags; }))
STREAM_ENTRY(cuStreamGetPriority, (CUstream stream, int* priority),
             read_stream(stream, mode, priority, [](const Stream& s) { return s.priority; }))
STREAM_ENTRY(cuStreamGetId, (CUstream stream, unsigned long long* id),
             read_stream(stream, mode, id,
                         [](const Stream& s) { return static_cast<unsigned long long>(s.id); }))
STREAM_ENTRY(cuStreamGetCtx, (CUstream stream, CUcontext* context),
             read_stream(stream, mode, context, [](const Stream& s) { return s.context->handle; }))
STREAM_ENTRY(cuStreamGetDevice, (CUstream stream, CUdevice* device),
             read_stream(stream, mode, device, [](const Stream& s) { return s.context->device; }))
STREAM_ENTRY(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data),
             run_host_function(stream, function, data, mode))
STREAM_ENTRY(cuLaunchHostFunc_v2, (CUstream stream, CUhostFn function, void* data, unsigned sync_mode),
             sync_mode > 1 ? CUDA_ERROR_INVALID_VALUE : run_host_function(stream, function, data, mode))
STREAM_ENTRY(cuStreamGetCtx_v2, (CUstream stream, CUcontext* context, CUgreenCtx* green),
             context_and_green(stream, context, green, mode))
// Attributes of streams change nothing here and read as zero.
STREAM_ENTRY(cuStreamGetAttribute, (CUstream stream, int attribute, void* value),
             get_attribute(stream, attribute, value, mode))
STREAM_ENTRY(cuStreamSetAttribute, (CUstream stream, int attribute, const void* value),
             set_attribute(stream, attribute, value, mode))
STREAM_ENTRY(cuStreamCopyAttributes, (CUstream to, CUstream from), copy_attributes(to, from, mode))
STREAM_ENTRY(cuStreamAddCallback, (CUstream stream, CUstreamCallback function, void* data, unsigned flags),
             add_callback(stream, function, data, flags, mode))
STREAM_ENTRY(cuEventRecord, (CUevent event, CUstream stream), record_event(event, stream, mode))
STREAM_ENTRY(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
             flags > 1 ? CUDA_ERROR_INVALID_VALUE : record_event(event, stream, mode))

#undef STREAM_ENTRY

CUDA_ENTRY cuEventCreate(CUevent* handle, unsigned flags) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (handle == nullptr || (flags & ~kEventFlagsAll) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = flags;
  *handle = driver().events.add(std::move(event));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuCtxRecordEvent(CUcontext handle, CUevent event) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return record_in_stream(std::shared_ptr<Stream>(context, &context->legacy_stream), event);
}
CUDA_ENTRY cuCtxWaitEvent(CUcontext handle, CUevent event) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Context> context = driver().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return wait_in_stream(std::shared_ptr<Stream>(context, &context->legacy_stream), event);
}

CUDA_ENTRY cuEventDestroy(CUevent event) {
  CUDA_TRY(driver().ready());
  return driver().events.remove(event) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUDA_ENTRY cuEventDestroy_v2(CUevent event) { return cuEventDestroy(event); }

CUDA_ENTRY cuEventQuery(CUevent handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Event> event = driver().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_TRY(driver().fault_of(*event->context));
  const std::lock_guard lock(event->mutex);
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return is_done(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUDA_ENTRY cuEventSynchronize(CUevent handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Event> event = driver().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_TRY(driver().fault_of(*event->context));
  {
    const std::lock_guard lock(event->mutex);
    if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  }
  wait_for(*event);
  driver().settle_pools();
  return driver().fault_of(*event->context);
}

CUDA_ENTRY cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(milliseconds, start, end);
}
CUDA_ENTRY cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(milliseconds, start, end);
}

}  // namespace tranche::emulator::cuda
