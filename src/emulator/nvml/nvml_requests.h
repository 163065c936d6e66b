// More of NVML's binary interface: structures that one function each takes. Rules as in nvml_abi.h.
#pragma once

#include <array>
#include <cstdint>

#include "emulator/nvml/nvml_abi.h"

namespace tranche::emulator::nvml {

struct GpmMetric {
  uint32_t id;
  Return result;
  double value;
  const char* short_name;
  const char* long_name;
  const char* unit;
};
// The array behind it is as long as the metrics that the caller's header knows; `count` of it count.
struct GpmMetricsGet {
  uint32_t version, count;
  GpmSample* first;
  GpmSample* second;
  GpmMetric metrics[1];
};

struct AccountingStats {
  uint32_t gpu_percent, memory_percent;
  uint64_t peak_bytes, time_ms, start_us;
  uint32_t is_running;
  std::array<uint32_t, 5> reserved;
};
struct AccountingStatsV2 {
  uint32_t pid, is_running, gpu_percent, memory_percent;
  uint64_t peak_bytes;
  uint32_t sample_count;
  uint64_t sum_gpu_percent, sum_memory_percent, time_ms, start_us;
};

struct SetMemoryLimits {
  const char* cgroup;  // full path of its directory
  uint64_t soft_bytes, hard_bytes;
};
struct GetMemoryLimits {
  const char* cgroup;
  uint64_t soft_bytes, hard_bytes, used_bytes;
};

struct TemperatureReading {
  uint32_t version, sensor;
  int32_t celsius;
};
struct MarginTemperature {
  uint32_t version;
  int32_t celsius;  // still to go to the slowdown
};
struct FanSpeedInfo {
  uint32_t version, fan, rpm;
};
struct DriverBranch {
  uint32_t version;
  std::array<char, 80> text;
};
struct TextAnswer {  // performance modes and current clocks
  uint32_t version;
  std::array<char, 2048> text;
};
struct UuidRequest {
  uint32_t version, type;
  union {
    std::array<char, 41> text;
    std::array<uint8_t, 16> bytes;
  };
};
struct PlatformIdentifier {
  uint32_t version;
  uint64_t value;
};
struct AddressingMode {
  uint32_t version, mode;
};
struct RepairStatus {
  uint32_t version, channel_pending, tpc_pending;
};
struct GpuUptime {
  uint32_t seconds;
};
struct DeviceCapabilities {
  uint32_t version, mask;
};
struct ConfidentialMemory {
  uint64_t protected_kib, unprotected_kib;
};
struct FrameCaptureStats {
  uint32_t sessions, frames_per_second, latency_us;
};
struct ViolationTime {
  uint64_t reference_us, violation_ns;
};
struct ThermalSensor {
  int32_t controller, least, most, celsius, target;
};
struct ThermalSettings {
  uint32_t count;
  std::array<ThermalSensor, 3> sensors;
};
struct DomainUtilisation {
  uint32_t is_present, percent, raise_above, lower_below;
};
struct DynamicStates {
  uint32_t flags;
  std::array<DomainUtilisation, 8> domains;
};
struct RowHistogram {
  uint32_t max, high, partial, low, none;
};

struct GpuFabric {
  std::array<uint8_t, 16> cluster;
  Return status;
  uint32_t clique;
  uint8_t state;
};
struct GpuFabricV3 {  // the second form ends before health_summary
  uint32_t version;
  std::array<uint8_t, 16> cluster;
  Return status;
  uint32_t clique;
  uint8_t state;
  uint32_t health_mask;
  uint8_t health_summary;
};

struct LicenceExpiry {
  uint32_t year;
  uint16_t month, day, hour, minute, second;
  uint8_t status;
};
struct LicensableFeature {
  uint32_t code, state;
  std::array<char, 128> licence, product;
  uint32_t is_enabled;
  LicenceExpiry expiry;
};
struct LicensableFeatures {
  int32_t is_supported;
  uint32_t count;
  std::array<LicensableFeature, 3> features;
};

}  // namespace tranche::emulator::nvml
