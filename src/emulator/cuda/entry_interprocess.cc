// Entry points: memory and events of other processes. A handle names a process of the server and a file of
// its; the opener takes the file from /proc, which the kernel allows for processes of the same user.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "emulator/cuda/streams.h"

namespace tranche::emulator::cuda {

// What an event of two processes says, in memory that both map.
struct SharedEvent {
  struct Page {
    std::atomic<uint64_t> sequence;  // odd while it is written
    uint32_t slot, gpu;
    uint64_t image, tag;
  };
  int file = -1;
  Page* page = nullptr;

  SharedEvent() = default;
  ~SharedEvent() {
    if (page != nullptr) munmap(page, sizeof(Page));
    if (file >= 0) close(file);
  }
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;
};

namespace {

constexpr uint64_t kMemoryMagic = 0x544E4D454D495043, kEventMagic = 0x5445564E54495043;

struct Name {
  uint64_t magic = 0;
  uint64_t image = 0;
  uint64_t id = 0;  // of the allocation or event
  uint32_t slot = 0, gpu = 0;
  int32_t file = -1;
  uint32_t reserved = 0;
  uint64_t offset = 0, bytes = 0, span = 0;
};
static_assert(sizeof(Name) <= 64);

Name own_name(uint64_t magic) {
  Name name;
  name.magic = magic;
  name.slot = driver().slot();
  name.image = driver().model().image(name.slot);
  return name;
}

bool is_own(const Name& name) {
  return name.slot == driver().slot() && name.image == driver().model().image(driver().slot());
}

// A descriptor of the file that the name's process has open.
CUresult open_file(const Name& name, int& file) {
  const int32_t pid = driver().model().find_process(name.slot, name.image);
  if (pid == 0 || name.file < 0) return CUDA_ERROR_INVALID_HANDLE;
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", pid, name.file);
  file = open(path.data(), O_RDWR | O_CLOEXEC);
  return file < 0 ? CUDA_ERROR_MAP_FAILED : CUDA_SUCCESS;
}

CUresult open_memory(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  constexpr unsigned kLazyPeerAccess = 1;
  if (address == nullptr || flags != kLazyPeerAccess) return CUDA_ERROR_INVALID_VALUE;
  Name name;
  std::memcpy(&name, handle.bytes, sizeof name);
  if (name.magic != kMemoryMagic) return CUDA_ERROR_INVALID_VALUE;
  if (is_own(name)) return CUDA_ERROR_INVALID_CONTEXT;
  const CUdevice ordinal = driver().ordinal_of(name.gpu);
  if (ordinal < 0) return CUDA_ERROR_INVALID_DEVICE;
  auto physical = std::make_shared<Physical>();
  CUDA_TRY(open_file(name, physical->file));
  physical->imported = true;
  uint32_t gpu = 0;
  CUDA_TRY(open_shareable(physical->file, gpu, physical->map));
  const uint64_t room = physical->map.size - std::min(physical->map.size, name.offset);
  if (gpu != name.gpu || name.span > room || name.bytes > name.span) return CUDA_ERROR_INVALID_VALUE;
  physical->bytes = name.span;
  physical->backing = {physical->map.bytes + name.offset, name.span};
  physical->properties.location = {kLocationDevice, ordinal};
  Mapping mapping;
  mapping.bytes = name.bytes;
  mapping.physical = std::move(physical);
  mapping.kind = MappingKind::opened;
  mapping.context = context->handle;
  mapping.name = name.id ^ name.image;
  return driver().space.open(std::move(mapping), *address);
}

CUresult map_event(SharedEvent& shared) {
  void* const page =
      mmap(nullptr, sizeof(SharedEvent::Page), PROT_READ | PROT_WRITE, MAP_SHARED, shared.file, 0);
  if (page == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  shared.page = static_cast<SharedEvent::Page*>(page);
  return CUDA_SUCCESS;
}

// What was recorded last; false if nothing was.
bool read_page(const SharedEvent& shared, uint32_t& slot, uint32_t& gpu, uint64_t& image, uint64_t& tag) {
  for (;;) {
    const uint64_t before = shared.page->sequence.load(std::memory_order_acquire);
    if (before == 0) return false;
    slot = shared.page->slot;
    gpu = shared.page->gpu;
    image = shared.page->image;
    tag = shared.page->tag;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && shared.page->sequence.load(std::memory_order_relaxed) == before) return true;
    std::this_thread::yield();
  }
}

}  // namespace

void record_shared(Event& event) {
  SharedEvent::Page& page = *event.shared->page;
  page.sequence.fetch_add(1, std::memory_order_acq_rel);
  page.slot = driver().slot();
  page.gpu = event.gpu;
  page.image = driver().model().image(page.slot);
  page.tag = event.tag;
  page.sequence.fetch_add(1, std::memory_order_release);
}

// What a process that is gone recorded is done.
bool is_shared_done(Event& event) {
  uint32_t slot = 0, gpu = 0;
  uint64_t image = 0, tag = 0;
  if (!read_page(*event.shared, slot, gpu, image, tag)) return true;
  DeviceModel& model = driver().model();
  if (gpu >= model.gpu_count() || model.find_process(slot, image) == 0) return true;
  return model.is_done(slot, gpu, tag);
}

void wait_shared(Event& event) {
  uint32_t slot = 0, gpu = 0;
  uint64_t image = 0, tag = 0;
  if (!read_page(*event.shared, slot, gpu, image, tag)) return;
  DeviceModel& model = driver().model();
  if (gpu < model.gpu_count() && model.find_process(slot, image) != 0) model.wait(slot, gpu, tag);
}

CUDA_ENTRY cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  CUDA_TRY(driver().ready());
  Block block;
  CUdevice ordinal = 0;
  if (handle == nullptr || !driver().find_block(address, block, ordinal)) return CUDA_ERROR_INVALID_VALUE;
  if (block.kind != BlockKind::allocated) return CUDA_ERROR_INVALID_VALUE;  // pools have handles of their own
  Driver::Device& device = *driver().device(ordinal);
  Name name = own_name(kMemoryMagic);
  name.id = block.id;
  name.gpu = device.gpu;
  const DeviceMemory::Position position = device.memory->position_of(block.address);
  name.file = position.file;
  name.offset = position.offset;
  name.bytes = block.bytes;
  name.span = block.span;
  driver().legacy_handles.fetch_add(1);
  std::memset(handle->bytes, 0, sizeof handle->bytes);
  std::memcpy(handle->bytes, &name, sizeof name);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open_memory(address, handle, flags);
}
CUDA_ENTRY cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open_memory(address, handle, flags);
}

CUDA_ENTRY cuIpcCloseMemHandle(CUdeviceptr address) {
  CUDA_TRY(driver().ready());
  return driver().space.close(address, MappingKind::opened);
}

CUDA_ENTRY cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) {
  CUDA_TRY(driver().ready());
  constexpr unsigned kInterprocess = 4;
  const std::shared_ptr<Event> event = driver().events.find(event_handle);
  if (handle == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((event->flags & kInterprocess) == 0 || (event->flags & kEventDisableTiming) == 0)
    return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(event->mutex);
  if (event->shared == nullptr) {
    auto shared = std::make_shared<SharedEvent>();
    shared->file = memfd_create("tranche-event", MFD_CLOEXEC);
    if (shared->file < 0 || ftruncate(shared->file, sizeof(SharedEvent::Page)) != 0)
      return CUDA_ERROR_OPERATING_SYSTEM;
    CUDA_TRY(map_event(*shared));
    event->shared = std::move(shared);
    if (event->recorded) record_shared(*event);
  }
  Name name = own_name(kEventMagic);
  name.file = event->shared->file;
  std::memset(handle->bytes, 0, sizeof handle->bytes);
  std::memcpy(handle->bytes, &name, sizeof name);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuIpcOpenEventHandle(CUevent* event_handle, CUipcEventHandle handle) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  Name name;
  std::memcpy(&name, handle.bytes, sizeof name);
  if (event_handle == nullptr || name.magic != kEventMagic) return CUDA_ERROR_INVALID_VALUE;
  if (is_own(name)) return CUDA_ERROR_INVALID_CONTEXT;
  auto shared = std::make_shared<SharedEvent>();
  CUDA_TRY(open_file(name, shared->file));
  struct stat status;
  const bool whole = fstat(shared->file, &status) == 0 && status.st_size == sizeof(SharedEvent::Page);
  if (!whole) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_TRY(map_event(*shared));
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = kEventDisableTiming;
  event->shared = std::move(shared);
  *event_handle = driver().events.add(std::move(event));
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
