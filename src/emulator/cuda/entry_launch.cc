// Entry points: launches. A kernel costs time on the GPU and computes nothing. Its name says how much:
//   - `tranche_busy`: as many microseconds as its first parameter, a 64-bit number, says, on all
//   multiprocessors;
//   - `tranche_busy_25` (any number up to 100): the same on that percentage of them;
//   - `tranche_fault`: ends in the CUDA error that its first parameter says, which its context is then stuck
//   with;
//   - any other takes 5 us for each wave of blocks that the multiprocessors hold at once, and 2 us, on as
//   many
//     multiprocessors as it has blocks.

#include <algorithm>
#include <cstring>

#include "emulator/cuda/device_attributes.h"
#include "emulator/cuda/modules.h"

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kLaunchNs = 2000;
constexpr uint64_t kWaveNs = 5000;
constexpr uint64_t kBusyMaxUs = kBacklogMaxNs / 1000;
constexpr unsigned kAttributesMax = 64;

CUresult check_shape(const Shape& shape, const Function& function) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.grid_x > 2147483647 || shape.grid_y > 65535 || shape.grid_z > 65535)
    return CUDA_ERROR_INVALID_VALUE;
  if (shape.block_x == 0 || shape.block_y == 0 || shape.block_z == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.block_x > 1024 || shape.block_y > 1024 || shape.block_z > 64) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t threads = uint64_t{shape.block_x} * shape.block_y * shape.block_z;
  if (threads > uint64_t{kMaxThreadsPerBlock}) return CUDA_ERROR_INVALID_VALUE;
  const int shared_limit = std::max(function.dynamic_shared_bytes.load(), kSharedBytesPerBlock);
  return shape.shared_bytes > static_cast<unsigned>(shared_limit) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

uint64_t saturating_multiply(uint64_t a, uint64_t b) {
  return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

uint64_t blocks_of(const Shape& shape) {
  return saturating_multiply(uint64_t{shape.grid_x} * shape.grid_y, shape.grid_z);
}

uint64_t blocks_at_once(const Shape& shape, const Board& board, uint64_t multiprocessors) {
  const uint64_t threads = uint64_t{shape.block_x} * shape.block_y * shape.block_z;
  return std::max<uint64_t>(board.threads_per_multiprocessor / threads, 1) * multiprocessors;
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

// What the work that was queued last will end in.
void plan_fault(Stream& stream, uint64_t result) {
  StickyFault& fault = stream.context->fault;
  fault.tag.store(stream.last_tag.load());
  fault.coming.store(
      result == 0 || result > CUDA_ERROR_UNKNOWN ? CUDA_ERROR_LAUNCH_FAILED : static_cast<int>(result),
      std::memory_order_release);
}

// Time and demand of a launch that is allowed.
CUresult cost_of(const Function& function, const Shape& shape, const Context& context, void** parameters,
                 void** extra, uint64_t& work_ns, uint32_t& demand) {
  const Board& board = driver().model().board(context.gpu);
  const uint64_t all = board.multiprocessors;
  const uint64_t usable = context.multiprocessors == 0 ? all : static_cast<uint64_t>(context.multiprocessors);
  if (function.busy) {
    uint64_t microseconds = 0;
    CUDA_TRY(first_parameter(parameters, extra, microseconds));
    work_ns = std::min(microseconds, kBusyMaxUs) * 1000;
    demand = static_cast<uint32_t>(std::min<uint64_t>(function.demand, usable * 1000 / all));
    return CUDA_SUCCESS;
  }
  const uint64_t blocks = blocks_of(shape), at_once = blocks_at_once(shape, board, usable);
  const uint64_t waves = blocks / at_once + (blocks % at_once != 0 ? 1 : 0);
  const uint64_t each = std::max<uint64_t>(at_once / usable, 1);
  work_ns = kLaunchNs + std::min(saturating_multiply(waves, kWaveNs), kBusyMaxUs * 1000);
  const uint64_t used = std::min(usable, blocks / each + (blocks % each != 0 ? 1 : 0));
  demand = static_cast<uint32_t>(std::max<uint64_t>(used * 1000 / all, 1));
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, const Shape& shape, CUstream stream_handle, DefaultStream mode,
                void** parameters, void** extra) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(stream_handle, mode, stream));
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool may_capture = stream->capturing.load(std::memory_order_relaxed) ||
                           (stream->legacy && driver().graphs.captures.load(std::memory_order_relaxed) != 0);
  if (!may_capture) return launch_on(handle, shape, stream, parameters, extra);
  KernelWork work;
  CUDA_TRY(make_kernel_work({handle, shape.grid_x, shape.grid_y, shape.grid_z, shape.block_x, shape.block_y,
                             shape.block_z, shape.shared_bytes, parameters, extra, nullptr, nullptr},
                            work));
  CUresult result = CUDA_SUCCESS;
  if (captured(*stream, {NodeType::kernel, std::move(work)}, result)) return result;
  return launch_on(handle, shape, stream, parameters, extra);
}

CUresult launch_configured(const CUlaunchConfig* configuration, CUfunction function, DefaultStream mode,
                           void** parameters, void** extra) {
  CUDA_TRY(driver().ready());
  if (configuration == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (configuration->attribute_count > kAttributesMax) return CUDA_ERROR_INVALID_VALUE;
  if (configuration->attribute_count > 0 && configuration->attributes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const Shape shape{configuration->grid_x,      configuration->grid_y,  configuration->grid_z,
                    configuration->block_x,     configuration->block_y, configuration->block_z,
                    configuration->shared_bytes};
  return launch(function, shape, configuration->stream, mode, parameters, extra);
}

// All blocks of a cooperative kernel have to be on the GPU at once.
CUresult launch_cooperative(CUfunction handle, const Shape& shape, CUstream stream_handle, DefaultStream mode,
                            void** parameters) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().resolve_stream(stream_handle, mode, stream));
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_TRY(resolve_function(handle, function));
  CUDA_TRY(check_shape(shape, *function));
  const Board& board = driver().model().board(stream->context->gpu);
  if (blocks_of(shape) > blocks_at_once(shape, board, board.multiprocessors)) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return launch(handle, shape, stream_handle, mode, parameters, nullptr);
}

// The launch functions before CUDA 4 keep the shape and the parameters with the function.
CUresult old_function(CUfunction handle, std::shared_ptr<Function>& function) {
  CUDA_TRY(driver().ready());
  return resolve_function(handle, function);
}

CUresult set_old_parameter(CUfunction handle, int offset, const void* value, size_t bytes) {
  constexpr size_t kParametersMax = 4096;
  std::shared_ptr<Function> function;
  CUDA_TRY(old_function(handle, function));
  if (offset < 0 || value == nullptr || bytes > kParametersMax) return CUDA_ERROR_INVALID_VALUE;
  const size_t end = static_cast<size_t>(offset) + bytes;
  if (end > kParametersMax) return CUDA_ERROR_INVALID_VALUE;
  if (function->old_parameters.size() < end) function->old_parameters.resize(end);
  std::memcpy(function->old_parameters.data() + offset, value, bytes);
  return CUDA_SUCCESS;
}

CUresult launch_old(CUfunction handle, int width, int height, CUstream stream) {
  std::shared_ptr<Function> function;
  CUDA_TRY(old_function(handle, function));
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  Shape shape = function->old_shape;
  shape.grid_x = static_cast<unsigned>(width);
  shape.grid_y = static_cast<unsigned>(height);
  size_t bytes = function->old_parameters.size();
  void* extra[] = {reinterpret_cast<void*>(uintptr_t{1}), function->old_parameters.data(),
                   reinterpret_cast<void*>(uintptr_t{2}), &bytes, nullptr};
  return launch(handle, shape, stream, DefaultStream::legacy, nullptr, extra);
}

// Managed memory that a kernel is given comes to its GPU.
void move_managed_parameters(const Function& function, CUdevice device, void** parameters) {
  if (driver().managed_blocks.load(std::memory_order_relaxed) == 0 || parameters == nullptr) return;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    if (function.parameters[i] != sizeof(CUdeviceptr) || parameters[i] == nullptr) continue;
    CUdeviceptr address = 0;
    std::memcpy(&address, parameters[i], sizeof address);
    driver().move_managed(address, device);
  }
}

}  // namespace

CUresult launch_on(CUfunction handle, const Shape& shape, const std::shared_ptr<Stream>& stream,
                   void** parameters, void** extra) {
  std::shared_ptr<Function> function;
  CUDA_TRY(resolve_function(handle, function));
  CUDA_TRY(check_shape(shape, *function));
  CUDA_TRY(load_function(*function));
  uint64_t work_ns = 0, result = 0;
  uint32_t demand = 1000;
  CUDA_TRY(cost_of(*function, shape, *stream->context, parameters, extra, work_ns, demand));
  if (function->fault) CUDA_TRY(first_parameter(parameters, extra, result));
  move_managed_parameters(*function, stream->context->device, parameters);
  driver().enqueue(*stream, work_ns, demand);
  if (function->fault) plan_fault(*stream, result);
  return CUDA_SUCCESS;
}

// What is not known of a kernel's parameters is not copied: of binaries only the first, of 64 bits.
CUresult make_kernel_work(const CUDA_KERNEL_NODE_PARAMS& request, KernelWork& work) {
  constexpr uintptr_t kBuffer = 1, kBufferSize = 2;
  constexpr size_t kPackedMax = 4096;
  std::shared_ptr<Function> function;
  const CUfunction handle =
      request.function != nullptr ? request.function : reinterpret_cast<CUfunction>(request.kernel);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(resolve_function(handle, function));
  work.function = request.function;
  work.kernel = request.kernel;
  work.context = request.context;
  work.shape = {request.grid_x,  request.grid_y,  request.grid_z,      request.block_x,
                request.block_y, request.block_z, request.shared_bytes};
  CUDA_TRY(check_shape(work.shape, *function));
  for (size_t i = 0; request.parameters != nullptr && i < function->parameters.size(); ++i) {
    const auto from = static_cast<const uint8_t*>(request.parameters[i]);
    if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
    work.parameters.emplace_back(from, from + function->parameters[i]);
    if (i == 0) work.parameters[0].resize(std::max<size_t>(work.parameters[0].size(), sizeof(uint64_t)));
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (size_t i = 0; request.extra != nullptr && i < 8 && request.extra[i] != nullptr; i += 2) {
    const auto key = reinterpret_cast<uintptr_t>(request.extra[i]);
    if (key == kBuffer) buffer = request.extra[i + 1];
    if (key == kBufferSize) bytes = *static_cast<size_t*>(request.extra[i + 1]);
  }
  if (bytes > kPackedMax) return CUDA_ERROR_INVALID_VALUE;
  const auto from = static_cast<const uint8_t*>(buffer);
  if (buffer != nullptr) work.packed.assign(from, from + bytes);
  return CUDA_SUCCESS;
}

CUresult launch_kernel(const KernelWork& work, const std::shared_ptr<Stream>& stream) {
  std::vector<void*> pointers;
  for (const auto& parameter : work.parameters) pointers.push_back(const_cast<uint8_t*>(parameter.data()));
  size_t bytes = work.packed.size();
  void* extra[] = {reinterpret_cast<void*>(uintptr_t{1}), const_cast<uint8_t*>(work.packed.data()),
                   reinterpret_cast<void*>(uintptr_t{2}), &bytes, nullptr};
  const CUfunction handle =
      work.function != nullptr ? work.function : reinterpret_cast<CUfunction>(work.kernel);
  return launch_on(handle, work.shape, stream, pointers.empty() ? nullptr : pointers.data(), extra);
}

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
  return launch_cooperative(function, {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes},
                            stream, DefaultStream::legacy, parameters);
}
CUDA_ENTRY cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                          unsigned grid_z, unsigned block_x, unsigned block_y,
                                          unsigned block_z, unsigned shared_bytes, CUstream stream,
                                          void** parameters) {
  return launch_cooperative(function, {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes},
                            stream, DefaultStream::per_thread, parameters);
}
CUDA_ENTRY cuLaunchKernelEx(const CUlaunchConfig* configuration, CUfunction function, void** parameters,
                            void** extra) {
  return launch_configured(configuration, function, DefaultStream::legacy, parameters, extra);
}
CUDA_ENTRY cuLaunchKernelEx_ptsz(const CUlaunchConfig* configuration, CUfunction function, void** parameters,
                                 void** extra) {
  return launch_configured(configuration, function, DefaultStream::per_thread, parameters, extra);
}

// One launch for each of several devices.
CUDA_ENTRY cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count,
                                                unsigned flags) {
  CUDA_TRY(driver().ready());
  if (launches == nullptr || count == 0 || flags > 3) return CUDA_ERROR_INVALID_VALUE;
  if (count > static_cast<unsigned>(driver().device_count())) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUDA_LAUNCH_PARAMS& one = launches[i];
    if (one.stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Shape shape{one.grid_x,  one.grid_y,  one.grid_z,      one.block_x,
                      one.block_y, one.block_z, one.shared_bytes};
    CUDA_TRY(launch_cooperative(one.function, shape, one.stream, DefaultStream::legacy, one.parameters));
  }
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  std::shared_ptr<Function> function;
  CUDA_TRY(old_function(handle, function));
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  function->old_shape.block_x = static_cast<unsigned>(x);
  function->old_shape.block_y = static_cast<unsigned>(y);
  function->old_shape.block_z = static_cast<unsigned>(z);
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuFuncSetSharedSize(CUfunction handle, unsigned bytes) {
  std::shared_ptr<Function> function;
  CUDA_TRY(old_function(handle, function));
  function->old_shape.shared_bytes = bytes;
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuParamSetSize(CUfunction handle, unsigned bytes) {
  const uint8_t none = 0;
  std::shared_ptr<Function> function;
  CUDA_TRY(old_function(handle, function));
  if (bytes > 4096) return CUDA_ERROR_INVALID_VALUE;
  function->old_parameters.resize(bytes);
  return set_old_parameter(handle, 0, &none, 0);
}
CUDA_ENTRY cuParamSeti(CUfunction handle, int offset, unsigned value) {
  return set_old_parameter(handle, offset, &value, sizeof value);
}
CUDA_ENTRY cuParamSetf(CUfunction handle, int offset, float value) {
  return set_old_parameter(handle, offset, &value, sizeof value);
}
CUDA_ENTRY cuParamSetv(CUfunction handle, int offset, void* value, unsigned bytes) {
  return set_old_parameter(handle, offset, value, bytes);
}
CUDA_ENTRY cuLaunch(CUfunction function) { return launch_old(function, 1, 1, nullptr); }
CUDA_ENTRY cuLaunchGrid(CUfunction function, int width, int height) {
  return launch_old(function, width, height, nullptr);
}
CUDA_ENTRY cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return launch_old(function, width, height, stream);
}

}  // namespace tranche::emulator::cuda
