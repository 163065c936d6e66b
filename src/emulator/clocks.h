// The clock at which a GPU computes: what is shown of it, and what kernels take by.
//
// Source: kernels that are bound by computing take longer in inverse proportion to the graphics clock. What
// heat and power leave of the clock is chosen: a third of the highest under heat and a power brake, four
// fifths under the power cap.
#pragma once

#include <algorithm>

#include "emulator/board.h"
#include "emulator/fault_state.h"
#include "emulator/settings_state.h"

namespace tranche::emulator {

// Locked clocks hold whether the GPU is idle or not.
inline uint32_t clock_within(const SharedGpuSettings& settings, uint32_t mhz) {
  const uint32_t least = settings.clock_min_mhz.load(), most = settings.clock_max_mhz.load();
  return most == 0 ? mhz : std::clamp(mhz, std::min(least, most), most);
}

// What the reasons for lower clocks leave of `mhz`.
inline uint32_t throttled_clock(const Board& board, uint64_t reasons, uint32_t mhz) {
  if (reasons == 0) return mhz;
  const bool hard =
      (reasons & (kReasonHardwareSlowdown | kReasonHardwareThermal | kReasonSoftwareThermal)) != 0;
  return std::min(mhz, hard ? board.clock_max_mhz / 3 : board.clock_max_mhz * 4 / 5);
}

// Thousandths of their speed that kernels lack.
inline uint32_t kernels_slowed_by(const Board& board, const SharedGpuSettings& settings, uint64_t reasons) {
  const uint32_t mhz = throttled_clock(board, reasons, clock_within(settings, board.clock_max_mhz));
  return 1000 -
         static_cast<uint32_t>(uint64_t{1000} * std::min(mhz, board.clock_max_mhz) / board.clock_max_mhz);
}

}  // namespace tranche::emulator
