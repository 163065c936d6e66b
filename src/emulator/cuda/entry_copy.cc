// Entry points: copies and fills. The bytes really move, at once and in the order of submission, which is
// one of the orders that streams allow; the synchronous forms wait for the GPU first.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kZeroByUnmapping = uint64_t{1} << 20;  // from here on zeros come from fresh pages

enum class Place { host, device, either };
enum class When { now, in_stream };

// Whether `bytes` at `address` may be read or written as memory of that place.
bool is_valid(CUdeviceptr address, size_t bytes, Place place) {
  Block block;
  CUdevice ordinal = 0;
  if (driver().find_block(address, block, ordinal)) {
    return place != Place::host && bytes <= block.address + block.bytes - address;
  }
  if (place != Place::device) return address != 0;
  HostBlock host;  // pinned and managed memory has device addresses too
  return driver().find_host(address, host) && bytes <= host.address + host.bytes - address;
}

struct Order {
  CUstream stream = nullptr;
  DefaultStream mode = DefaultStream::legacy;
  When when = When::now;
};

// Waits for what has to come before the bytes are touched, and for as long as a fault makes copies take.
CUresult take_turn(const Order& order, size_t bytes = 0) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(order.stream, order.mode, stream));
  if (order.when == When::now)
    CUDA_TRY(driver().synchronise(*stream));
  else
    driver().finish_host_functions(*stream);
  driver().model().pace_copy(stream->context->gpu, bytes);
  return driver().fault_on(stream->context->gpu);
}

CUresult copy(CUdeviceptr to, Place to_place, CUdeviceptr from, Place from_place, size_t bytes,
              const Order& order) {
  CUDA_TRY(driver().ready());
  if (bytes == 0) return take_turn(order);
  if (!is_valid(to, bytes, to_place) || !is_valid(from, bytes, from_place)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(take_turn(order, bytes));
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

// One side of a two-dimensional copy.
struct Plane {
  CUdeviceptr start = 0;
  size_t pitch = 0;
  Place place = Place::host;
};

CUresult plane_of(CUmemorytype type, const void* host, CUdeviceptr device, size_t pitch, size_t x, size_t y,
                  const CUDA_MEMCPY2D& request, Plane& plane) {
  if (type != kMemoryHost && type != kMemoryDevice && type != kMemoryUnified) {
    return CUDA_ERROR_INVALID_VALUE;  // arrays are not modelled
  }
  plane.pitch = pitch == 0 ? request.width + x : pitch;
  if (plane.pitch < request.width + x) return CUDA_ERROR_INVALID_VALUE;
  plane.place = type == kMemoryHost ? Place::host : type == kMemoryDevice ? Place::device : Place::either;
  plane.start = (type == kMemoryHost ? number(host) : device) + y * plane.pitch + x;
  return CUDA_SUCCESS;
}

CUresult copy_planes(const CUDA_MEMCPY2D* request, const Order& order) {
  CUDA_TRY(driver().ready());
  if (request == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Plane from, to;
  CUDA_TRY(plane_of(request->source_type, request->source_host, request->source_device, request->source_pitch,
                    request->source_x, request->source_y, *request, from));
  CUDA_TRY(plane_of(request->target_type, request->target_host, request->target_device, request->target_pitch,
                    request->target_x, request->target_y, *request, to));
  if (request->width == 0 || request->height == 0) return take_turn(order);
  const size_t from_span = (request->height - 1) * from.pitch + request->width;
  const size_t to_span = (request->height - 1) * to.pitch + request->width;
  if (!is_valid(from.start, from_span, from.place) || !is_valid(to.start, to_span, to.place)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_TRY(take_turn(order, request->width * request->height));
  for (size_t row = 0; row < request->height; ++row) {
    std::memmove(reinterpret_cast<void*>(to.start + row * to.pitch),
                 reinterpret_cast<const void*>(from.start + row * from.pitch), request->width);
  }
  return CUDA_SUCCESS;
}

// Fills with zeros by giving whole pages back, so that clearing a large buffer costs no memory.
void zero(CUdeviceptr address, size_t bytes) {
  const auto page = static_cast<CUdeviceptr>(sysconf(_SC_PAGESIZE));
  const CUdeviceptr first = (address + page - 1) / page * page;
  const CUdeviceptr last = (address + bytes) / page * page;
  const auto clear = [](CUdeviceptr from, CUdeviceptr to) {
    std::memset(reinterpret_cast<void*>(from), 0, to - from);
  };
  Block block;
  CUdevice ordinal = 0;
  if (bytes < kZeroByUnmapping || !driver().find_block(address, block, ordinal) ||
      madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    clear(address, address + bytes);
    return;
  }
  clear(address, first);
  clear(last, address + bytes);
}

template <class Value>
CUresult fill(CUdeviceptr address, Value value, size_t count, const Order& order) {
  CUDA_TRY(driver().ready());
  if (address % sizeof(Value) != 0 || count > SIZE_MAX / sizeof(Value)) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return take_turn(order);
  if (!is_valid(address, count * sizeof(Value), Place::device)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(take_turn(order));
  if (value == 0)
    zero(address, count * sizeof(Value));
  else
    std::fill_n(reinterpret_cast<Value*>(address), count, value);
  return CUDA_SUCCESS;
}

template <class Value>
CUresult fill_plane(CUdeviceptr address, size_t pitch, Value value, size_t width, size_t height,
                    const Order& order) {
  CUDA_TRY(driver().ready());
  if (width > SIZE_MAX / sizeof(Value)) return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && (pitch < width * sizeof(Value) || pitch > SIZE_MAX / height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (width == 0 || height == 0) return take_turn(order);
  if (!is_valid(address, (height - 1) * pitch + width * sizeof(Value), Place::device)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t row = 0; row < height; ++row) CUDA_TRY(fill(address + row * pitch, value, width, order));
  return CUDA_SUCCESS;
}

constexpr Order kNow{nullptr, DefaultStream::legacy, When::now};
constexpr Order kNowPerThread{nullptr, DefaultStream::per_thread, When::now};

Order in(CUstream stream) { return {stream, DefaultStream::legacy, When::in_stream}; }
Order in_per_thread(CUstream stream) { return {stream, DefaultStream::per_thread, When::in_stream}; }

CUresult to_device(CUdeviceptr to, const void* from, size_t bytes, const Order& order) {
  return copy(to, Place::device, number(from), Place::either, bytes, order);
}
CUresult to_host(void* to, CUdeviceptr from, size_t bytes, const Order& order) {
  return copy(number(to), Place::either, from, Place::device, bytes, order);
}
CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, const Order& order) {
  return copy(to, Place::device, from, Place::device, bytes, order);
}
CUresult anywhere(CUdeviceptr to, CUdeviceptr from, size_t bytes, const Order& order) {
  return copy(to, Place::either, from, Place::either, bytes, order);
}

}  // namespace

// A synchronous function in its two forms: PARAMETERS in parentheses, EXPRESSION uses `order`.
#define COPY_NOW(name, parameters, expression) \
  CUDA_ENTRY name parameters {                 \
    const Order& order = kNow;                 \
    return expression;                         \
  }                                            \
  CUDA_ENTRY name##_ptds parameters {          \
    const Order& order = kNowPerThread;        \
    return expression;                         \
  }
// A function that takes a stream, in its two forms.
#define COPY_IN_STREAM(name, parameters, expression) \
  CUDA_ENTRY name parameters {                       \
    const Order order = in(stream);                  \
    return expression;                               \
  }                                                  \
  CUDA_ENTRY name##_ptsz parameters {                \
    const Order order = in_per_thread(stream);       \
    return expression;                               \
  }

COPY_NOW(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), anywhere(to, from, bytes, order))
COPY_NOW(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes), to_device(to, from, bytes, order))
COPY_NOW(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes), to_host(to, from, bytes, order))
COPY_NOW(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), on_device(to, from, bytes, order))
COPY_NOW(cuMemcpyPeer, (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes),
         on_device(to, from, bytes, order))
COPY_NOW(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* request), copy_planes(request, order))
COPY_NOW(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* request), copy_planes(request, order))
COPY_NOW(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count), fill(to, value, count, order))
COPY_NOW(cuMemsetD16_v2, (CUdeviceptr to, unsigned short value, size_t count), fill(to, value, count, order))
COPY_NOW(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t count), fill(to, value, count, order))
COPY_NOW(cuMemsetD2D8_v2, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
         fill_plane(to, pitch, value, width, height, order))
COPY_NOW(cuMemsetD2D16_v2, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
         fill_plane(to, pitch, value, width, height, order))
COPY_NOW(cuMemsetD2D32_v2, (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height),
         fill_plane(to, pitch, value, width, height, order))

COPY_IN_STREAM(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               anywhere(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
               to_device(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
               to_host(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               on_device(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpyPeerAsync,
               (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream),
               on_device(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* request, CUstream stream),
               copy_planes(request, order))
COPY_IN_STREAM(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
               fill(to, value, count, order))
COPY_IN_STREAM(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
               fill(to, value, count, order))
COPY_IN_STREAM(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream),
               fill(to, value, count, order))
COPY_IN_STREAM(cuMemsetD2D8Async,
               (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                CUstream stream),
               fill_plane(to, pitch, value, width, height, order))
COPY_IN_STREAM(cuMemsetD2D16Async,
               (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                CUstream stream),
               fill_plane(to, pitch, value, width, height, order))
COPY_IN_STREAM(cuMemsetD2D32Async,
               (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream),
               fill_plane(to, pitch, value, width, height, order))

#undef COPY_NOW
#undef COPY_IN_STREAM

}  // namespace tranche::emulator::cuda
