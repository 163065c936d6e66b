#include "emulator/cuda/address_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/cuda/driver.h"
#include "emulator/cuda/handle_table.h"

namespace tranche::emulator::cuda {
namespace {

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// How often this process holds each shared memory: the model counts processes.
struct Holds {
  std::mutex mutex;
  std::map<uint64_t, uint32_t> count;
};
Holds& holds() {
  static Holds* const all = new Holds;
  return *all;
}

uint64_t key_of(int file) {
  struct stat status;
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

void let_go(uint64_t key) {
  const std::lock_guard lock(holds().mutex);
  if (--holds().count[key] > 0) return;
  holds().count.erase(key);
  driver().model().drop_memory(driver().slot(), key);
}

}  // namespace

void share_physical(Physical& physical, uint32_t gpu) {
  const uint64_t key = key_of(physical.file);
  const std::lock_guard lock(holds().mutex);
  if (key == 0 || !driver().model().share_memory(driver().slot(), gpu, key, physical.bytes)) return;
  physical.shared_key = key;
  ++holds().count[key];
}

void hold_physical(Physical& physical) {
  const uint64_t key = key_of(physical.file);
  const std::lock_guard lock(holds().mutex);
  if (key == 0 || !driver().model().hold_memory(driver().slot(), key)) return;
  physical.shared_key = key;
  ++holds().count[key];
}

Physical::~Physical() {
  if (file >= 0) {
    munmap(map.bytes, map.size);
    if (shared_key != 0)
      let_go(shared_key);
    else if (memory != nullptr && !imported)
      memory->discharge(bytes);
    ::close(file);  // last: its inode is the key
  } else if (memory != nullptr) {
    memory->give_pages(pages, bytes);
  } else if (backing.bytes != nullptr && !imported) {
    munmap(backing.bytes, bytes);
  }
}

CUresult AddressSpace::reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr wanted, CUdeviceptr& address) {
  if (alignment < kDevicePage) alignment = kDevicePage;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (wanted != 0 && wanted % alignment == 0) {
    void* const there = mmap(pointer(wanted), bytes, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
    if (there == pointer(wanted)) {
      const std::lock_guard lock(mutex_);
      reservations_[wanted] = bytes;
      address = wanted;
      return CUDA_SUCCESS;
    }
    if (there != MAP_FAILED) munmap(there, bytes);
  }
  if (bytes > UINT64_MAX - alignment) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const range = mmap(nullptr, bytes + alignment, PROT_NONE, kFlags, -1, 0);
  if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto start = reinterpret_cast<CUdeviceptr>(range);
  address = (start + alignment - 1) / alignment * alignment;
  if (address > start) munmap(range, address - start);
  const CUdeviceptr end = start + bytes + alignment;
  if (end > address + bytes) munmap(pointer(address + bytes), end - address - bytes);
  const std::lock_guard lock(mutex_);
  reservations_[address] = bytes;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::free(CUdeviceptr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mappings_.lower_bound(address);
  if (mapped != mappings_.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  munmap(pointer(address), bytes);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle AddressSpace::add(std::shared_ptr<Physical> physical) {
  const std::lock_guard lock(mutex_);
  physical->handle = next_handle();
  physical->users = 1;
  const CUmemGenericAllocationHandle handle = physical->handle;
  handles_.emplace(handle, std::move(physical));
  return handle;
}

std::shared_ptr<Physical> AddressSpace::find(CUmemGenericAllocationHandle handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second;
}

CUresult AddressSpace::retain(CUdeviceptr address, CUmemGenericAllocationHandle& handle) {
  const std::lock_guard lock(mutex_);
  Mapping mapping;
  if (!find_locked(address, mapping) || mapping.kind != MappingKind::mapped) return CUDA_ERROR_INVALID_VALUE;
  handle = mapping.physical->handle;
  handles_.emplace(handle, mapping.physical);  // its own handle may have been released
  ++mapping.physical->users;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::release(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<Physical> last;  // destroyed outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second->users == 0) {
    last = std::move(found->second);
    handles_.erase(found);
  }
  return CUDA_SUCCESS;
}

CUresult AddressSpace::map(Mapping mapping) {
  const std::lock_guard lock(mutex_);
  auto reservation = reservations_.upper_bound(mapping.address);
  if (reservation == reservations_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  const uint64_t inside = mapping.address - reservation->first;
  if (inside >= reservation->second || mapping.bytes > reservation->second - inside)
    return CUDA_ERROR_INVALID_VALUE;
  const auto after = mappings_.lower_bound(mapping.address);
  if (after != mappings_.end() && after->first < mapping.address + mapping.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (after != mappings_.begin()) {
    const Mapping& before = std::prev(after)->second;
    if (before.address + before.bytes > mapping.address) return CUDA_ERROR_INVALID_VALUE;
  }
  mapping.id = next_block_id();
  mappings_.emplace(mapping.address, std::move(mapping));
  return CUDA_SUCCESS;
}

template <class Visit>
bool AddressSpace::cover(CUdeviceptr address, uint64_t bytes, Visit visit) {
  const CUdeviceptr end = address + bytes;
  for (auto it = mappings_.find(address); address < end; ++it) {
    if (it == mappings_.end() || it->first != address || it->second.bytes > end - address) return false;
    address += it->second.bytes;
  }
  for (auto it = mappings_.find(end - bytes); it != mappings_.end() && it->first < end;) visit(it);
  return true;
}

CUresult AddressSpace::unmap(CUdeviceptr address, uint64_t bytes) {
  std::vector<std::shared_ptr<Physical>> released;
  const std::lock_guard lock(mutex_);
  const bool covered = cover(address, bytes, [&](auto& it) {
    released.push_back(std::move(it->second.physical));
    it = mappings_.erase(it);
  });
  return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult AddressSpace::set_access(CUdeviceptr address, uint64_t bytes, const CUmemAccessDesc* descriptions,
                                  size_t count) {
  const std::lock_guard lock(mutex_);
  const bool covered = cover(address, bytes, [&](auto& it) {
    for (size_t i = 0; i < count; ++i) {
      const bool device = descriptions[i].location.type == kLocationDevice;
      it->second.access[device ? descriptions[i].location.id : -1] = descriptions[i].flags;
    }
    ++it;
  });
  return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult AddressSpace::open(Mapping mapping, CUdeviceptr& address) {
  if (mapping.name != 0) {
    const std::lock_guard lock(mutex_);
    for (auto& [start, open] : mappings_) {
      if (open.kind != mapping.kind || open.name != mapping.name) continue;
      ++open.users;
      address = start;
      return CUDA_SUCCESS;
    }
  }
  const uint64_t span = round_up_to_page(mapping.bytes);
  CUDA_TRY(reserve(span, kDevicePage, 0, address));
  mapping.address = address;
  return map(std::move(mapping));
}

CUresult AddressSpace::close(CUdeviceptr address, MappingKind kind) {
  uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = mappings_.find(address);
    if (found == mappings_.end() || found->second.kind != kind) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.users > 0) return CUDA_SUCCESS;
    bytes = found->second.bytes;
  }
  CUDA_TRY(unmap(address, bytes));
  return free(address, round_up_to_page(bytes));
}

void AddressSpace::close_all_of(CUcontext context) {
  std::vector<std::pair<CUdeviceptr, MappingKind>> opened;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [address, mapping] : mappings_) {
      if (mapping.context != context || mapping.kind == MappingKind::mapped) continue;
      mapping.users = 1;
      opened.emplace_back(address, mapping.kind);
    }
  }
  for (const auto& [address, kind] : opened) close(address, kind);
}

bool AddressSpace::find_locked(CUdeviceptr address, Mapping& mapping) const {
  auto found = mappings_.upper_bound(address);
  if (found == mappings_.begin()) return false;
  --found;
  if (address - found->first >= found->second.bytes) return false;
  mapping = found->second;
  return true;
}

bool AddressSpace::find(CUdeviceptr address, Mapping& mapping) const {
  const std::lock_guard lock(mutex_);
  return find_locked(address, mapping);
}

bool AddressSpace::is_reserved(CUdeviceptr address, CUdeviceptr& start, uint64_t& bytes) const {
  const std::lock_guard lock(mutex_);
  auto found = reservations_.upper_bound(address);
  if (found == reservations_.begin()) return false;
  --found;
  start = found->first;
  bytes = found->second;
  return address - start < bytes;
}

bool AddressSpace::shares_memory() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, physical] : handles_) {
    if (physical->file >= 0) return true;
  }
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.physical->file >= 0) return true;
  }
  return false;
}

CUresult make_shareable(uint64_t bytes, uint32_t gpu, int& file, Backing& backing) {
  const std::string name = kMemoryFileName + std::to_string(gpu);
  file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  }
  if (memory == MAP_FAILED) {
    ::close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  backing = {static_cast<uint8_t*>(memory), bytes};
  return CUDA_SUCCESS;
}

CUresult open_shareable(int file, uint32_t& gpu, Backing& backing) {
  std::array<char, 512> link{}, path;
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", file);
  if (readlink(path.data(), link.data(), link.size() - 1) < 0) return CUDA_ERROR_INVALID_VALUE;
  const char* const name = std::strstr(link.data(), kMemoryFileName);  // in memory, or of the server
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpu = static_cast<uint32_t>(std::strtoul(name + std::strlen(kMemoryFileName), nullptr, 10));
  struct stat status;
  if (fstat(file, &status) != 0 || status.st_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const auto bytes = static_cast<uint64_t>(status.st_size);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  backing = {static_cast<uint8_t*>(memory), bytes};
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
