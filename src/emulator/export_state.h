// Memory that processes share by a file, as it lies in shared memory. The driver frees such memory when every
// handle and mapping of it is gone, in whatever process (cuMemRelease in cuda.h): so its charge moves on from
// a holder that ends to one that is left. Which of them NVML counts it for is not published; here it is the
// maker, then the holder with the lowest row.
//
// Written under the table lock. Operations: exports.cc.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "emulator/timeline.h"

namespace tranche::emulator {

inline constexpr uint32_t kMaxExports = 1024;

struct SharedExport {
  std::atomic<uint32_t> in_use;
  uint32_t gpu;
  uint64_t key;  // the inode of the file
  uint64_t bytes;
  uint32_t payer;                                    // row of the process that is charged
  std::array<uint64_t, kMaxProcesses / 64> holders;  // a bit for each row

  bool is_held_by(uint32_t slot) const { return (holders[slot / 64] >> (slot % 64) & 1) != 0; }
  void set_held(uint32_t slot, bool held) {
    const uint64_t bit = uint64_t{1} << (slot % 64);
    holders[slot / 64] = held ? holders[slot / 64] | bit : holders[slot / 64] & ~bit;
  }
};

struct SharedExports {
  std::atomic<uint32_t> high_water;  // rows ever used
  std::array<SharedExport, kMaxExports> rows;
};

}  // namespace tranche::emulator
