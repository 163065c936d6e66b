// The machine's GPUs as the daemon sees them: what there is, what is on each now, and whether it is well.
// Real: nvml_host.h (NVML in a process of its own). Simulated: simulated_host.h.
//
// Nothing here blocks, whatever the driver does: answers come by callback on the reactor's thread, each
// callback exactly once, never from inside the call that asked for it, and not at all once the host is
// destroyed. Every request has a deadline; a request that gets no answer ends in an error.
// What is not known is an empty optional, never zero, and readings carry the time they were taken: they age,
// and nobody may be ended on the strength of a reading that is missing or old.
//
// Units: memory MiB (used rounds up, total and usable down), time since boot (Clock::since_boot), power mW.
// Threading: the reactor's thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/result.h"
#include "base/units.h"
#include "model/enums.h"
#include "model/gpu.h"

namespace tranche {

// How one GPU reaches another GPU of the machine.
struct PeerLink {
  uint32_t peer = 0;  // index of the other GPU
  LinkKind kind = LinkKind::system;
  bool operator==(const PeerLink&) const = default;
};

// One compute instance of a GPU in MIG mode: what CUDA and NVML call a MIG device.
struct MigDevice {
  std::string uuid;  // "MIG-..."; another one each time that it is made
  uint32_t gpu_instance = 0, compute_instance = 0;
  uint32_t multiprocessors = 0;
  uint32_t slices = 0;  // of the GPU instance, in compute slices of the board
  MiB memory;           // of the GPU instance
  bool operator==(const MigDevice&) const = default;
};

// What does not change while the driver stays loaded, unless somebody changes it outside Tranche.
struct DiscoveredGpu {
  uint32_t index = 0;             // order of PCI bus addresses; a GPU that cannot be read leaves a hole
  std::string uuid;               // "GPU-..."
  std::optional<uint32_t> minor;  // device node /dev/nvidia<minor>
  std::string name;               // the driver's product name
  std::string type;               // short name that users ask for: "h100-80"; never empty
  MiB memory_total;
  MiB memory_usable;            // total less the driver's reserve
  std::string pci_bus_id;       // "00000000:3B:00.0"; empty if unknown
  int32_t numa_node = -1;       // -1: unknown
  std::string cpu_affinity;     // processors next to it, as a list "0-15,32-47"; empty if unknown
  std::vector<PeerLink> links;  // one for each other GPU, by index
  std::optional<bool> mig_capable;
  std::optional<bool> mig_enabled;
  std::optional<bool> mig_pending{};      // the mode after the next reset; differs: a reset is owed
  std::vector<MigDevice> mig_devices{};   // in the driver's order; empty while MIG is off
  bool virtual_guest = false;             // a vGPU of a hypervisor: it can be given to jobs only whole
  uint32_t compute_capability_major = 0;  // 0: unknown
  uint32_t compute_capability_minor = 0;
  std::optional<uint32_t> power_limit_milliwatts;
  bool operator==(const DiscoveredGpu&) const = default;
};

struct GpuInventory {
  std::string driver_version;         // "550.54.15"; empty if unknown
  std::vector<DiscoveredGpu> gpus;    // by index; empty on a machine without GPUs whose driver answers
  std::vector<std::string> problems;  // GPUs that could not be read, a sentence each
};

// One process that holds a context or memory on a GPU. (pid, start_ticks) names it for one boot.
struct GpuProcess {
  pid_t pid = 0;                        // as the machine sees it
  std::optional<uint64_t> start_ticks;  // field 22 of /proc/PID/stat; unknown if it has gone already
  std::optional<uid_t> uid;
  std::string user;  // name of `uid`; empty while unknown
  std::optional<MiB> memory;
  bool operator==(const GpuProcess&) const = default;
};

// One look at one GPU.
struct GpuReading {
  Duration taken_at;                            // since boot; the age is now less this
  std::optional<MiB> memory_used;               // by processes, without the driver's reserve
  std::optional<uint32_t> utilisation_percent;  // 0..100, of the driver's last sample period
  std::optional<uint32_t> memory_utilisation_percent;
  std::optional<uint32_t> temperature_celsius;
  std::optional<uint32_t> power_milliwatts;
  std::optional<std::vector<GpuProcess>> processes;  // by pid; nullopt: not known, not "none"
};

// An error that the driver has reported of a GPU.
struct XidEvent {
  uint64_t code = 0;
  Duration seen_at;         // since boot
  bool of_the_job = false;  // the program's error, or one that hit the program alone: the GPU is well
  std::string text;         // a sentence
};

struct GpuStatus {
  std::optional<GpuReading> reading;  // the last good one, however old; nullopt before the first
  Health health = Health::ok;
  std::string health_reason;   // a sentence; empty while ok
  bool needs_reset = false;    // failed, and the GPU answers: by an XID, or the driver asks for a reset
  bool of_the_driver = false;  // not the GPU's own trouble: the driver lets nobody in, or nodes are missing
  bool let_go = false;         // see let_go()
};

// How the source of the readings itself does.
struct GpuSourceStatus {
  bool answering = false;
  uint64_t restarts = 0;
  std::string problem;  // a sentence; empty while answering
  // Why no new program can use the driver though running ones go on, or ""; "... reboot ...".
  std::string driver_problem{};
};

class GpuHost {
 public:
  using InventoryCallback = std::function<void(Result<GpuInventory>)>;
  using CheckCallback = std::function<void(Result<GpuReading>)>;
  // An edge of a GPU's health, after status() shows it.
  using HealthCallback = std::function<void(uint32_t index, Health health, const std::string& reason)>;
  // A periodic reading has arrived, after status() shows it; discover() answers no older than it.
  using ReadingCallback = std::function<void(uint32_t index)>;
  // Answers whose jobs have the GPU, or a part of it, at that moment; none: not known, or nobody's.
  using XidCallback = std::function<std::set<uid_t>(uint32_t index, const XidEvent& event)>;

  virtual ~GpuHost() = default;

  // What the machine has. The first call starts the source. Indices stay what they are for the life of the
  // host: a GPU that disappears keeps its index and becomes lost, one that is added is seen by a new host.
  // Errors: unavailable (no driver, no answer in time), each saying what to do; asking again tries again.
  virtual void discover(InventoryCallback done) = 0;

  // A fresh look at memory and processes of one GPU (utilisation, temperature and power may be left out), as
  // quick as the driver allows. Errors: not_found (no such index), timed_out, unavailable.
  virtual void check_now(uint32_t index, CheckCallback done) = 0;

  // The same as discover(), and the driver is asked now whether it lets new programs in; once that is known
  // source() tells it. What has changed is told by on_inventory.
  virtual void look_again() = 0;
  // An operator says that the GPU is well again: what was held against it is forgotten, and it is judged
  // anew.
  virtual void absolve(uint32_t index) = 0;
  // What the log of an earlier run says of a GPU in this boot: an XID after which it must not be used. After
  // discover().
  virtual void remember_xid(uint32_t index, uint64_t code) = 0;

  // Holds the GPU no longer, so that it can be reset; it is looked at now and then, for a moment, to see
  // whether it is well again, and gives no periodic readings. Nothing happens where the GPU cannot be let go
  // now: ask again at its next reading. take_up(): it is read again, after it was described anew.
  virtual void let_go(uint32_t index) = 0;
  virtual void take_up(uint32_t index) = 0;

  // The last known state; nullptr for an index that discover() did not report. Valid until the next return
  // to the reactor.
  virtual const GpuStatus* status(uint32_t index) const = 0;
  virtual GpuSourceStatus source() const = 0;

  // At most one of each; an empty function ends it.
  virtual void on_health(HealthCallback changed) = 0;
  virtual void on_reading(ReadingCallback arrived) = 0;
  virtual void on_xid(XidCallback happened) = 0;
  // discover() would answer something else than it did: somebody has changed something outside Tranche.
  virtual void on_inventory(std::function<void()> changed) = 0;
};

}  // namespace tranche
