// Where a GPU sits in its machine: processors, memory node, links to other GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/enums.h"
#include "model/gpu.h"

namespace tranche {

struct PciPlace {
  std::optional<int32_t> numa_node;
  std::string cpu_list;  // "0-15,32-47"; empty if unknown
};

// What the kernel says of a PCI device, from `sysfs_root` ("/sys"). `pci_bus_id` is NVML's: eight digits of
// domain, upper case ("00000000:3B:00.0").
PciPlace read_pci_place(const std::string& sysfs_root, std::string_view pci_bus_id);

// Processors of a set of 64-bit words as the kernel writes lists: "0-3,8". Cut at a whole range that keeps it
// within `length_max`.
std::string cpu_list(std::span<const uint64_t> words, size_t length_max);

// NVML's nvmlGpuTopologyLevel_t, or NVLink when there is one, as ours; a level that is not known, or no
// answer, is the farthest: a guess must not draw jobs together.
LinkKind link_kind(std::optional<uint32_t> level, bool nvlink);

}  // namespace tranche
