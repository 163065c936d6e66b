// One process's memory on one GPU: addresses, bytes and what they are charged.
//
// Addresses lie in a range of the process's own address space, several times the GPU's size so that
// fragmentation never refuses what the GPU has room for, and are backed by ordinary memory that costs
// nothing until it is touched. Freed memory keeps its bytes, so the next owner finds it dirty, as on a GPU.
//
// Charges come in pages of 2 MiB; allocations under 1 MiB share a page with others of the same power of
// two. Threading: every method from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "emulator/cuda/cuda_api.h"
#include "emulator/device_model.h"

namespace tranche::emulator::cuda {

struct Block {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;  // as asked for
  uint64_t span = 0;   // of address space: whole pages, or a share of one
  CUcontext context = nullptr;
  uint64_t id = 0;  // unique in the process
};

class DeviceMemory {
 public:
  DeviceMemory(DeviceModel& model, uint32_t slot, uint32_t gpu) : model_(model), slot_(slot), gpu_(gpu) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint32_t gpu() const { return gpu_; }
  CUresult allocate(uint64_t bytes, CUcontext context, CUdeviceptr& address);
  // `address` is one that allocate gave; false if it is not live.
  bool release(CUdeviceptr address);
  void release_all_of(CUcontext context);
  // Finds the live block that holds `address`.
  bool find(CUdeviceptr address, Block& block) const;

 private:
  // A page shared by small allocations of one size.
  struct Slab {
    uint64_t unit = 0;
    uint32_t live = 0;
    std::vector<uint32_t> free;  // unit numbers, the last freed at the end
  };

  bool reserve();
  bool take_span(uint64_t bytes, CUdeviceptr& address);
  void give_span(CUdeviceptr address, uint64_t bytes);
  CUresult allocate_pages(uint64_t bytes, CUdeviceptr& address);
  void release_pages(CUdeviceptr address, uint64_t bytes);
  CUresult allocate_small(uint64_t unit, CUdeviceptr& address);
  void release_small(CUdeviceptr address, uint64_t unit);
  void release_locked(std::map<CUdeviceptr, Block>::iterator block);

  DeviceModel& model_;
  uint32_t slot_;
  uint32_t gpu_;
  mutable std::mutex mutex_;
  CUdeviceptr region_ = 0;
  uint64_t region_bytes_ = 0;
  std::map<CUdeviceptr, Block> blocks_;
  std::map<CUdeviceptr, uint64_t> free_by_address_;
  std::set<std::pair<uint64_t, CUdeviceptr>> free_by_size_;
  std::map<CUdeviceptr, Slab> slabs_;
  std::map<uint64_t, std::set<CUdeviceptr>> slabs_with_room_;  // by unit
};

}  // namespace tranche::emulator::cuda
