// Processors and host memory, which queues may have quotas of beside GPUs.
#pragma once

#include <optional>

#include "base/units.h"

namespace tranche::scheduler {

struct HostAmount {
  MilliCpu cpu;
  MiB memory;
  HostAmount& operator+=(const HostAmount& other) {
    cpu += other.cpu;
    memory += other.memory;
    return *this;
  }
  HostAmount operator-() const { return {-cpu, -memory}; }
  bool operator==(const HostAmount&) const = default;
};

// Unset: not bounded.
struct HostBound {
  std::optional<MilliCpu> cpu;
  std::optional<MiB> memory;
  bool is_set() const { return cpu || memory; }
};

}  // namespace tranche::scheduler
