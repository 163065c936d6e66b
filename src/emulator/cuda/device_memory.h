// One process's memory on one GPU: addresses, bytes and what they are charged.
//
// A program sees addresses of a range that the CPU cannot touch, as on hardware: a stray dereference is a
// fault, here too. The range is several times the GPU's size, so that fragmentation never refuses what the
// GPU has room for. Behind it lies a file in memory that costs nothing until it is touched; other processes
// map it for cuIpc*.
//
// Memory is dirty, as on a GPU. What a process frees keeps its bytes for its own next allocation. The first
// allocations of a process lie in a window with the bytes of an earlier, ended one (former_bytes.h), and of
// what was never used outside the window the first and last host page of each allocation are soiled with a
// copy of such bytes. On a server on which no process has written yet, memory is clean, as after a reset.
//
// Blocks beyond kRealBytesMax have bytes in their first and last page only: what lies between takes no host
// memory, forgets what is written and reads as kHollowByte.
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

inline constexpr uint64_t kDevicePage = uint64_t{2} << 20;
inline constexpr uint64_t kRealBytesMax = uint64_t{64} << 20;  // chosen: what examples and tests copy fits
inline constexpr unsigned char kHollowByte = 0xA5;
inline constexpr const char* kMemoryFileName =
    "tranche-memory:";  // of files with device bytes; the GPU's index follows

inline uint64_t round_up_to_page(uint64_t bytes) {
  return (bytes + kDevicePage - 1) / kDevicePage * kDevicePage;
}

// A run of device bytes: at `pointer` on the host, or hollow.
struct Piece {
  uint8_t* pointer = nullptr;
  uint64_t bytes = 0;
};

// Bytes that one owner has, wherever they are mapped: a span of a GPU's file, or of an imported one.
struct Backing {
  uint8_t* bytes = nullptr;
  uint64_t size = 0;
  // The run that begins at `offset`, at most `length` long.
  Piece piece(uint64_t offset, uint64_t length) const;
};

enum class BlockKind { allocated, pooled, array, graph };

struct Block {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;  // as asked for
  uint64_t span = 0;   // of address space: whole pages, or a share of one
  CUcontext context = nullptr;
  uint64_t id = 0;  // unique in the process
  BlockKind kind = BlockKind::allocated;
  CUmemoryPool pool = nullptr;  // of a pooled block
  Backing backing;
};

class DeviceMemory {
 public:
  // One of a process's memories on a GPU has the window of its row; others are files of their own throughout.
  enum class Window { of_the_row, none };
  DeviceMemory(DeviceModel& model, uint32_t slot, uint32_t gpu, Window window)
      : model_(model), slot_(slot), gpu_(gpu), window_(window) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint32_t gpu() const { return gpu_; }
  CUresult allocate(uint64_t bytes, CUcontext context, CUdeviceptr& address,
                    BlockKind kind = BlockKind::allocated);
  // `address` is one that allocate gave; false if it is not live.
  bool release(CUdeviceptr address);
  void release_all_of(CUcontext context);
  // Finds the live block that holds `address`.
  bool find(CUdeviceptr address, Block& block) const;

  // Charged pages without a block: what pools, virtual memory and contexts hold. A multiple of kDevicePage.
  CUresult take_pages(uint64_t bytes, CUdeviceptr& address);
  void give_pages(CUdeviceptr address, uint64_t bytes);
  // The bytes of such pages.
  Backing backing(CUdeviceptr address, uint64_t bytes) const;
  // A block inside them that find, but not release, sees.
  void add_block(Block block);
  bool remove_block(CUdeviceptr address, Block& block);

  // Charges without an address: code, limits of a context. False: out of memory.
  bool charge(uint64_t bytes) { return model_.charge(slot_, gpu_, bytes); }
  void discharge(uint64_t bytes) { model_.discharge(slot_, gpu_, bytes); }

  // Fills the first and last host page of new memory with what an earlier owner left.
  void soil(uint8_t* start, uint64_t bytes) const;

  // For other processes of this user: the file that a block lies in, once it is open, and where in it.
  CUresult open();
  int file() const { return file_; }  // all of it, if it has no window
  struct Position {
    int file;
    uint64_t offset;
  };
  Position position_of(CUdeviceptr address) const;

 private:
  // A page shared by small allocations of one size.
  struct Slab {
    uint64_t unit = 0;
    uint32_t live = 0;
    uint32_t next = 0;           // number of the first unit that was never given out
    std::vector<uint32_t> free;  // numbers of those that were freed, the last at the end
    bool is_full() const { return free.empty() && next == kDevicePage / unit; }
  };

  bool reserve();
  void open_window();
  bool take_span(uint64_t bytes, CUdeviceptr& address);
  void give_span(CUdeviceptr address, uint64_t bytes);
  CUresult allocate_pages(uint64_t bytes, CUdeviceptr& address);
  void release_pages(CUdeviceptr address, uint64_t bytes, bool is_hollow);
  CUresult allocate_small(uint64_t unit, CUdeviceptr& address);
  void release_small(CUdeviceptr address, uint64_t unit);
  void release_locked(std::map<CUdeviceptr, Block>::iterator block);
  uint8_t* host(CUdeviceptr address) const { return bytes_ + (address - region_); }

  DeviceModel& model_;
  uint32_t slot_;
  uint32_t gpu_;
  Window window_;
  mutable std::mutex mutex_;
  int file_ = -1;
  CUdeviceptr region_ = 0;    // as the program sees it
  uint8_t* bytes_ = nullptr;  // the file, mapped
  uint64_t region_bytes_ = 0;
  int window_file_ = -1;         // of the first kWindowBytes; -1: they lie in file_
  CUdeviceptr window_end_ = 0;   // no span crosses it
  CUdeviceptr used_end_ = 0;     // from here on nothing was ever given out
  std::vector<uint8_t> former_;  // a host page that an earlier owner left; empty: there was none
  std::map<CUdeviceptr, Block> blocks_;
  std::map<CUdeviceptr, uint64_t> free_by_address_;
  std::set<std::pair<uint64_t, CUdeviceptr>> free_by_size_;
  std::map<CUdeviceptr, Slab> slabs_;
  std::map<uint64_t, std::set<CUdeviceptr>> slabs_with_room_;  // by unit
};

// A number for a live block, unique in the process.
uint64_t next_block_id();

}  // namespace tranche::emulator::cuda
