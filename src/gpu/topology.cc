#include "gpu/topology.h"

#include <cctype>
#include <charconv>

#include "gpu/nvml_types.h"
#include "linux/files.h"

namespace tranche {
namespace {

constexpr size_t kSysfsFileMax = 8192;

// NVML writes eight digits of domain, sysfs at least four, lower case.
std::optional<std::string> sysfs_name(std::string_view pci_bus_id) {
  const size_t colon = pci_bus_id.find(':');
  if (colon == std::string_view::npos || colon > 8) return std::nullopt;
  std::string name;
  for (const char c : pci_bus_id) {
    // Nothing but an address may become part of a path.
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0 && c != ':' && c != '.') return std::nullopt;
    name.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  if (name.find("..") != std::string::npos) return std::nullopt;
  if (colon == 8 && name.starts_with("0000")) name.erase(0, 4);
  return name;
}

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  return text;
}

}  // namespace

PciPlace read_pci_place(const std::string& sysfs_root, std::string_view pci_bus_id) {
  PciPlace place;
  const std::optional<std::string> name = sysfs_name(pci_bus_id);
  if (!name) return place;
  const std::string directory = sysfs_root + "/bus/pci/devices/" + *name;
  if (const auto content = read_file(directory + "/numa_node", kSysfsFileMax)) {
    const std::string text = trimmed(*content);
    int32_t node = -1;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), node);
    if (parsed.ec == std::errc() && node >= 0) place.numa_node = node;  // -1: the kernel does not know
  }
  if (auto content = read_file(directory + "/local_cpulist", kSysfsFileMax)) {
    place.cpu_list = trimmed(std::move(*content));
  }
  return place;
}

std::string cpu_list(std::span<const uint64_t> words, size_t length_max) {
  const size_t count = words.size() * 64;
  const auto is_set = [&](size_t cpu) { return cpu < count && ((words[cpu / 64] >> (cpu % 64)) & 1) != 0; };
  std::string list;
  for (size_t first = 0; first < count; ++first) {
    if (!is_set(first)) continue;
    size_t last = first;
    while (is_set(last + 1)) ++last;
    std::string range = list.empty() ? "" : ",";
    range += std::to_string(first);
    if (last != first) range += "-" + std::to_string(last);
    if (list.size() + range.size() > length_max) break;
    list += range;
    first = last;
  }
  return list;
}

LinkKind link_kind(std::optional<uint32_t> level, bool nvlink) {
  if (nvlink) return LinkKind::nvlink;
  if (!level) return LinkKind::system;
  switch (*level) {
    case nvml::kTopologyInternal:
    case nvml::kTopologySingle:
    case nvml::kTopologyMultiple:
      return LinkKind::pcie_switch;
    case nvml::kTopologyHostBridge:
      return LinkKind::pcie_host_bridge;
    case nvml::kTopologyNode:
      return LinkKind::numa_node;
    default:
      return LinkKind::system;
  }
}

}  // namespace tranche
