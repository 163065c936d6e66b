// The messages between the daemon and tranche-sampler, over one SEQPACKET socket: one message a packet.
//
// Both ends are of one release, but a sampler that the driver holds can outlive its daemon's patience and the
// version says so. Fixed width, host byte order, every text NUL-terminated within its field, every count
// checked against the packet's size by the reader: the sampler parses what the driver sends, so the daemon
// does not trust it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

namespace tranche::sampler {

inline constexpr uint16_t kProtocolVersion = 2;
inline constexpr uint32_t kGpusMax = 64;
inline constexpr uint32_t kProcessesMax = 1024;  // in one reading; what is more leaves the list unknown
inline constexpr size_t kMessageMax = 65'536;
inline constexpr uint32_t kNoGpu = UINT32_MAX;

enum class Kind : uint16_t {
  // To the sampler.
  check = 1,   // one look at memory and processes of `gpu` now
  resume = 2,  // start reading `gpu`, which was skipped
  // From the sampler.
  inventory = 16,    // Inventory: first of the three, `gpu_count` messages `gpu` or `gpu_problem` follow
  gpu = 17,          // Gpu
  gpu_problem = 18,  // GpuProblem
  inventory_end = 19,
  reading = 20,     // Reading, periodic (id 0) or the answer to the check of that id
  user_name = 21,   // UserName
  progress = 22,    // Progress, several times a second while the sampler lives
  xid = 23,         // Xid: the driver has reported an error of the GPU or of a program on it
  mig_device = 24,  // MigDevice: behind the `gpu` that it is a part of
};

struct Header {
  uint32_t size = 0;  // of the whole message
  uint16_t version = kProtocolVersion;
  Kind kind = Kind::check;
  uint64_t id = 0;
};

struct Request {
  Header header;
  uint32_t gpu = 0;
  uint32_t reserved = 0;
};

struct Inventory {
  Header header;
  int32_t code = 0;   // NVML's, of the first call that failed; 0: all went well
  uint32_t call = 0;  // nvml::Call that failed
  uint32_t gpu_count = 0;
  uint32_t reserved = 0;
  char driver_version[80] = {};
  char problem[512] = {};  // why there is no inventory; empty: there is one
};

struct Link {
  uint32_t peer = 0;
  uint32_t kind = 0;  // LinkKind
};

// Bits of Gpu::known.
inline constexpr uint32_t kKnownMinor = 1, kKnownNumaNode = 2, kKnownMig = 4, kKnownComputeCapability = 8,
                          kKnownPowerLimit = 16, kKnownReserve = 32, kKnownMigCapable = 64,
                          kKnownVirtualization = 128;

struct Gpu {
  Header header;
  uint32_t index = 0;
  uint32_t known = 0;
  uint64_t memory_total = 0;    // bytes
  uint64_t memory_reserve = 0;  // bytes
  uint64_t layout = 0;          // as in Reading; known where the minor is
  uint32_t minor = 0;
  int32_t numa_node = -1;
  uint32_t mig_capable = 0, mig_enabled = 0, mig_pending = 0;
  uint32_t virtualization = 0;  // nvmlGpuVirtualizationMode_t
  uint32_t compute_major = 0, compute_minor = 0;
  uint32_t power_limit_milliwatts = 0;
  uint32_t link_count = 0;
  char uuid[96] = {};
  char name[96] = {};
  char pci_bus_id[32] = {};
  char cpu_affinity[256] = {};
  Link links[kGpusMax] = {};
};

struct MigDevice {
  Header header;
  uint32_t gpu = 0;
  uint32_t gpu_instance = 0, compute_instance = 0;
  uint32_t multiprocessors = 0;
  uint32_t gpu_instance_slices = 0, compute_instance_slices = 0;
  uint64_t memory_mib = 0;
  char uuid[96] = {};
};

struct Xid {
  Header header;
  uint32_t gpu = 0;
  uint32_t reserved = 0;
  uint64_t code = 0;
  int64_t seen_at = 0;  // CLOCK_BOOTTIME ns
};

struct GpuProblem {
  Header header;
  uint32_t index = 0;
  int32_t code = 0;      // NVML's
  uint32_t call = 0;     // nvml::Call that failed
  uint32_t skipped = 0;  // 1: not asked, because the daemon said so
};

struct Process {
  uint32_t pid = 0;
  uint32_t known = 0;   // kKnownUser...
  uint64_t memory = 0;  // bytes
  uint64_t start_ticks = 0;
  uint32_t uid = 0;
  uint32_t reserved = 0;
};
inline constexpr uint32_t kKnownMemory = 1, kKnownStart = 2, kKnownUser = 4;

// Bits of Reading::known.
inline constexpr uint32_t kKnownMemoryUsed = 1, kKnownUtilisation = 2, kKnownTemperature = 4, kKnownPower = 8,
                          kKnownProcesses = 16, kKnownClocks = 32, kKnownRows = 64, kKnownRecovery = 128,
                          kKnownLayout = 256;
// Bits of Reading::nodes_missing.
inline constexpr uint32_t kMissingControlNode = 1, kMissingMemoryNode = 2, kMissingGpuNode = 4;

struct Reading {
  Header header;
  uint32_t gpu = 0;
  uint32_t known = 0;
  int64_t taken_at = 0;      // CLOCK_BOOTTIME ns, before the first question
  int32_t code = 0;          // the worst that NVML said about memory and processes; 0: both are known
  uint32_t call = 0;         // nvml::Call that said it
  uint64_t memory_used = 0;  // bytes, without the reserve
  uint64_t clocks_event_reasons = 0;
  uint32_t utilisation = 0, memory_utilisation = 0;  // per cent
  uint32_t temperature = 0;                          // degrees Celsius
  uint32_t power_milliwatts = 0;
  uint32_t rows_pending = 0, rows_failure = 0;
  uint32_t process_count = 0;
  uint32_t nodes_missing = 0;    // device nodes without which no CUDA program starts
  uint64_t layout = 0;           // differs when minor number, MIG mode or MIG devices do
  uint32_t recovery_action = 0;  // what the driver recommends; 0: nothing
  uint32_t reserved = 0;
  Process processes[kProcessesMax] = {};  // only process_count of them are sent
};

struct UserName {
  Header header;
  uint32_t uid = 0;
  uint32_t reserved = 0;
  char name[64] = {};
};

// What each thread of the sampler is in. `gpu` is kNoGpu for a call that concerns no single one.
struct Activity {
  uint32_t gpu = kNoGpu;
  uint32_t call = 0;    // nvml::Call; 0: in none
  int64_t entered = 0;  // CLOCK_BOOTTIME ns
};
struct Progress {
  Header header;
  uint32_t count = 0;
  uint32_t reserved = 0;
  Activity activities[kGpusMax + 1] = {};
};

static_assert(sizeof(Header) == 16 && sizeof(Request) == 24 && sizeof(Inventory) == 624);
static_assert(sizeof(Gpu) == 16 + 72 + 480 + 8 * kGpusMax);
static_assert(sizeof(MigDevice) == 144 && sizeof(Xid) == 40);
static_assert(sizeof(GpuProblem) == 32 && sizeof(Process) == 32 && sizeof(UserName) == 88);
static_assert(offsetof(Reading, processes) == 104 && sizeof(Reading) <= kMessageMax);
static_assert(sizeof(Activity) == 16 && offsetof(Progress, activities) == 24);

// The message in `packet` if it is one of that type, whole and of this version; a shorter Reading is filled
// up.
template <class Message>
std::optional<Message> decode(std::span<const std::byte> packet, size_t size_min = sizeof(Message)) {
  static_assert(std::is_trivially_copyable_v<Message>);
  if (packet.size() < size_min || packet.size() > sizeof(Message)) return std::nullopt;
  Message message;
  std::memcpy(&message, packet.data(), packet.size());
  if (message.header.size != packet.size() || message.header.version != kProtocolVersion) return std::nullopt;
  return message;
}

// The text of a field: up to its NUL or its end, printable ASCII only.
template <size_t Size>
std::string field_text(const char (&field)[Size]) {
  std::string text(field, strnlen(field, Size));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

// Copies `text` into a field, cut so that a NUL follows it.
template <size_t Size>
void set_field(char (&field)[Size], const std::string& text) {
  const size_t length = text.size() < Size ? text.size() : Size - 1;
  std::memcpy(field, text.data(), length);
  std::memset(field + length, 0, Size - length);
}

}  // namespace tranche::sampler
