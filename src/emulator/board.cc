#include "emulator/board.h"

#include <array>

namespace tranche::emulator {
namespace {

// Sources, by column.
//  name, memory_mib: nvidia-smi listings of each board (totals 15360, 24564, 46068, 40960, 81920, 81559,
//    143771, 183359 MiB).
//  reserve_mib: NVML total less the total that CUDA reports. rtx4090: the 346 MiB that its nvidia-smi -q
//    shows as reserved. t4: deviceQuery's 15109.75 MiB, rounded. b200: CUDA's 178.35 GiB. The others from
//    totals that PyTorch prints in public logs (39.39, 79.15, 79.10, 139.8, 44.39 GiB); they move by some
//    tens of MiB from driver to driver.
//  multiprocessors, bus, l2, clocks, power limit, PCIe, NVLinks: vendor data sheets and nvidia-smi -q.
//  context_mib, idle power, all temperatures but slowdown, idle clocks: chosen, plausible for the board.
constexpr std::array<Board, 8> kBoards{{
    {.key = "t4", .name = "Tesla T4", .architecture = Architecture::Turing, .brand = Brand::Tesla,
     .compute_major = 7, .compute_minor = 5, .memory_mib = 15360, .reserve_mib = 250, .context_mib = 130,
     .multiprocessors = 40, .threads_per_multiprocessor = 1024, .cores_per_multiprocessor = 64,
     .shared_kib_per_multiprocessor = 64, .l2_kib = 4096, .memory_bus_bits = 256,
     .clock_max_mhz = 1590, .clock_idle_mhz = 300, .memory_clock_mhz = 5001, .memory_clock_idle_mhz = 405,
     .power_limit_mw = 70'000, .power_idle_mw = 10'000, .temperature_idle = 36, .temperature_busy = 72,
     .temperature_slowdown = 93, .temperature_shutdown = 96, .pcie_generation = 3, .pcie_width = 16,
     .nvlinks = 0, .pci_device_id = 0x1EB8, .ecc = true, .fan = false, .mig_capable = false},
    {.key = "rtx4090", .name = "NVIDIA GeForce RTX 4090", .architecture = Architecture::Ada,
     .brand = Brand::GeForceRtx, .compute_major = 8, .compute_minor = 9, .memory_mib = 24564,
     .reserve_mib = 346, .context_mib = 280, .multiprocessors = 128, .threads_per_multiprocessor = 1536,
     .cores_per_multiprocessor = 128, .shared_kib_per_multiprocessor = 100, .l2_kib = 73728,
     .memory_bus_bits = 384, .clock_max_mhz = 3105, .clock_idle_mhz = 210, .memory_clock_mhz = 10501,
     .memory_clock_idle_mhz = 405, .power_limit_mw = 450'000, .power_idle_mw = 18'000,
     .temperature_idle = 35, .temperature_busy = 70, .temperature_slowdown = 95, .temperature_shutdown = 100,
     .pcie_generation = 4, .pcie_width = 16, .nvlinks = 0, .pci_device_id = 0x2684, .ecc = false,
     .fan = true, .mig_capable = false},
    {.key = "l40s", .name = "NVIDIA L40S", .architecture = Architecture::Ada, .brand = Brand::Nvidia,
     .compute_major = 8, .compute_minor = 9, .memory_mib = 46068, .reserve_mib = 612, .context_mib = 300,
     .multiprocessors = 142, .threads_per_multiprocessor = 1536, .cores_per_multiprocessor = 128,
     .shared_kib_per_multiprocessor = 100, .l2_kib = 98304, .memory_bus_bits = 384,
     .clock_max_mhz = 2520, .clock_idle_mhz = 210, .memory_clock_mhz = 9001, .memory_clock_idle_mhz = 405,
     .power_limit_mw = 350'000, .power_idle_mw = 33'000, .temperature_idle = 33, .temperature_busy = 68,
     .temperature_slowdown = 92, .temperature_shutdown = 95, .pcie_generation = 4, .pcie_width = 16,
     .nvlinks = 0, .pci_device_id = 0x26B9, .ecc = true, .fan = false, .mig_capable = false},
    {.key = "a100-40", .name = "NVIDIA A100-SXM4-40GB", .architecture = Architecture::Ampere,
     .brand = Brand::Nvidia, .compute_major = 8, .compute_minor = 0, .memory_mib = 40960,
     .reserve_mib = 624, .context_mib = 410, .multiprocessors = 108, .threads_per_multiprocessor = 2048,
     .cores_per_multiprocessor = 64, .shared_kib_per_multiprocessor = 164, .l2_kib = 40960,
     .memory_bus_bits = 5120, .clock_max_mhz = 1410, .clock_idle_mhz = 210, .memory_clock_mhz = 1215,
     .memory_clock_idle_mhz = 1215, .power_limit_mw = 400'000, .power_idle_mw = 52'000,
     .temperature_idle = 32, .temperature_busy = 62, .temperature_slowdown = 89, .temperature_shutdown = 92,
     .pcie_generation = 4, .pcie_width = 16, .nvlinks = 12, .pci_device_id = 0x20B0, .ecc = true,
     .fan = false, .mig_capable = true},
    {.key = "a100-80", .name = "NVIDIA A100-SXM4-80GB", .architecture = Architecture::Ampere,
     .brand = Brand::Nvidia, .compute_major = 8, .compute_minor = 0, .memory_mib = 81920,
     .reserve_mib = 870, .context_mib = 410, .multiprocessors = 108, .threads_per_multiprocessor = 2048,
     .cores_per_multiprocessor = 64, .shared_kib_per_multiprocessor = 164, .l2_kib = 40960,
     .memory_bus_bits = 5120, .clock_max_mhz = 1410, .clock_idle_mhz = 210, .memory_clock_mhz = 1593,
     .memory_clock_idle_mhz = 1593, .power_limit_mw = 400'000, .power_idle_mw = 62'000,
     .temperature_idle = 33, .temperature_busy = 64, .temperature_slowdown = 89, .temperature_shutdown = 92,
     .pcie_generation = 4, .pcie_width = 16, .nvlinks = 12, .pci_device_id = 0x20B2, .ecc = true,
     .fan = false, .mig_capable = true},
    {.key = "h100-80", .name = "NVIDIA H100 80GB HBM3", .architecture = Architecture::Hopper,
     .brand = Brand::Nvidia, .compute_major = 9, .compute_minor = 0, .memory_mib = 81559,
     .reserve_mib = 561, .context_mib = 520, .multiprocessors = 132, .threads_per_multiprocessor = 2048,
     .cores_per_multiprocessor = 128, .shared_kib_per_multiprocessor = 228, .l2_kib = 51200,
     .memory_bus_bits = 5120, .clock_max_mhz = 1980, .clock_idle_mhz = 345, .memory_clock_mhz = 2619,
     .memory_clock_idle_mhz = 2619, .power_limit_mw = 700'000, .power_idle_mw = 72'000,
     .temperature_idle = 31, .temperature_busy = 66, .temperature_slowdown = 87, .temperature_shutdown = 92,
     .pcie_generation = 5, .pcie_width = 16, .nvlinks = 18, .pci_device_id = 0x2330, .ecc = true,
     .fan = false, .mig_capable = true},
    {.key = "h200", .name = "NVIDIA H200", .architecture = Architecture::Hopper, .brand = Brand::Nvidia,
     .compute_major = 9, .compute_minor = 0, .memory_mib = 143771, .reserve_mib = 607, .context_mib = 530,
     .multiprocessors = 132, .threads_per_multiprocessor = 2048, .cores_per_multiprocessor = 128,
     .shared_kib_per_multiprocessor = 228, .l2_kib = 61440, .memory_bus_bits = 6144,
     .clock_max_mhz = 1980, .clock_idle_mhz = 345, .memory_clock_mhz = 3201, .memory_clock_idle_mhz = 3201,
     .power_limit_mw = 700'000, .power_idle_mw = 76'000, .temperature_idle = 31, .temperature_busy = 66,
     .temperature_slowdown = 87, .temperature_shutdown = 92, .pcie_generation = 5, .pcie_width = 16,
     .nvlinks = 18, .pci_device_id = 0x2335, .ecc = true, .fan = false, .mig_capable = true},
    {.key = "b200", .name = "NVIDIA B200", .architecture = Architecture::Blackwell, .brand = Brand::Nvidia,
     .compute_major = 10, .compute_minor = 0, .memory_mib = 183359, .reserve_mib = 729, .context_mib = 600,
     .multiprocessors = 148, .threads_per_multiprocessor = 2048, .cores_per_multiprocessor = 128,
     .shared_kib_per_multiprocessor = 228, .l2_kib = 129536, .memory_bus_bits = 7680,
     .clock_max_mhz = 1965, .clock_idle_mhz = 120, .memory_clock_mhz = 3996, .memory_clock_idle_mhz = 3996,
     .power_limit_mw = 1'000'000, .power_idle_mw = 140'000, .temperature_idle = 32, .temperature_busy = 66,
     .temperature_slowdown = 87, .temperature_shutdown = 92, .pcie_generation = 5, .pcie_width = 16,
     .nvlinks = 18, .pci_device_id = 0x2901, .ecc = true, .fan = false, .mig_capable = true},
}};

}  // namespace

std::span<const Board> boards() { return kBoards; }

Result<uint32_t> find_board(std::string_view key) {
  for (uint32_t i = 0; i < kBoards.size(); ++i) {
    if (kBoards[i].key == key) return i;
  }
  std::string known;
  for (const Board& board : kBoards) known.append(known.empty() ? "" : ", ").append(board.key);
  return fail(ErrorCode::not_found,
              "there is no board \"" + std::string(key) + "\"; choose one of " + known);
}

}  // namespace tranche::emulator
