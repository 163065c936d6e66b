#include "emulator/nvml/board_detail.h"

#include <array>
#include <string_view>

namespace tranche::emulator::nvml {
namespace {

struct Row {
  std::string_view key;
  BoardDetail detail;
};

// After what nvidia-smi -q shows on such boards (BAR1 size, power limits, video clock); none of it was
// checked against a listing, and nothing but display depends on it. A board that is not here gets the last
// row.
constexpr std::array<Row, 9> kRows{{
    {"t4",
     {.bar1_mib = 256,
      .power_min_mw = 60'000,
      .power_max_mw = 70'000,
      .video_clock_max_mhz = 1470,
      .memory_banks = 0,
      .vbios = "90.04.96.00.01",
      .inforom = "G183.0200.00.02",
      .has_serial = true,
      .has_remapped_rows = false,
      .keeps_link_speed = false}},
    {"rtx4090",
     {.bar1_mib = 256,
      .power_min_mw = 150'000,
      .power_max_mw = 600'000,
      .video_clock_max_mhz = 2415,
      .memory_banks = 0,
      .vbios = "95.02.3C.00.01",
      .inforom = "G002.0000.00.03",
      .has_serial = false,
      .has_remapped_rows = false,
      .keeps_link_speed = false}},
    {"l40s",
     {.bar1_mib = 65536,
      .power_min_mw = 100'000,
      .power_max_mw = 350'000,
      .video_clock_max_mhz = 1965,
      .memory_banks = 192,
      .vbios = "95.02.66.00.01",
      .inforom = "G133.0242.00.03",
      .has_serial = true,
      .has_remapped_rows = true,
      .keeps_link_speed = false}},
    {"a100-40",
     {.bar1_mib = 65536,
      .power_min_mw = 100'000,
      .power_max_mw = 400'000,
      .video_clock_max_mhz = 1290,
      .memory_banks = 640,
      .vbios = "92.00.45.00.01",
      .inforom = "G506.0200.00.05",
      .has_serial = true,
      .has_remapped_rows = true,
      .keeps_link_speed = true}},
    {"a100-80",
     {.bar1_mib = 131072,
      .power_min_mw = 100'000,
      .power_max_mw = 400'000,
      .video_clock_max_mhz = 1290,
      .memory_banks = 640,
      .vbios = "92.00.9E.00.01",
      .inforom = "G506.0210.00.03",
      .has_serial = true,
      .has_remapped_rows = true,
      .keeps_link_speed = true}},
    {"h100-80",
     {.bar1_mib = 131072,
      .power_min_mw = 200'000,
      .power_max_mw = 700'000,
      .video_clock_max_mhz = 1545,
      .memory_banks = 2560,
      .vbios = "96.00.74.00.01",
      .inforom = "G520.0200.00.05",
      .has_serial = true,
      .has_remapped_rows = true,
      .keeps_link_speed = true}},
    {"h200",
     {.bar1_mib = 262144,
      .power_min_mw = 200'000,
      .power_max_mw = 700'000,
      .video_clock_max_mhz = 1545,
      .memory_banks = 3072,
      .vbios = "96.00.A5.00.01",
      .inforom = "G525.0225.00.03",
      .has_serial = true,
      .has_remapped_rows = true,
      .keeps_link_speed = true}},
    {"b200",
     {.bar1_mib = 262144,
      .power_min_mw = 200'000,
      .power_max_mw = 1'000'000,
      .video_clock_max_mhz = 1545,
      .memory_banks = 5120,
      .vbios = "97.00.88.00.01",
      .inforom = "G548.0201.00.06",
      .has_serial = true,
      .has_remapped_rows = true,
      .keeps_link_speed = true}},
    {"",
     {.bar1_mib = 256,
      .power_min_mw = 100'000,
      .power_max_mw = 1'000'000,
      .video_clock_max_mhz = 1500,
      .memory_banks = 192,
      .vbios = "00.00.00.00.00",
      .inforom = "G000.0000.00.00",
      .has_serial = true,
      .has_remapped_rows = false,
      .keeps_link_speed = true}},
}};

}  // namespace

const BoardDetail& board_detail(const Board& board) {
  for (const Row& row : kRows) {
    if (row.key == board.key) return row.detail;
  }
  return kRows.back().detail;
}

}  // namespace tranche::emulator::nvml
