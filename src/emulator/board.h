// The boards the emulator knows, as facts of one table: what NVML and CUDA say about each.
//
// Memory in MiB, power in mW, clocks in MHz. Every number is from a public listing of that board, or is
// chosen; board.cc says which.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tranche::emulator {

// NVML's numbers for its architecture enumeration.
enum class Architecture : uint32_t { Turing = 6, Ampere = 7, Ada = 8, Hopper = 9, Blackwell = 10 };

// NVML's numbers for its brand enumeration, those that occur here. nvidia-smi -q calls an RTX 4090's brand
// "GeForce": the enumeration's later "GeForce RTX" is not what the driver answers.
enum class Brand : uint32_t { Tesla = 2, GeForce = 5, Nvidia = 14 };

struct Board {
  std::string_view key;   // what --board takes: "h100-80"
  std::string_view name;  // what nvidia-smi shows: "NVIDIA H100 80GB HBM3"
  Architecture architecture;
  Brand brand;
  uint32_t compute_major, compute_minor;
  uint32_t memory_mib;       // NVML's total
  uint32_t reserve_mib;      // held by the driver: total - reserve is what CUDA programs can have
  uint32_t context_mib;      // device memory that one CUDA context takes
  uint32_t multiprocessors;  // SMs
  uint32_t threads_per_multiprocessor;
  uint32_t cores_per_multiprocessor;
  uint32_t shared_kib_per_multiprocessor;  // shared memory; a block may opt in to 1 KiB less
  uint32_t l2_kib;
  uint32_t memory_bus_bits;
  uint32_t clock_max_mhz, clock_idle_mhz;
  uint32_t memory_clock_mhz, memory_clock_idle_mhz;
  uint32_t power_limit_mw, power_idle_mw;
  uint32_t temperature_idle, temperature_busy;  // degrees Celsius when idle and when always busy
  uint32_t temperature_slowdown, temperature_shutdown;
  uint32_t pcie_generation, pcie_width;
  uint32_t nvlinks;        // 0: no NVLink
  uint32_t pci_device_id;  // the device half of NVML's pciDeviceId
  bool ecc;
  bool fan;  // has a fan of its own that NVML can read
  bool mig_capable;
};

// All boards. An index into it is stable within a release.
std::span<const Board> boards();
// Position in boards(), or an error that lists the keys.
Result<uint32_t> find_board(std::string_view key);

}  // namespace tranche::emulator
