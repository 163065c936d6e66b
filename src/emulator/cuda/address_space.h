// Virtual memory of the driver API in one process: reserved addresses, physical memory by handle, and what is
// mapped where; also memory of other processes that was opened here.
//
// Physical memory lives as long as a handle or a mapping holds it, as on the driver: release and unmap may
// come in either order. Imported memory is charged to the process that made it.
// Threading: every method from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "emulator/cuda/device_memory.h"
#include "emulator/cuda/memory_types.h"

namespace tranche::emulator::cuda {

// What cuMemCreate or an import made. Its destructor gives the memory back.
struct Physical {
  Physical() = default;
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  CUmemGenericAllocationHandle handle = 0;
  uint32_t users = 0;  // of the handle: creations, retains and imports less releases
  CUmemAllocationProp properties{};
  uint64_t bytes = 0;
  Backing backing;
  DeviceMemory* memory = nullptr;  // where it is charged: pages of it, or a charge alone if it has a file
  CUdeviceptr pages = 0;
  int file = -1;            // of memory that may be exported or was imported
  Backing map;              // that file, mapped
  bool imported = false;    // mapped here, charged elsewhere
  uint64_t shared_key = 0;  // of memory that other processes may hold, too; 0: it is not
  bool multicast = false;
};

enum class MappingKind { mapped, opened, external, graph };

struct Mapping {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // into the physical memory
  std::shared_ptr<Physical> physical;
  MappingKind kind = MappingKind::mapped;
  CUcontext context = nullptr;
  uint64_t id = 0;
  uint32_t users = 1;           // of opened memory
  uint64_t name = 0;            // which allocation of which process was opened
  std::map<int, int> access{};  // device ordinal (-1: host) -> CUmemAccess_flags
};

class AddressSpace {
 public:
  CUresult reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr wanted, CUdeviceptr& address);
  CUresult free(CUdeviceptr address, uint64_t bytes);

  CUmemGenericAllocationHandle add(std::shared_ptr<Physical> physical);
  std::shared_ptr<Physical> find(CUmemGenericAllocationHandle handle) const;
  CUresult retain(CUdeviceptr address, CUmemGenericAllocationHandle& handle);
  CUresult release(CUmemGenericAllocationHandle handle);

  CUresult map(Mapping mapping);
  CUresult unmap(CUdeviceptr address, uint64_t bytes);
  CUresult set_access(CUdeviceptr address, uint64_t bytes, const CUmemAccessDesc* descriptions, size_t count);

  // Memory of another process: reserves addresses and maps in one step, or counts another opening.
  CUresult open(Mapping mapping, CUdeviceptr& address);
  CUresult close(CUdeviceptr address, MappingKind kind);
  void close_all_of(CUcontext context);

  bool find(CUdeviceptr address, Mapping& mapping) const;
  bool is_reserved(CUdeviceptr address, CUdeviceptr& start, uint64_t& bytes) const;
  // Whether anything lies here that a checkpoint cannot take along: imported or exported memory.
  bool shares_memory() const;

 private:
  bool find_locked(CUdeviceptr address, Mapping& mapping) const;
  // Calls `visit` for each mapping that [address, address + bytes) is made of exactly; false if it is not.
  template <class Visit>
  bool cover(CUdeviceptr address, uint64_t bytes, Visit visit);

  mutable std::mutex mutex_;
  std::map<CUdeviceptr, uint64_t> reservations_;
  std::map<CUdeviceptr, Mapping> mappings_;
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Physical>> handles_;
};

// Device memory in a file of its own, to be exported. `gpu` is written into its name.
CUresult make_shareable(uint64_t bytes, uint32_t gpu, int& file, Backing& backing);
// This process holds the memory of a file: as its maker, who was charged for `bytes`, or as one who opened
// it. Physical lets go of it.
void share_physical(Physical& physical, uint32_t gpu);
void hold_physical(Physical& physical);
// Maps such a file of another process; `gpu` is what its name says.
CUresult open_shareable(int file, uint32_t& gpu, Backing& backing);

}  // namespace tranche::emulator::cuda
