#include "emulator/cuda/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kPage = uint64_t{2} << 20;
constexpr uint64_t kSmallMax = kPage / 2;                 // larger ones take pages of their own
constexpr uint64_t kSmallMin = 512;                       // cuMemAlloc's alignment is at least 256
constexpr uint64_t kRegionFactor = 4;                     // address space per byte of GPU memory
constexpr uint64_t kKeptWhenFreed = uint64_t{256} << 20;  // larger blocks give their bytes back to the host

uint64_t round_up_to_page(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

uint64_t next_block_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  if (region_ != 0) munmap(pointer(region_), region_bytes_);
}

bool DeviceMemory::reserve() {
  if (region_ != 0) return true;
  const uint64_t bytes = round_up_to_page(model_.usable_bytes(gpu_)) * kRegionFactor;
  void* memory = mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  region_ = round_up_to_page(reinterpret_cast<CUdeviceptr>(memory));
  region_bytes_ = bytes;
  give_span(region_, bytes);
  return true;
}

bool DeviceMemory::take_span(uint64_t bytes, CUdeviceptr& address) {
  if (!reserve()) return false;
  const auto found = free_by_size_.lower_bound({bytes, 0});
  if (found == free_by_size_.end()) return false;
  const auto [size, start] = *found;
  free_by_size_.erase(found);
  free_by_address_.erase(start);
  if (size > bytes) {
    free_by_address_.emplace(start + bytes, size - bytes);
    free_by_size_.emplace(size - bytes, start + bytes);
  }
  address = start;
  return true;
}

void DeviceMemory::give_span(CUdeviceptr address, uint64_t bytes) {
  auto after = free_by_address_.lower_bound(address);
  if (after != free_by_address_.end() && after->first == address + bytes) {
    bytes += after->second;
    free_by_size_.erase({after->second, after->first});
    after = free_by_address_.erase(after);
  }
  if (after != free_by_address_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == address) {
      address = before->first;
      bytes += before->second;
      free_by_size_.erase({before->second, before->first});
      free_by_address_.erase(before);
    }
  }
  free_by_address_.emplace(address, bytes);
  free_by_size_.emplace(bytes, address);
}

CUresult DeviceMemory::allocate_pages(uint64_t bytes, CUdeviceptr& address) {
  if (!model_.charge(slot_, gpu_, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (take_span(bytes, address)) {
    if (mprotect(pointer(address), bytes, PROT_READ | PROT_WRITE) == 0) return CUDA_SUCCESS;
    give_span(address, bytes);
  }
  model_.discharge(slot_, gpu_, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void DeviceMemory::release_pages(CUdeviceptr address, uint64_t bytes) {
  if (bytes > kKeptWhenFreed) madvise(pointer(address), bytes, MADV_DONTNEED);
  mprotect(pointer(address), bytes, PROT_NONE);
  give_span(address, bytes);
  model_.discharge(slot_, gpu_, bytes);
}

CUresult DeviceMemory::allocate_small(uint64_t unit, CUdeviceptr& address) {
  std::set<CUdeviceptr>& with_room = slabs_with_room_[unit];
  if (with_room.empty()) {
    CUdeviceptr page = 0;
    CUDA_TRY(allocate_pages(kPage, page));
    Slab& slab = slabs_[page];
    slab.unit = unit;
    for (uint64_t i = kPage / unit; i > 0; --i) slab.free.push_back(static_cast<uint32_t>(i - 1));
    with_room.insert(page);
  }
  const CUdeviceptr page = *with_room.begin();
  Slab& slab = slabs_[page];
  address = page + slab.free.back() * unit;
  slab.free.pop_back();
  ++slab.live;
  if (slab.free.empty()) with_room.erase(page);
  return CUDA_SUCCESS;
}

void DeviceMemory::release_small(CUdeviceptr address, uint64_t unit) {
  const CUdeviceptr page = address / kPage * kPage;
  Slab& slab = slabs_[page];
  slab.free.push_back(static_cast<uint32_t>((address - page) / unit));
  --slab.live;
  if (slab.live > 0) {
    slabs_with_room_[unit].insert(page);
    return;
  }
  slabs_with_room_[unit].erase(page);
  slabs_.erase(page);
  release_pages(page, kPage);
}

CUresult DeviceMemory::allocate(uint64_t bytes, CUcontext context, CUdeviceptr& address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > model_.usable_bytes(gpu_)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  Block block;
  if (bytes <= kSmallMax) {
    block.span = std::bit_ceil(std::max(bytes, kSmallMin));
    CUDA_TRY(allocate_small(block.span, address));
  } else {
    block.span = round_up_to_page(bytes);
    CUDA_TRY(allocate_pages(block.span, address));
  }
  block.address = address;
  block.bytes = bytes;
  block.context = context;
  block.id = next_block_id();
  blocks_.emplace(address, block);
  return CUDA_SUCCESS;
}

void DeviceMemory::release_locked(std::map<CUdeviceptr, Block>::iterator found) {
  const Block block = found->second;
  blocks_.erase(found);
  if (block.span <= kSmallMax)
    release_small(block.address, block.span);
  else
    release_pages(block.address, block.span);
}

bool DeviceMemory::release(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return false;
  release_locked(found);
  return true;
}

void DeviceMemory::release_all_of(CUcontext context) {
  const std::lock_guard lock(mutex_);
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const auto next = std::next(it);
    if (it->second.context == context) release_locked(it);
    it = next;
  }
}

bool DeviceMemory::find(CUdeviceptr address, Block& block) const {
  const std::lock_guard lock(mutex_);
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return false;
  --found;
  if (address - found->first >= found->second.bytes) return false;
  block = found->second;
  return true;
}

}  // namespace tranche::emulator::cuda
