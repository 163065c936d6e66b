// What the scheduler knows of a GPU and of the machine that it is in.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "model/enums.h"

namespace tranche {

// ok: usable. degraded: usable, chosen last (throttled, corrected errors). failed: not usable now, may come
// back. lost: fallen off the bus.
#define TRANCHE_HEALTH(X) X(ok) X(degraded) X(failed) X(lost)
TRANCHE_ENUM(Health, TRANCHE_HEALTH)

// How two GPUs of one machine are joined, best first. The names are NVML's levels.
#define TRANCHE_LINK_KIND(X) X(nvlink) X(pcie_switch) X(pcie_host_bridge) X(numa_node) X(system)
TRANCHE_ENUM(LinkKind, TRANCHE_LINK_KIND)

struct GpuLink {
  GpuId peer;
  LinkKind kind = LinkKind::system;
  bool operator==(const GpuLink&) const = default;
};

// One physical device. `id` is given once per log; `uuid` is the name that people and drivers use.
struct Gpu {
  GpuId id;
  NodeId node;
  std::string uuid;
  uint32_t index = 0;      // order of PCI bus addresses on its node, from 0
  uint32_t minor = 0;      // device node number: /dev/nvidia<minor>
  std::string type;        // short name that users ask for: "h100-80", "rtx4090"
  std::string name;        // the driver's product name
  MiB memory_usable;       // total less the driver's reserve; contexts count against the job that makes them
  int32_t numa_node = -1;  // -1: unknown
  bool mig_capable = false;
  std::vector<GpuLink> links;
  bool operator==(const Gpu&) const = default;
};

// One machine.
struct Node {
  NodeId id;
  std::string name;
  std::string pool;  // node pool, "" is the default one
  MilliCpu cpu;
  MiB memory;
  std::vector<std::pair<std::string, std::string>> labels;  // sorted by key
  bool operator==(const Node&) const = default;
};

}  // namespace tranche
