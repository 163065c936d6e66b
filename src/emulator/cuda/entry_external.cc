// Entry points: words of memory in streams, and memory and semaphores of other interfaces. An external memory
// is taken from a file that this driver exported, an external semaphore from any descriptor: a counter in
// this process.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>

#include "emulator/cuda/copies.h"
#include "emulator/cuda/streams.h"

namespace tranche::emulator::cuda {
namespace {

constexpr int kWait32 = 1, kWrite32 = 2, kFlush = 3, kWait64 = 4, kWrite64 = 5, kBarrier = 6;
constexpr unsigned kBatchMax = 256;

struct ExternalMemory {
  CUexternalMemory handle = nullptr;
  std::shared_ptr<Physical> physical;
};

struct ExternalSemaphore {
  CUexternalSemaphore handle = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  unsigned long long value = 0;
};

HandleTable<CUexternalMemory, ExternalMemory>& memories() {
  static auto* const table = new HandleTable<CUexternalMemory, ExternalMemory>;
  return *table;
}
HandleTable<CUexternalSemaphore, ExternalSemaphore>& semaphores() {
  static auto* const table = new HandleTable<CUexternalSemaphore, ExternalSemaphore>;
  return *table;
}

// How a word is compared: 0 at least (in the cyclic sense), 1 equal, 2 any common bit, 3 not (or) all bits.
bool is_met(uint64_t word, uint64_t value, unsigned flags, bool wide) {
  const uint64_t mask = wide ? UINT64_MAX : UINT32_MAX;
  word &= mask;
  value &= mask;
  switch (flags & 3) {
    case 0:
      return wide ? static_cast<int64_t>(word - value) >= 0
                  : static_cast<int32_t>(static_cast<uint32_t>(word - value)) >= 0;
    case 1:
      return word == value;
    case 2:
      return (word & value) != 0;
    default:
      return (~(word | value) & mask) != 0;
  }
}

CUresult wait_word(const CUstreamBatchMemOpParams& operation, bool wide) {
  for (;;) {
    uint64_t word = 0;
    if (!read_word(operation.address, wide ? 8 : 4, word)) return CUDA_ERROR_INVALID_VALUE;
    if (is_met(word, operation.value, operation.flags, wide)) return CUDA_SUCCESS;
    usleep(50);  // another thread of this program, or another process, writes it
  }
}

CUresult submit_words(CUstream handle, DefaultStream mode, const CUstreamBatchMemOpParams* operations,
                      unsigned count, unsigned flags) {
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(handle, mode, stream));
  if (operations == nullptr || count == 0 || count > kBatchMax || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  if (captured(*stream, {NodeType::words, WordsWork{{operations, operations + count}, flags}}, result))
    return result;
  for (unsigned i = 0; i < count; ++i) CUDA_TRY(do_word(operations[i], stream));
  return CUDA_SUCCESS;
}

CUresult submit_word(CUstream stream, DefaultStream mode, int operation, CUdeviceptr address, uint64_t value,
                     unsigned flags) {
  const CUstreamBatchMemOpParams one{operation, 0, address, value, flags, 0, 0, 0};
  return submit_words(stream, mode, &one, 1, 0);
}

template <class Parameters>
CUresult submit_semaphores(const CUexternalSemaphore* handles, const Parameters* parameters, unsigned count,
                           CUstream stream_handle, bool signal, DefaultStream mode) {
  constexpr unsigned kMost = 1024;
  std::shared_ptr<Stream> stream;
  CUDA_TRY(driver().resolve_stream(stream_handle, mode, stream));
  if (handles == nullptr || parameters == nullptr || count == 0 || count > kMost)
    return CUDA_ERROR_INVALID_VALUE;
  SemaphoreWork work;
  for (unsigned i = 0; i < count; ++i) {
    work.semaphores.push_back(handles[i]);
    work.values.push_back(parameters[i].fence_value);
  }
  CUresult result = CUDA_SUCCESS;
  const NodeType type = signal ? NodeType::signal_semaphore : NodeType::wait_semaphore;
  if (captured(*stream, {type, work}, result)) return result;
  return do_semaphores(work, signal, stream);
}

}  // namespace

CUresult do_word(const CUstreamBatchMemOpParams& operation, const std::shared_ptr<Stream>& stream) {
  const bool wide = operation.operation == kWait64 || operation.operation == kWrite64;
  if (operation.operation == kFlush || operation.operation == kBarrier) return CUDA_SUCCESS;
  if (operation.address % (wide ? 8 : 4) != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  if (!read_word(operation.address, wide ? 8 : 4, word)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(driver().synchronise(*stream));  // what was submitted before comes before
  if (operation.operation == kWait32 || operation.operation == kWait64) return wait_word(operation, wide);
  if (operation.operation != kWrite32 && operation.operation != kWrite64) return CUDA_ERROR_NOT_SUPPORTED;
  return write_word(operation.address, wide ? 8 : 4, operation.value) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_semaphores(const SemaphoreWork& work, bool signal, const std::shared_ptr<Stream>& stream) {
  CUDA_TRY(driver().synchronise(*stream));
  for (size_t i = 0; i < work.semaphores.size(); ++i) {
    const std::shared_ptr<ExternalSemaphore> semaphore = semaphores().find(work.semaphores[i]);
    if (semaphore == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    std::unique_lock lock(semaphore->mutex);
    if (signal) {
      semaphore->value = std::max(semaphore->value, work.values[i]);
      semaphore->changed.notify_all();
    } else {
      semaphore->changed.wait(lock, [&] { return semaphore->value >= work.values[i]; });
    }
  }
  return CUDA_SUCCESS;
}

#define EXTERNAL_ENTRY(name, parameters, expression)          \
  CUDA_ENTRY name parameters {                                \
    constexpr DefaultStream mode = DefaultStream::legacy;     \
    return expression;                                        \
  }                                                           \
  CUDA_ENTRY name##_ptsz parameters {                         \
    constexpr DefaultStream mode = DefaultStream::per_thread; \
    return expression;                                        \
  }

// The first versions, before CUDA 12, had to be switched on; here they do the same.
EXTERNAL_ENTRY(cuStreamWriteValue32, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags),
               submit_word(stream, mode, kWrite32, address, value, flags))
EXTERNAL_ENTRY(cuStreamWaitValue32, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags),
               submit_word(stream, mode, kWait32, address, value, flags))
EXTERNAL_ENTRY(cuStreamWriteValue64, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags),
               submit_word(stream, mode, kWrite64, address, value, flags))
EXTERNAL_ENTRY(cuStreamWaitValue64, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags),
               submit_word(stream, mode, kWait64, address, value, flags))
EXTERNAL_ENTRY(cuStreamBatchMemOp,
               (CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags),
               submit_words(stream, mode, operations, count, flags))
EXTERNAL_ENTRY(cuStreamWriteValue32_v2,
               (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags),
               submit_word(stream, mode, kWrite32, address, value, flags))
EXTERNAL_ENTRY(cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags),
               submit_word(stream, mode, kWait32, address, value, flags))
EXTERNAL_ENTRY(cuStreamWriteValue64_v2,
               (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags),
               submit_word(stream, mode, kWrite64, address, value, flags))
EXTERNAL_ENTRY(cuStreamWaitValue64_v2, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags),
               submit_word(stream, mode, kWait64, address, value, flags))
EXTERNAL_ENTRY(cuStreamBatchMemOp_v2,
               (CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags),
               submit_words(stream, mode, operations, count, flags))
EXTERNAL_ENTRY(cuSignalExternalSemaphoresAsync,
               (const CUexternalSemaphore* handles, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* parameters,
                unsigned count, CUstream stream),
               submit_semaphores(handles, parameters, count, stream, true, mode))
EXTERNAL_ENTRY(cuWaitExternalSemaphoresAsync,
               (const CUexternalSemaphore* handles, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* parameters,
                unsigned count, CUstream stream),
               submit_semaphores(handles, parameters, count, stream, false, mode))
#undef EXTERNAL_ENTRY

// The driver owns the descriptor from then on.
CUDA_ENTRY cuImportExternalMemory(CUexternalMemory* handle,
                                  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  constexpr int kOpaqueFile = 1;
  if (handle == nullptr || description == nullptr || description->size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (description->type != kOpaqueFile) return CUDA_ERROR_NOT_SUPPORTED;
  uint32_t gpu = 0;
  auto physical = std::make_shared<Physical>();
  CUDA_TRY(open_shareable(description->file, gpu, physical->map));
  physical->file = description->file;
  physical->imported = true;
  physical->backing = physical->map;
  physical->bytes = physical->map.size;
  hold_physical(*physical);
  physical->properties.location = {kLocationDevice, driver().ordinal_of(gpu)};
  if (physical->properties.location.id < 0) return CUDA_ERROR_INVALID_DEVICE;
  if (description->size > physical->bytes) return CUDA_ERROR_INVALID_VALUE;
  auto memory = std::make_shared<ExternalMemory>();
  memory->physical = std::move(physical);
  *handle = memories().add(std::move(memory));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuExternalMemoryGetMappedBuffer(CUdeviceptr* address, CUexternalMemory handle,
                                           const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* description) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  const std::shared_ptr<ExternalMemory> memory = memories().find(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (address == nullptr || description == nullptr || description->size == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t bytes = memory->physical->bytes;
  if (description->offset > bytes || description->size > bytes - description->offset)
    return CUDA_ERROR_INVALID_VALUE;
  Mapping mapping;
  mapping.bytes = description->size;
  mapping.offset = description->offset;
  mapping.physical = memory->physical;
  mapping.kind = MappingKind::external;
  mapping.context = context->handle;
  return driver().space.open(std::move(mapping), *address);
}

// The levels lie in memory that another interface made, which this one cannot order texels in.
CUDA_ENTRY cuExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray* array, CUexternalMemory handle,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* description) {
  CUDA_TRY(driver().ready());
  if (memories().find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return array == nullptr || description == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUDA_ENTRY cuDestroyExternalMemory(CUexternalMemory handle) {
  CUDA_TRY(driver().ready());
  return memories().remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUDA_ENTRY cuImportExternalSemaphore(CUexternalSemaphore* handle,
                                     const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* description) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  constexpr int kOpaqueFile = 1, kTimelineFile = 9;
  if (handle == nullptr || description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (description->type != kOpaqueFile && description->type != kTimelineFile) return CUDA_ERROR_NOT_SUPPORTED;
  if (fcntl(description->file, F_GETFD) < 0) return CUDA_ERROR_INVALID_VALUE;
  close(description->file);
  *handle = semaphores().add(std::make_shared<ExternalSemaphore>());
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDestroyExternalSemaphore(CUexternalSemaphore handle) {
  CUDA_TRY(driver().ready());
  return semaphores().remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
