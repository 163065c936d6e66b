// A stream-ordered memory pool: it takes memory from the GPU in chunks, hands out parts, and keeps what is
// freed for the next allocation, dirty, until a synchronisation finds more reserved than the release
// threshold (0 unless set, so that memory goes back at the next synchronisation).
//
// Chunks are of 32 MiB or the size asked for, whichever is larger: what the driver's pools are seen to
// reserve. Threading: every method from any thread.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "emulator/cuda/device_memory.h"
#include "emulator/cuda/memory_types.h"

namespace tranche::emulator::cuda {

inline constexpr uint64_t kPoolChunk = uint64_t{32} << 20;

// Where in time a part is freed or asked for.
struct PoolMoment {
  uint64_t stream = 0;   // id
  uint64_t tag = 0;      // the last work submitted there
  uint64_t reached = 0;  // what the GPU has done
};

struct PoolUsage {
  uint64_t reserved = 0, reserved_high = 0;
  uint64_t used = 0, used_high = 0;
};

class Pool {
 public:
  Pool(CUdevice device, DeviceMemory& memory, const CUmemPoolProps& properties)
      : device_(device), memory_(&memory), properties_(properties) {}
  // With a file of its own, for other processes.
  Pool(CUdevice device, std::unique_ptr<DeviceMemory> memory, const CUmemPoolProps& properties)
      : device_(device), own_(std::move(memory)), memory_(own_.get()), properties_(properties) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  CUmemoryPool handle = nullptr;
  bool is_default = false;
  bool imported = false;
  int file = -1;  // of an imported pool

  CUdevice device() const { return device_; }
  DeviceMemory& memory() const { return *memory_; }
  bool has_own_memory() const { return own_ != nullptr; }
  const CUmemPoolProps& properties() const { return properties_; }

  CUresult allocate(uint64_t bytes, CUcontext context, const PoolMoment& moment, CUdeviceptr& address,
                    BlockKind kind = BlockKind::pooled);
  CUresult release(CUdeviceptr address, const PoolMoment& moment);
  // Gives chunks back that hold nothing, while more than `keep` is reserved.
  void trim(uint64_t keep);
  // At a synchronisation.
  void settle();

  PoolUsage usage() const;
  void reset_high(bool reserved, bool used);
  int reuse(size_t attribute) const;
  void set_reuse(size_t attribute, int allowed);
  uint64_t release_threshold() const;
  void set_release_threshold(uint64_t bytes);
  int access(CUdevice device) const;
  void set_access(CUdevice device, int flags);

 private:
  struct Part {
    uint64_t bytes = 0;
    uint64_t stream = 0;
    uint64_t tag = 0;
  };
  using Parts = std::map<CUdeviceptr, Part>;

  bool may_use(const Part& part, const PoolMoment& moment) const;
  Parts::iterator find_part(uint64_t bytes, const PoolMoment& moment);
  CUresult grow(uint64_t bytes);
  void insert_part(CUdeviceptr address, Part part);
  void trim_locked(uint64_t keep);

  CUdevice device_;
  std::unique_ptr<DeviceMemory> own_;
  DeviceMemory* memory_;
  CUmemPoolProps properties_;
  mutable std::mutex mutex_;
  std::map<CUdeviceptr, uint64_t> chunks_;
  Parts free_;
  std::map<CUdeviceptr, uint64_t> live_;  // address -> span
  PoolUsage usage_;
  uint64_t release_threshold_ = 0;
  std::array<int, 4> reuse_{0, 1, 1, 1};  // by attribute number 1..3
  std::map<CUdevice, int> access_;
};

}  // namespace tranche::emulator::cuda
