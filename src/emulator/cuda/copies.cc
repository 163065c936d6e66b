#include "emulator/cuda/copies.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kZeroByUnmapping = uint64_t{1} << 20;  // from here on zeros come from fresh pages

// The run of bytes at `address`, at most `bytes` long; none if nothing of that kind is there.
bool find_run(CUdeviceptr address, uint64_t bytes, bool host_allowed, Piece& piece) {
  Place place;
  if (driver().find_place(address, place)) {
    if (!place.accessible) return false;
    const uint64_t inside = address - place.start;
    piece = place.backing.piece(place.offset + inside, std::min(bytes, place.bytes - inside));
    return piece.bytes > 0;
  }
  if (!host_allowed) return false;
  HostBlock host;
  uint64_t length = bytes;
  if (driver().find_host(address, host)) length = std::min(bytes, host.address + host.bytes - address);
  piece = {reinterpret_cast<uint8_t*>(address), length};
  return address != 0;
}

// Whether `bytes` at `address` are memory of that kind: plain host memory is trusted, device memory looked
// up.
bool is_valid(CUdeviceptr address, uint64_t bytes, CUmemorytype type) {
  if (type == kMemoryHost) {
    Place place;
    return address != 0 && !driver().find_place(address, place);
  }
  while (bytes > 0) {
    Place place;
    if (driver().find_place(address, place)) {
      if (!place.accessible) return false;
      const uint64_t part = std::min(bytes, place.bytes - (address - place.start));
      address += part;
      bytes -= part;
      continue;
    }
    HostBlock host;  // pinned and managed memory has device addresses too
    if (!driver().find_host(address, host)) return type == kMemoryUnified && address != 0;
    const uint64_t part = std::min<uint64_t>(bytes, host.address + host.bytes - address);
    address += part;
    bytes -= part;
  }
  return true;
}

void move(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  Piece target, source;
  while (bytes > 0 && find_run(to, bytes, true, target) && find_run(from, bytes, true, source)) {
    const uint64_t part = std::min(target.bytes, source.bytes);
    if (target.pointer != nullptr && source.pointer != nullptr) {
      std::memmove(target.pointer, source.pointer, part);
    } else if (target.pointer != nullptr) {
      std::memset(target.pointer, kHollowByte, part);
    }
    to += part;
    from += part;
    bytes -= part;
  }
}

// Fills with zeros by giving whole pages back, so that clearing a large buffer costs no memory.
void zero(uint8_t* start, uint64_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(start);
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t last = (address + bytes) / page * page;
  if (bytes < kZeroByUnmapping || madvise(reinterpret_cast<void*>(first), last - first, MADV_REMOVE) != 0) {
    std::memset(start, 0, bytes);
    return;
  }
  std::memset(start, 0, first - address);
  std::memset(reinterpret_cast<void*>(last), 0, address + bytes - last);
}

void fill_bytes(const Piece& piece, uint64_t phase, unsigned value, unsigned element) {
  if (piece.pointer == nullptr) return;
  if (value == 0) {
    zero(piece.pointer, piece.bytes);
    return;
  }
  if (element == 1) {
    std::memset(piece.pointer, static_cast<int>(value), piece.bytes);
    return;
  }
  uint8_t pattern[4];
  std::memcpy(pattern, &value, sizeof pattern);
  for (uint64_t i = 0; i < piece.bytes; ++i) piece.pointer[i] = pattern[(phase + i) % element];
}

// One side of a copy: addresses of rows. Arrays are rows of pitch width times element.
struct Side {
  CUdeviceptr start = 0;
  uint64_t pitch = 0, layer = 0;
  CUmemorytype type = kMemoryHost;
};

CUresult side_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray handle, size_t pitch,
                 size_t height, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D& request, Side& side) {
  side.type = type;
  if (type == kMemoryArray) {
    const std::shared_ptr<Array> array = driver().arrays.find(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_ARRAY3D_DESCRIPTOR& description = array->description;
    const size_t rows = std::max<size_t>(description.height, 1),
                 layers = std::max<size_t>(description.depth, 1);
    side.pitch = description.width * array->element_bytes;
    side.layer = side.pitch * rows;
    side.type = kMemoryDevice;
    if (x > side.pitch || request.width > side.pitch - x || y > rows || request.height > rows - y ||
        z > layers || request.depth > layers - z) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    side.start = array->address + z * side.layer + y * side.pitch + x;
    return CUDA_SUCCESS;
  }
  if (type != kMemoryHost && type != kMemoryDevice && type != kMemoryUnified) return CUDA_ERROR_INVALID_VALUE;
  side.pitch = pitch == 0 ? request.width + x : pitch;
  if (side.pitch < request.width + x && request.height > 1) return CUDA_ERROR_INVALID_VALUE;
  side.layer = side.pitch * (height == 0 ? request.height + y : height);
  const CUdeviceptr base = type == kMemoryHost ? reinterpret_cast<CUdeviceptr>(host) : device;
  side.start = base + z * side.layer + y * side.pitch + x;
  return CUDA_SUCCESS;
}

uint64_t span_of(const Side& side, const CUDA_MEMCPY3D& request) {
  return (request.depth - 1) * side.layer + (request.height - 1) * side.pitch + request.width;
}

CUresult sides_of(const CUDA_MEMCPY3D& request, Side& from, Side& to) {
  constexpr size_t kMost = size_t{1} << 40;
  if (request.width > kMost || request.height > kMost || request.depth > kMost)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(side_of(request.source_type, request.source_host, request.source_device, request.source_array,
                   request.source_pitch, request.source_height, request.source_x, request.source_y,
                   request.source_z, request, from));
  CUDA_TRY(side_of(request.target_type, request.target_host, request.target_device, request.target_array,
                   request.target_pitch, request.target_height, request.target_x, request.target_y,
                   request.target_z, request, to));
  if (request.width == 0 || request.height == 0 || request.depth == 0) return CUDA_SUCCESS;
  const bool valid = is_valid(from.start, span_of(from, request), from.type) &&
                     is_valid(to.start, span_of(to, request), to.type);
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The ordinal of the device that has the byte; -1: the host.
CUdevice holder_of(CUdeviceptr address) {
  Place place;
  return driver().find_place(address, place) ? place.device : -1;
}

}  // namespace

CUDA_MEMCPY3D line(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from, CUmemorytype from_type,
                   size_t bytes) {
  CUDA_MEMCPY3D request{};
  request.source_type = from_type;
  request.source_host = reinterpret_cast<const void*>(from);
  request.source_device = from;
  request.target_type = to_type;
  request.target_host = reinterpret_cast<void*>(to);
  request.target_device = to;
  request.width = bytes;
  request.height = 1;
  request.depth = 1;
  return request;
}

CUresult check_copy(const CUDA_MEMCPY3D& request) {
  Side from, to;
  return sides_of(request, from, to);
}

CUresult copy_in(Stream& stream, const CUDA_MEMCPY3D& request) {
  Side from, to;
  CUDA_TRY(sides_of(request, from, to));
  if (request.width == 0 || request.height == 0 || request.depth == 0) return CUDA_SUCCESS;
  driver().finish_host_functions(stream);
  for (size_t z = 0; z < request.depth; ++z) {
    for (size_t y = 0; y < request.height; ++y) {
      move(to.start + z * to.layer + y * to.pitch, from.start + z * from.layer + y * from.pitch,
           request.width);
    }
  }
  const CopyWay way{holder_of(from.start), holder_of(to.start)};
  driver().enqueue_copy(stream, request.width * request.height * request.depth, way);
  return CUDA_SUCCESS;
}

CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS& request) {
  const unsigned element = request.element_bytes;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  if (request.target % element != 0 || request.width > SIZE_MAX / element) return CUDA_ERROR_INVALID_VALUE;
  if (request.width == 0 || request.height == 0) return CUDA_SUCCESS;
  const size_t row = request.width * element;
  if (request.height > 1 && (request.pitch < row || request.pitch > SIZE_MAX / request.height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t span = (request.height - 1) * request.pitch + row;
  return is_valid(request.target, span, kMemoryDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fill_in(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& request) {
  CUDA_TRY(check_fill(request));
  if (request.width == 0 || request.height == 0) return CUDA_SUCCESS;
  driver().finish_host_functions(stream);
  driver().move_managed(request.target, stream.context->device);
  const uint64_t row = request.width * request.element_bytes;
  for (size_t y = 0; y < request.height; ++y) {
    Piece piece;
    for (uint64_t done = 0; done < row; done += piece.bytes) {
      if (!find_run(request.target + y * request.pitch + done, row - done, true, piece)) break;
      fill_bytes(piece, done, request.value, request.element_bytes);
    }
  }
  const CUdevice here = stream.context->device;
  driver().enqueue_copy(stream, row * request.height, {here, here});
  return CUDA_SUCCESS;
}

namespace {

// Waits or writes down; `run` does it at once.
template <class Run>
CUresult submit(const Order& order, Work work, Run run) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(order.stream, order.mode, stream));
  CUresult result = CUDA_SUCCESS;
  if (order.when == Order::When::now) CUDA_TRY(driver().refuse_in_capture());
  if (captured(*stream, std::move(work), result)) return result;
  CUDA_TRY(run(*stream));
  return order.when == Order::When::now ? driver().synchronise(*stream) : CUDA_SUCCESS;
}

}  // namespace

CUresult submit_copy(const CUDA_MEMCPY3D& request, const Order& order) {
  CUDA_TRY(driver().ready());
  CUDA_TRY(check_copy(request));
  return submit(order, {NodeType::copy, CopyWork{request}},
                [&](Stream& stream) { return copy_in(stream, request); });
}

CUresult submit_fill(const CUDA_MEMSET_NODE_PARAMS& request, const Order& order) {
  CUDA_TRY(driver().ready());
  CUDA_TRY(check_fill(request));
  return submit(order, {NodeType::fill, FillWork{request}},
                [&](Stream& stream) { return fill_in(stream, request); });
}

bool read_word(CUdeviceptr address, size_t bytes, uint64_t& value) {
  Piece piece;
  if (!is_valid(address, bytes, kMemoryDevice) || !find_run(address, bytes, true, piece)) return false;
  value = 0;
  if (piece.pointer != nullptr) std::memcpy(&value, piece.pointer, std::min<size_t>(bytes, piece.bytes));
  return true;
}

bool write_word(CUdeviceptr address, size_t bytes, uint64_t value) {
  Piece piece;
  if (!is_valid(address, bytes, kMemoryDevice) || !find_run(address, bytes, true, piece)) return false;
  if (piece.pointer != nullptr) std::memcpy(piece.pointer, &value, std::min<size_t>(bytes, piece.bytes));
  return true;
}

}  // namespace tranche::emulator::cuda
