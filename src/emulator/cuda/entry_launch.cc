// Entry points: launches. A kernel costs time on the GPU and computes nothing:
//   - a kernel named `tranche_busy` takes as many microseconds as its first parameter, a 64-bit number, says;
//   - any other takes 5 us for each wave of blocks that the multiprocessors hold at once, and 2 us.

#include <algorithm>
#include <cstring>

#include "emulator/cuda/device_attributes.h"
#include "emulator/cuda/modules.h"

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kLaunchNs = 2000;
constexpr uint64_t kWaveNs = 5000;
constexpr uint64_t kBusyMaxUs = kBacklogMaxNs / 1000;

struct Shape {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
};

CUresult check_shape(const Shape& shape, const Function& function) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.grid_x > 2147483647 || shape.grid_y > 65535 || shape.grid_z > 65535) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.block_x == 0 || shape.block_y == 0 || shape.block_z == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.block_x > 1024 || shape.block_y > 1024 || shape.block_z > 64) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t threads = uint64_t{shape.block_x} * shape.block_y * shape.block_z;
  if (threads > uint64_t{kMaxThreadsPerBlock}) return CUDA_ERROR_INVALID_VALUE;
  const int shared_limit = std::max(function.dynamic_shared_bytes.load(), kSharedBytesPerBlock);
  if (shape.shared_bytes > static_cast<unsigned>(shared_limit)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

uint64_t saturating_multiply(uint64_t a, uint64_t b) {
  return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

uint64_t waves(const Shape& shape, const Board& board) {
  const uint64_t threads = uint64_t{shape.block_x} * shape.block_y * shape.block_z;
  const uint64_t resident = std::max<uint64_t>(board.threads_per_multiprocessor / threads, 1);
  const uint64_t at_once = resident * board.multiprocessors;
  const uint64_t blocks = saturating_multiply(uint64_t{shape.grid_x} * shape.grid_y, shape.grid_z);
  return blocks / at_once + (blocks % at_once != 0 ? 1 : 0);
}

// The first parameter, given as an array of pointers or as a packed buffer in `extra`.
CUresult first_parameter(void** parameters, void** extra, uint64_t& value) {
  constexpr uintptr_t kEnd = 0, kBuffer = 1, kBufferSize = 2;
  if (parameters != nullptr) {
    if (parameters[0] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(&value, parameters[0], sizeof value);
    return CUDA_SUCCESS;
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (size_t i = 0; extra != nullptr && i < 8 && reinterpret_cast<uintptr_t>(extra[i]) != kEnd; i += 2) {
    const auto key = reinterpret_cast<uintptr_t>(extra[i]);
    if (key == kBuffer)
      buffer = extra[i + 1];
    else if (key == kBufferSize)
      bytes = *static_cast<size_t*>(extra[i + 1]);
  }
  if (buffer == nullptr || bytes < sizeof value) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&value, buffer, sizeof value);
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, const Shape& shape, CUstream stream_handle, DefaultStream mode,
                void** parameters, void** extra) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(stream_handle, mode, stream));
  std::shared_ptr<Function> function;
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_TRY(resolve_function(handle, function));
  CUDA_TRY(check_shape(shape, *function));
  uint64_t work_ns = 0;
  if (function->busy) {
    uint64_t microseconds = 0;
    CUDA_TRY(first_parameter(parameters, extra, microseconds));
    work_ns = std::min(microseconds, kBusyMaxUs) * 1000;
  } else {
    const uint64_t count = waves(shape, driver().model().board(stream->context->gpu));
    work_ns = kLaunchNs + std::min(saturating_multiply(count, kWaveNs), kBusyMaxUs * 1000);
  }
  driver().enqueue(*stream, work_ns);
  return CUDA_SUCCESS;
}

CUresult launch_configured(const CUlaunchConfig* configuration, CUfunction function, DefaultStream mode,
                           void** parameters, void** extra) {
  CUDA_TRY(driver().ready());
  if (configuration == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Shape shape{configuration->grid_x,      configuration->grid_y,  configuration->grid_z,
                    configuration->block_x,     configuration->block_y, configuration->block_z,
                    configuration->shared_bytes};
  return launch(function, shape, configuration->stream, mode, parameters, extra);
}

}  // namespace

CUDA_ENTRY cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                          CUstream stream, void** parameters, void** extra) {
  return launch(function, {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes}, stream,
                DefaultStream::legacy, parameters, extra);
}
CUDA_ENTRY cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                               CUstream stream, void** parameters, void** extra) {
  return launch(function, {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes}, stream,
                DefaultStream::per_thread, parameters, extra);
}
CUDA_ENTRY cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z,
                                     unsigned shared_bytes, CUstream stream, void** parameters) {
  return launch(function, {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes}, stream,
                DefaultStream::legacy, parameters, nullptr);
}
CUDA_ENTRY cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                          unsigned grid_z, unsigned block_x, unsigned block_y,
                                          unsigned block_z, unsigned shared_bytes, CUstream stream,
                                          void** parameters) {
  return launch(function, {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes}, stream,
                DefaultStream::per_thread, parameters, nullptr);
}
CUDA_ENTRY cuLaunchKernelEx(const CUlaunchConfig* configuration, CUfunction function, void** parameters,
                            void** extra) {
  return launch_configured(configuration, function, DefaultStream::legacy, parameters, extra);
}
CUDA_ENTRY cuLaunchKernelEx_ptsz(const CUlaunchConfig* configuration, CUfunction function, void** parameters,
                                 void** extra) {
  return launch_configured(configuration, function, DefaultStream::per_thread, parameters, extra);
}

}  // namespace tranche::emulator::cuda
