// What only NVML tells about a board, beside emulator/board.h. Power in mW, memory in MiB, clocks in MHz.
#pragma once

#include <cstdint>
#include <string_view>

#include "emulator/board.h"

namespace tranche::emulator::nvml {

struct BoardDetail {
  uint32_t bar1_mib;
  uint32_t power_min_mw, power_max_mw;  // range in which the limit can be set
  uint32_t video_clock_max_mhz;
  uint32_t memory_banks;            // of which rows can be remapped
  std::string_view vbios, inforom;  // versions
  bool has_serial;                  // GeForce boards tell none
  bool has_remapped_rows;           // Ampere and later with ECC; T4 retires pages instead
  bool keeps_link_speed;            // boards that idle in P0 do not slow their PCIe link
};

const BoardDetail& board_detail(const Board& board);

}  // namespace tranche::emulator::nvml
