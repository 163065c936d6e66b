// The part of NVML's C interface that the sampler uses, declared from its public documentation: Debian has no
// nvml.h. Layouts are those of x86-64 and AArch64 Linux and are checked below.
//
// NVML's header maps plain names to the newest version by macro (nvmlInit means nvmlInit_v2), so the plain
// *symbol* is the oldest version, often with a smaller structure. Here every version has a name of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tranche::nvml {

// nvmlReturn_t. Any other value can arrive too: a newer driver has more of them.
enum class Code : int32_t {
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
  library_version_mismatch = 18,
  in_use = 19,
  memory = 20,
  no_data = 21,
  insufficient_resources = 23,
  argument_version_mismatch = 25,
  not_ready = 27,
  gpu_not_found = 28,
  invalid_state = 29,
  unknown = 999,
};

struct DeviceOpaque;
using Device = DeviceOpaque*;

inline constexpr uint64_t kNotAvailable = UINT64_MAX;  // NVML_VALUE_NOT_AVAILABLE

struct MemoryV1 {
  uint64_t total, free, used;  // bytes; used includes the driver's reserve
};
struct MemoryV2 {
  uint32_t version;
  uint64_t total, reserved, free, used;  // bytes
};
inline constexpr uint32_t kMemoryV2Version = static_cast<uint32_t>(sizeof(MemoryV2)) | 2u << 24;

struct PciInfo {
  char bus_id_legacy[16];
  uint32_t domain, bus, device, device_id;
  uint32_t subsystem_id;
  char bus_id[32];  // absent before _v3
};

struct Utilization {
  uint32_t gpu, memory;  // per cent
};

// A process that runs on a GPU. Three layouts have been in use, of 16, 24 and 32 bytes: drivers 535.43 to
// 535.86 put one more field into what _v3 returns, and later ones took it out again.
struct ProcessV1 {
  uint32_t pid;
  uint64_t used_memory;
};
struct ProcessV2 {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance, compute_instance;
};
struct ProcessV3Long {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance, compute_instance;
  uint64_t used_protected_memory;
};

inline constexpr uint32_t kTemperatureSensorGpu = 0;
inline constexpr uint32_t kP2pIndexNvlink = 2;
inline constexpr uint32_t kP2pStatusOk = 0;
inline constexpr uint32_t kNvlinksMax = 18;

// nvmlGpuTopologyLevel_t
inline constexpr uint32_t kTopologyInternal = 0;
inline constexpr uint32_t kTopologySingle = 10;
inline constexpr uint32_t kTopologyMultiple = 20;
inline constexpr uint32_t kTopologyHostBridge = 30;
inline constexpr uint32_t kTopologyNode = 40;
inline constexpr uint32_t kTopologySystem = 50;

// nvmlEventData_t; the first version ends before the instances.
struct EventData {
  Device device;
  unsigned long long type, data;
  uint32_t gpu_instance, compute_instance;
};
struct EventSetOpaque;
using EventSet = EventSetOpaque*;
inline constexpr unsigned long long kEventXid = 0x8;

// nvmlFieldValue_t
struct FieldValue {
  uint32_t field, scope;
  long long timestamp, latency;
  uint32_t type;
  int32_t code;
  union {
    double real;
    uint32_t u32;
    unsigned long long u64;
  } value;
};
inline constexpr uint32_t kFieldRecoveryAction = 230;  // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION

// nvmlGpuVirtualizationMode_t
inline constexpr uint32_t kVirtualizationNone = 0, kVirtualizationPassthrough = 1, kVirtualizationGuest = 2;

// nvmlDeviceAttributes_t
struct Attributes {
  uint32_t multiprocessors, copy_engines, decoders, encoders, jpeg, optical_flow;
  uint32_t gpu_instance_slices, compute_instance_slices;
  unsigned long long memory_mib;
};

// nvmlClocksEventReasons that mean that something is wrong with board or room, not just a power limit.
inline constexpr uint64_t kClocksHardwareSlowdown = 0x08;
inline constexpr uint64_t kClocksHardwareThermal = 0x40;
inline constexpr uint64_t kClocksPowerBrake = 0x80;

static_assert(sizeof(MemoryV1) == 24 && sizeof(MemoryV2) == 40 && sizeof(PciInfo) == 68);
static_assert(sizeof(ProcessV1) == 16 && sizeof(ProcessV2) == 24 && sizeof(ProcessV3Long) == 32);
static_assert(offsetof(ProcessV3Long, used_protected_memory) == 24);
static_assert(sizeof(EventData) == 32 && sizeof(FieldValue) == 40 && sizeof(Attributes) == 40);
static_assert(kMemoryV2Version == 0x02000028);

}  // namespace tranche::nvml
