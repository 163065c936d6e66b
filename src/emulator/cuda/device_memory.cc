#include "emulator/cuda/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>

#include "emulator/former_bytes.h"

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kSmallMax = kDevicePage / 2;  // larger ones take pages of their own
constexpr uint64_t kSmallMin = 512;              // cuMemAlloc's alignment is at least 256
constexpr uint64_t kRegionFactor = 4;            // address space per byte of GPU memory
constexpr uint64_t kHostPage = 4096;
constexpr uint64_t kKeptWhenFreed = uint64_t{256}
                                    << 20;  // of larger blocks the host gets the inner pages back

}  // namespace

uint64_t next_block_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

Piece Backing::piece(uint64_t offset, uint64_t length) const {
  length = std::min(length, size - std::min(offset, size));
  if (size <= kRealBytesMax) return {bytes + offset, length};
  const uint64_t tail = size - kDevicePage;
  if (offset < kDevicePage) return {bytes + offset, std::min(length, kDevicePage - offset)};
  if (offset < tail) return {nullptr, std::min(length, tail - offset)};
  return {bytes + offset, length};
}

DeviceMemory::~DeviceMemory() {
  if (region_ == 0) return;
  munmap(reinterpret_cast<void*>(region_), region_bytes_);
  munmap(bytes_, region_bytes_);
  close(file_);
  if (window_file_ >= 0) close(window_file_);
}

bool DeviceMemory::reserve() {
  if (region_ != 0) return true;
  const uint64_t bytes = round_up_to_page(model_.usable_bytes(gpu_)) * kRegionFactor;
  constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const range = mmap(nullptr, bytes + kDevicePage, PROT_NONE, kReserved, -1, 0);
  if (range == MAP_FAILED) return false;
  const std::string name = std::string(kMemoryFileName) + std::to_string(gpu_);
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  void* memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  }
  if (memory == MAP_FAILED) {
    if (file >= 0) close(file);
    munmap(range, bytes + kDevicePage);
    return false;
  }
  file_ = file;
  bytes_ = static_cast<uint8_t*>(memory);
  region_ = round_up_to_page(reinterpret_cast<CUdeviceptr>(range));
  region_bytes_ = bytes;
  open_window();
  used_end_ = window_end_ = region_ + (window_file_ >= 0 ? kWindowBytes : 0);
  if (window_file_ >= 0) give_span(region_, kWindowBytes);
  give_span(window_end_, region_bytes_ - (window_end_ - region_));
  return true;
}

void DeviceMemory::open_window() {
  if (window_ == Window::none) return;
  window_file_ = map_window(model_.directory(), gpu_, slot_, bytes_);
  if (window_file_ < 0) return;
  const bool is_clean = std::all_of(bytes_, bytes_ + kHostPage, [](uint8_t byte) { return byte == 0; });
  if (!is_clean) former_.assign(bytes_, bytes_ + kHostPage);
}

void DeviceMemory::soil(uint8_t* start, uint64_t bytes) const {
  if (former_.empty() || bytes < kHostPage) return;
  std::memcpy(start, former_.data(), kHostPage);
  std::memcpy(start + bytes - kHostPage, former_.data(), kHostPage);
}

DeviceMemory::Position DeviceMemory::position_of(CUdeviceptr address) const {
  if (address >= window_end_ || window_file_ < 0) return {file_, address - region_};
  return {window_file_, slot_ * kWindowBytes + (address - region_)};
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
  const bool joins_after = address + bytes != window_end_, joins_before = address != window_end_;
  if (joins_after && after != free_by_address_.end() && after->first == address + bytes) {
    bytes += after->second;
    free_by_size_.erase({after->second, after->first});
    after = free_by_address_.erase(after);
  }
  if (joins_before && after != free_by_address_.begin()) {
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
    if (address >= used_end_) soil(host(address), bytes);
    used_end_ = std::max(used_end_, address + bytes);
    return CUDA_SUCCESS;
  }
  model_.discharge(slot_, gpu_, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Of a hollow block only the first and last page ever had bytes, and they stay.
void DeviceMemory::release_pages(CUdeviceptr address, uint64_t bytes, bool is_hollow) {
  if (bytes > kKeptWhenFreed && !is_hollow)
    madvise(host(address) + kDevicePage, bytes - 2 * kDevicePage, MADV_REMOVE);
  give_span(address, bytes);
  model_.discharge(slot_, gpu_, bytes);
}

CUresult DeviceMemory::allocate_small(uint64_t unit, CUdeviceptr& address) {
  std::set<CUdeviceptr>& with_room = slabs_with_room_[unit];
  if (with_room.empty()) {
    CUdeviceptr page = 0;
    CUDA_TRY(allocate_pages(kDevicePage, page));
    slabs_[page].unit = unit;
    with_room.insert(page);
  }
  const CUdeviceptr page = *with_room.begin();
  Slab& slab = slabs_[page];
  const uint32_t number = slab.free.empty() ? slab.next++ : slab.free.back();
  if (!slab.free.empty()) slab.free.pop_back();
  address = page + number * unit;
  ++slab.live;
  if (slab.is_full()) with_room.erase(page);
  return CUDA_SUCCESS;
}

void DeviceMemory::release_small(CUdeviceptr address, uint64_t unit) {
  const CUdeviceptr page = address / kDevicePage * kDevicePage;
  Slab& slab = slabs_[page];
  --slab.live;
  if (slab.live > 0) {
    slab.free.push_back(static_cast<uint32_t>((address - page) / unit));
    slabs_with_room_[unit].insert(page);
    return;
  }
  slabs_with_room_[unit].erase(page);
  slabs_.erase(page);
  release_pages(page, kDevicePage, false);
}

CUresult DeviceMemory::allocate(uint64_t bytes, CUcontext context, CUdeviceptr& address, BlockKind kind) {
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
  block.kind = kind;
  block.backing = {host(address), block.span};
  blocks_.emplace(address, block);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::take_pages(uint64_t bytes, CUdeviceptr& address) {
  if (bytes > model_.usable_bytes(gpu_)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  return allocate_pages(bytes, address);
}

void DeviceMemory::give_pages(CUdeviceptr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  release_pages(address, bytes, false);
}

CUresult DeviceMemory::open() {
  const std::lock_guard lock(mutex_);
  return reserve() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

Backing DeviceMemory::backing(CUdeviceptr address, uint64_t bytes) const { return {host(address), bytes}; }

void DeviceMemory::add_block(Block block) {
  const std::lock_guard lock(mutex_);
  blocks_[block.address] = block;
}

bool DeviceMemory::remove_block(CUdeviceptr address, Block& block) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return false;
  block = found->second;
  blocks_.erase(found);
  return true;
}

void DeviceMemory::release_locked(std::map<CUdeviceptr, Block>::iterator found) {
  const Block block = found->second;
  blocks_.erase(found);
  if (block.span <= kSmallMax)
    release_small(block.address, block.span);
  else
    release_pages(block.address, block.span, block.span > kRealBytesMax);
}

bool DeviceMemory::release(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.pool != nullptr) return false;
  release_locked(found);
  return true;
}

void DeviceMemory::release_all_of(CUcontext context) {
  const std::lock_guard lock(mutex_);
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const auto next = std::next(it);
    if (it->second.context == context && it->second.pool == nullptr) release_locked(it);
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
