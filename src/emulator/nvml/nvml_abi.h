// The part of NVML's binary interface that the emulator answers: return codes, constants and structures as
// they lie in memory. Names are ours; numbers and layouts are those of NVML for driver release 550.
//
// A versioned structure carries `sizeof | version << 24` in its first word; versioned<T>(n) computes it.
// Sizes are asserted here, because a wrong one shows as scrambled process ids in somebody's tool.
#pragma once

#include <array>
#include <cstdint>

namespace tranche::emulator::nvml {

enum class Return : int32_t {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  no_permission = 4,
  already_initialized = 5,
  not_found = 6,
  insufficient_size = 7,
  insufficient_power = 8,
  driver_not_loaded = 9,
  timeout = 10,
  irq_issue = 11,
  library_not_found = 12,
  function_not_found = 13,
  corrupted_inforom = 14,
  gpu_is_lost = 15,
  reset_required = 16,
  operating_system = 17,
  lib_rm_version_mismatch = 18,
  in_use = 19,
  memory = 20,
  no_data = 21,
  vgpu_ecc_not_supported = 22,
  insufficient_resources = 23,
  freq_not_supported = 24,
  argument_version_mismatch = 25,
  deprecated = 26,
  not_ready = 27,
  gpu_not_found = 28,
  invalid_state = 29,
  unknown = 999,
};

inline constexpr uint32_t kInitNoGpus = 1;
inline constexpr uint32_t kInitNoAttach = 2;

// What nvmlDevice_t and nvmlEventSet_t point to; clients only pass the pointers around.
struct Device;
struct EventSet;
struct Unit;
struct GpuInstance;
struct ComputeInstance;
struct GpmSample;
struct SystemEventSet;

template <class T>
constexpr uint32_t versioned(uint32_t version) {
  return static_cast<uint32_t>(sizeof(T)) | version << 24;
}

inline constexpr uint32_t kDisabled = 0, kEnabled = 1;  // of every on/off answer
inline constexpr uint32_t kNoInstance = 0xFFFFFFFF;     // GPU and compute instance outside MIG

struct Memory {
  uint64_t total, free, used;  // bytes; used includes the driver's reserve
};
struct MemoryV2 {
  uint32_t version;
  uint64_t total, reserved, free, used;
};
static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40);

struct Bar1Memory {
  uint64_t total, free, used;
};

struct Utilization {
  uint32_t gpu, memory;  // percent
};

// The first form ends after `pci_device_id`, the second after the reserved words.
struct PciInfoV1 {
  std::array<char, 16> bus_id;
  uint32_t domain, bus, device, pci_device_id;
};
struct PciInfoV2 {
  std::array<char, 16> bus_id;
  uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  std::array<uint32_t, 4> reserved;
};
struct PciInfoV3 {
  std::array<char, 16> bus_id_legacy;
  uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  std::array<char, 32> bus_id;
};
struct PciInfoExtended {
  uint32_t version;
  uint32_t domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
  std::array<char, 32> bus_id;
};
static_assert(sizeof(PciInfoV1) == 32 && sizeof(PciInfoV2) == 52 && sizeof(PciInfoV3) == 68 &&
              sizeof(PciInfoExtended) == 64);

struct ProcessInfoV1 {
  uint32_t pid;
  uint64_t used_bytes;
};
struct ProcessInfoV2 {  // also the layout of _v3
  uint32_t pid;
  uint64_t used_bytes;
  uint32_t gpu_instance, compute_instance;
};
struct ProcessDetail {
  uint32_t pid;
  uint64_t used_bytes;
  uint32_t gpu_instance, compute_instance;
  uint64_t used_protected_bytes;
};
struct ProcessDetailList {
  uint32_t version, mode, count;
  ProcessDetail* processes;
};
static_assert(sizeof(ProcessInfoV1) == 16 && sizeof(ProcessInfoV2) == 24 && sizeof(ProcessDetail) == 32 &&
              sizeof(ProcessDetailList) == 24);

struct ProcessUtilizationSample {
  uint32_t pid;
  uint64_t timestamp_us;
  uint32_t sm, memory, encoder, decoder;  // percent
};
struct ProcessUtilizationInfo {
  uint64_t timestamp_us;
  uint32_t pid, sm, memory, encoder, decoder, jpeg, optical_flow;
};
struct ProcessesUtilization {
  uint32_t version, count;
  uint64_t last_seen_us;
  ProcessUtilizationInfo* processes;
};
static_assert(sizeof(ProcessUtilizationSample) == 32 && sizeof(ProcessUtilizationInfo) == 40 &&
              sizeof(ProcessesUtilization) == 24);

// How to read a Value.
enum class ValueType : uint32_t { real = 0, u32 = 1, unsigned_long = 2, u64 = 3, s64 = 4, s32 = 5 };
union Value {
  double real;
  int32_t s32;
  uint32_t u32;
  uint64_t u64;
  int64_t s64;
};
struct Sample {
  uint64_t timestamp_us;
  Value value;
};
struct FieldValue {
  uint32_t field, scope;
  int64_t timestamp_us, latency_us;
  ValueType type;
  Return result;
  Value value;
};
static_assert(sizeof(Value) == 8 && sizeof(Sample) == 16 && sizeof(FieldValue) == 40);

struct EccErrorCounts {
  uint64_t l1_cache, l2_cache, device_memory, register_file;
};

struct EventDataV1 {
  Device* device;
  uint64_t type, data;
};
struct EventDataV2 {
  Device* device;
  uint64_t type, data;
  uint32_t gpu_instance, compute_instance;
};
static_assert(sizeof(EventDataV1) == 24 && sizeof(EventDataV2) == 32);

struct GpmSupport {
  uint32_t version, is_supported;
};

inline constexpr uint64_t kEventXidCriticalError = 0x8;

// Enumerations, as far as the emulator answers them.
enum class ClockDomain : uint32_t { graphics = 0, sm = 1, memory = 2, video = 3 };
enum class TopologyLevel : uint32_t {
  internal = 0,
  single = 10,
  multiple = 20,
  host_bridge = 30,
  node = 40,
  system = 50
};
enum class PeerCapability : uint32_t { read = 0, write = 1, nvlink = 2, atomics = 3, pci = 4 };
enum class PeerStatus : uint32_t { ok = 0, chipset_not_supported = 1, not_supported = 5 };

}  // namespace tranche::emulator::nvml
