// Entry points: copies and fills of bytes in rows and planes. The bytes really move, at once and in the order
// of submission, which is one of the orders that streams allow; the synchronous forms wait for the GPU.

#include "emulator/cuda/copies.h"

namespace tranche::emulator::cuda {
namespace {

CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

CUresult to_device(CUdeviceptr to, const void* from, size_t bytes, const Order& order) {
  return submit_copy(line(to, kMemoryDevice, number(from), kMemoryUnified, bytes), order);
}
CUresult to_host(void* to, CUdeviceptr from, size_t bytes, const Order& order) {
  return submit_copy(line(number(to), kMemoryUnified, from, kMemoryDevice, bytes), order);
}
CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, const Order& order) {
  return submit_copy(line(to, kMemoryDevice, from, kMemoryDevice, bytes), order);
}
CUresult anywhere(CUdeviceptr to, CUdeviceptr from, size_t bytes, const Order& order) {
  return submit_copy(line(to, kMemoryUnified, from, kMemoryUnified, bytes), order);
}

CUresult plane(const CUDA_MEMCPY2D* from, const Order& order) {
  CUDA_TRY(driver().ready());
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D request{};
  request.source_x = from->source_x;
  request.source_y = from->source_y;
  request.source_type = from->source_type;
  request.source_host = from->source_host;
  request.source_device = from->source_device;
  request.source_array = from->source_array;
  request.source_pitch = from->source_pitch;
  request.target_x = from->target_x;
  request.target_y = from->target_y;
  request.target_type = from->target_type;
  request.target_host = from->target_host;
  request.target_device = from->target_device;
  request.target_array = from->target_array;
  request.target_pitch = from->target_pitch;
  request.width = from->width;
  request.height = from->height;
  request.depth = 1;
  return submit_copy(request, order);
}

CUresult volume(const CUDA_MEMCPY3D* request, const Order& order) {
  CUDA_TRY(driver().ready());
  return request == nullptr ? CUDA_ERROR_INVALID_VALUE : submit_copy(*request, order);
}

CUresult fill(CUdeviceptr to, unsigned element_bytes, unsigned value, size_t count, const Order& order) {
  return submit_fill({to, 0, value, element_bytes, count, 1}, order);
}

CUresult fill_plane(CUdeviceptr to, size_t pitch, unsigned element_bytes, unsigned value, size_t width,
                    size_t height, const Order& order) {
  return submit_fill({to, pitch, value, element_bytes, width, height}, order);
}

// A place in an array as a request has it: its offset counts bytes in one row.
CUDA_MEMCPY3D array_line(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes) {
  CUDA_MEMCPY3D request = line(0, kMemoryUnified, 0, kMemoryUnified, bytes);
  if (to != nullptr) {
    request.target_type = kMemoryArray;
    request.target_array = to;
    request.target_x = to_offset;
  }
  if (from != nullptr) {
    request.source_type = kMemoryArray;
    request.source_array = from;
    request.source_x = from_offset;
  }
  return request;
}

CUresult to_array(CUarray to, size_t offset, CUdeviceptr from, CUmemorytype type, size_t bytes,
                  const Order& order) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D request = array_line(to, offset, nullptr, 0, bytes);
  request.source_type = type;
  request.source_host = reinterpret_cast<const void*>(from);
  request.source_device = from;
  return submit_copy(request, order);
}

CUresult from_array(CUdeviceptr to, CUmemorytype type, CUarray from, size_t offset, size_t bytes,
                    const Order& order) {
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D request = array_line(nullptr, 0, from, offset, bytes);
  request.target_type = type;
  request.target_host = reinterpret_cast<void*>(to);
  request.target_device = to;
  return submit_copy(request, order);
}

CUresult between_arrays(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes,
                        const Order& order) {
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit_copy(array_line(to, to_offset, from, from_offset, bytes), order);
}

// A batch: the first copy that fails ends it, and its number is answered.
CUresult batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
               const CUmemcpyAttributes* attributes, const size_t* indices, size_t attribute_count,
               size_t* failed, const Order& order) {
  CUDA_TRY(driver().ready());
  if (failed != nullptr) *failed = SIZE_MAX;
  if (to == nullptr || from == nullptr || sizes == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (attribute_count > 0 && (attributes == nullptr || indices == nullptr || attribute_count > count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (order.stream == nullptr) return CUDA_ERROR_INVALID_VALUE;  // not for the legacy stream
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = anywhere(to[i], from[i], sizes[i], order);
    if (result == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return result;
  }
  return CUDA_SUCCESS;
}

struct OperandSide {
  CUmemorytype type = kMemoryUnified;
  CUdeviceptr address = 0;
  CUarray array = nullptr;
  size_t pitch = 0, height = 0;
  CUoffset3D offset{0, 0, 0};
};

CUresult operand(const CUmemcpy3DOperand& from, const CUDA_MEMCPY3D_BATCH_OP& operation, OperandSide& side) {
  if (from.type == 1) {
    side.address = from.pointer.address;
    side.pitch = from.pointer.row_length == 0 ? operation.extent.width : from.pointer.row_length;
    side.height = from.pointer.layer_height == 0 ? operation.extent.height : from.pointer.layer_height;
    return CUDA_SUCCESS;
  }
  if (from.type != 2) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Array> array = driver().arrays.find(from.array.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  side.type = kMemoryArray;
  side.array = from.array.array;
  side.offset = {from.array.offset.x * array->element_bytes, from.array.offset.y, from.array.offset.z};
  return CUDA_SUCCESS;
}

CUresult copy_operation(const CUDA_MEMCPY3D_BATCH_OP& operation, const Order& order) {
  OperandSide from, to;
  CUDA_TRY(operand(operation.source, operation, from));
  CUDA_TRY(operand(operation.target, operation, to));
  CUDA_MEMCPY3D request{};
  request.source_type = from.type;
  request.source_device = from.address;
  request.source_array = from.array;
  request.source_pitch = from.pitch;
  request.source_height = from.height;
  request.source_x = from.offset.x;
  request.source_y = from.offset.y;
  request.source_z = from.offset.z;
  request.target_type = to.type;
  request.target_device = to.address;
  request.target_array = to.array;
  request.target_pitch = to.pitch;
  request.target_height = to.height;
  request.target_x = to.offset.x;
  request.target_y = to.offset.y;
  request.target_z = to.offset.z;
  request.width = operation.extent.width;
  request.height = operation.extent.height;
  request.depth = operation.extent.depth;
  return submit_copy(request, order);
}

CUresult batch_volumes(size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed,
                       unsigned long long flags, const Order& order) {
  CUDA_TRY(driver().ready());
  if (failed != nullptr) *failed = SIZE_MAX;
  if (count == 0 || operations == nullptr || flags != 0 || order.stream == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = copy_operation(operations[i], order);
    if (result == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return result;
  }
  return CUDA_SUCCESS;
}

constexpr Order kNow{nullptr, DefaultStream::legacy, Order::When::now};
constexpr Order kNowPerThread{nullptr, DefaultStream::per_thread, Order::When::now};

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
#define COPY_IN_STREAM(name, parameters, expression)                 \
  CUDA_ENTRY name parameters {                                       \
    const Order order = in_order(stream, DefaultStream::legacy);     \
    return expression;                                               \
  }                                                                  \
  CUDA_ENTRY name##_ptsz parameters {                                \
    const Order order = in_order(stream, DefaultStream::per_thread); \
    return expression;                                               \
  }

COPY_NOW(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), anywhere(to, from, bytes, order))
COPY_NOW(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes), to_device(to, from, bytes, order))
COPY_NOW(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes), to_host(to, from, bytes, order))
COPY_NOW(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), on_device(to, from, bytes, order))
COPY_NOW(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
         to_array(to, offset, from, kMemoryDevice, bytes, order))
COPY_NOW(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
         from_array(to, kMemoryDevice, from, offset, bytes, order))
COPY_NOW(cuMemcpyHtoA_v2, (CUarray to, size_t offset, const void* from, size_t bytes),
         to_array(to, offset, number(from), kMemoryHost, bytes, order))
COPY_NOW(cuMemcpyAtoH_v2, (void* to, CUarray from, size_t offset, size_t bytes),
         from_array(number(to), kMemoryHost, from, offset, bytes, order))
COPY_NOW(cuMemcpyAtoA_v2, (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
         between_arrays(to, to_offset, from, from_offset, bytes, order))
COPY_NOW(cuMemcpyPeer, (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes),
         on_device(to, from, bytes, order))
COPY_NOW(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* request), plane(request, order))
COPY_NOW(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* request), plane(request, order))
COPY_NOW(cuMemcpy3D_v2, (const CUDA_MEMCPY3D* request), volume(request, order))
COPY_NOW(cuMemcpy3DPeer, (const CUDA_MEMCPY3D* request), volume(request, order))
COPY_NOW(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count), fill(to, 1, value, count, order))
COPY_NOW(cuMemsetD16_v2, (CUdeviceptr to, unsigned short value, size_t count),
         fill(to, 2, value, count, order))
COPY_NOW(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t count), fill(to, 4, value, count, order))
COPY_NOW(cuMemsetD2D8_v2, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
         fill_plane(to, pitch, 1, value, width, height, order))
COPY_NOW(cuMemsetD2D16_v2, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
         fill_plane(to, pitch, 2, value, width, height, order))
COPY_NOW(cuMemsetD2D32_v2, (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height),
         fill_plane(to, pitch, 4, value, width, height, order))

COPY_IN_STREAM(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               anywhere(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
               to_device(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
               to_host(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               on_device(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpyHtoAAsync_v2,
               (CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream),
               to_array(to, offset, number(from), kMemoryHost, bytes, order))
COPY_IN_STREAM(cuMemcpyAtoHAsync_v2, (void* to, CUarray from, size_t offset, size_t bytes, CUstream stream),
               from_array(number(to), kMemoryHost, from, offset, bytes, order))
COPY_IN_STREAM(cuMemcpyPeerAsync,
               (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream),
               on_device(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* request, CUstream stream), plane(request, order))
COPY_IN_STREAM(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* request, CUstream stream), volume(request, order))
COPY_IN_STREAM(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D* request, CUstream stream), volume(request, order))
COPY_IN_STREAM(cuMemcpyBatchAsync,
               (CUdeviceptr * to, CUdeviceptr* from, size_t* sizes, size_t count,
                CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count, size_t* failed,
                CUstream stream),
               batch(to, from, sizes, count, attributes, indices, attribute_count, failed, order))
COPY_IN_STREAM(cuMemcpyBatchAsync_v2,
               (CUdeviceptr * to, CUdeviceptr* from, size_t* sizes, size_t count,
                CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count, CUstream stream),
               batch(to, from, sizes, count, attributes, indices, attribute_count, nullptr, order))
COPY_IN_STREAM(cuMemcpy3DBatchAsync,
               (size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed, unsigned long long flags,
                CUstream stream),
               batch_volumes(count, operations, failed, flags, order))
COPY_IN_STREAM(cuMemcpy3DBatchAsync_v2,
               (size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, unsigned long long flags, CUstream stream),
               batch_volumes(count, operations, nullptr, flags, order))
COPY_IN_STREAM(cuMemcpyWithAttributesAsync,
               (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes* attributes,
                CUstream stream),
               attributes == nullptr ? CUDA_ERROR_INVALID_VALUE : anywhere(to, from, bytes, order))
COPY_IN_STREAM(cuMemcpy3DWithAttributesAsync,
               (CUDA_MEMCPY3D_BATCH_OP * operation, unsigned long long flags, CUstream stream),
               batch_volumes(1, operation, nullptr, flags, order))
COPY_IN_STREAM(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
               fill(to, 1, value, count, order))
COPY_IN_STREAM(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
               fill(to, 2, value, count, order))
COPY_IN_STREAM(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream),
               fill(to, 4, value, count, order))
COPY_IN_STREAM(cuMemsetD2D8Async,
               (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                CUstream stream),
               fill_plane(to, pitch, 1, value, width, height, order))
COPY_IN_STREAM(cuMemsetD2D16Async,
               (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                CUstream stream),
               fill_plane(to, pitch, 2, value, width, height, order))
COPY_IN_STREAM(cuMemsetD2D32Async,
               (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream),
               fill_plane(to, pitch, 4, value, width, height, order))

#undef COPY_NOW
#undef COPY_IN_STREAM

}  // namespace tranche::emulator::cuda
