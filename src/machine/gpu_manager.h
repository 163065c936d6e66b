// The machine's GPUs as events: what the inventory finds becomes NodeAdded and GpuAdded, edges of health
// become HealthChanged. Knows which GpuId of the log is which index of the driver.
//
// A driver that does not answer, or lets nobody in, fails every GPU of the log: what waits goes on waiting,
// and nothing is refused on that account. After a restart of the daemon a GPU is taken to be well again
// unless the log says, in the same boot, that an XID asks for a reset. Where gpus.recovery says so, a GPU
// that failed or was lost comes back by an operator alone. One that is closed for a reset, or by an operator,
// is let go as soon as no task holds it, so that an administrator can reset it. A GPU that was changed
// outside Tranche is described anew in the log once no task holds it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu/gpu_host.h"
#include "machine/engine.h"
#include "machine/ghost_watch.h"
#include "machine/gpu_drains.h"

namespace tranche::machine {

class GpuManager {
 public:
  struct Parts {
    Reactor& reactor;
    Engine& engine;
    GpuHost& host;
    GpuDrains& drains;
    std::vector<std::string> manage;  // UUIDs of the GPUs to manage, empty for all
    bool rebooted = false;            // since the log was last written
    bool operator_recovery = false;   // gpus.recovery
  };
  // All that is referred to outlives this.
  explicit GpuManager(Parts parts);
  ~GpuManager();  // the host tells nobody any more
  GpuManager(const GpuManager&) = delete;
  GpuManager& operator=(const GpuManager&) = delete;

  // Asks the inventory and records what differs from the log; `done` once, also when there is no driver (the
  // machine then runs jobs without GPUs, and the inventory is asked again every minute).
  void discover(std::function<void()> done);

  const Gpu* find(GpuId id) const;
  std::optional<GpuId> by_index(uint32_t index) const;
  const DiscoveredGpu* discovered(uint32_t index) const;
  // An operator says that the GPU is well again. `done` once it may be undrained: one that was let go is
  // first described anew, and one that was in MIG mode is looked at again. Errors: conflict (it is in MIG
  // mode, so no job could use it), timed_out, each saying what to do.
  void open(GpuId id, std::function<void(Result<void>)> done);
  void absolve(GpuId id);
  // A drain for a cause that is not of GpuDrains has ended.
  void give_back(GpuId id) { drains_.give_back(id); }
  // Whether every GPU is a virtual one of a hypervisor, which cannot be shared among jobs.
  bool whole_only() const;
  GpuHost& host() { return host_; }
  const std::string& node_name() const { return node_name_; }
  const std::string& driver_version() const { return inventory_.driver_version; }
  // Why there is no GPU, or what is wrong with some; empty if all is well.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void take_inventory(Result<GpuInventory> inventory);
  void record_node();
  void record_gpus(bool first);
  void record_description(const Gpu& gpu, const scheduler::GpuView* known, const DiscoveredGpu& found);
  void record_health(const scheduler::GpuView& known);
  void record_mig(const DiscoveredGpu& found, GpuId id);
  void fail_all(const std::string& reason);
  void health_changed(uint32_t index, Health health, const std::string& reason);
  // Whose jobs are on it.
  std::set<uid_t> xid_happened(uint32_t index, const XidEvent& event);
  void reading_arrived(uint32_t index);
  // Lets the GPU go where that is wanted, or takes it up again.
  void consider_letting_go(uint32_t index);
  void finish_opening(GpuId id, Result<void> opened);
  Result<void> check_usable(GpuId id) const;
  std::optional<scheduler::GpuView> view_of(GpuId id) const;
  Gpu describe(const DiscoveredGpu& found, GpuId id) const;

  Reactor& reactor_;
  Engine& engine_;
  GpuHost& host_;
  GpuDrains& drains_;
  GhostWatch ghosts_;
  std::vector<std::string> manage_;
  GpuInventory inventory_;
  std::map<uint32_t, GpuId> ids_;  // by index
  std::map<GpuId, Gpu> gpus_;      // every one that the log knows
  std::vector<std::string> problems_;
  std::string node_name_;
  Reactor::Handle again_;
  bool discovered_ = false;
  bool postponed_ = false;  // a description waits until no task holds its GPU
  bool rebooted_ = false;
  bool operator_recovery_ = false;
  std::set<GpuId> closed_;  // failed or lost, and left so until an operator opens them
  struct Opening {
    std::function<void(Result<void>)> done;
    Reactor::Handle timer;
    std::optional<Duration> read_after;  // since boot: an older reading does not count
  };
  std::map<GpuId, Opening> openings_;
};

}  // namespace tranche::machine
