// The machine's GPUs as events: what the inventory finds becomes NodeAdded and GpuAdded, edges of health
// become HealthChanged. Knows which GpuId of the log is which index of the driver.
//
// A driver that does not answer, or lets nobody in, fails every GPU of the log: what waits goes on waiting,
// and nothing is refused on that account. After a restart of the daemon a GPU is taken to be well again
// unless the log says, in the same boot, that an XID asks for a reset. A GPU that was changed outside Tranche
// is described anew in the log once no task holds it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpu/gpu_host.h"
#include "machine/engine.h"
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
  };
  // All that is referred to outlives this.
  explicit GpuManager(Parts parts);

  // An error that the driver has reported of a GPU, and who held the GPU then.
  struct Fault {
    XidEvent xid;
    std::vector<JobId> jobs;
  };

  // Asks the inventory and records what differs from the log; `done` once, also when there is no driver (the
  // machine then runs jobs without GPUs, and the inventory is asked again every minute).
  void discover(std::function<void()> done);

  const Gpu* find(GpuId id) const;
  std::optional<GpuId> by_index(uint32_t index) const;
  const DiscoveredGpu* discovered(uint32_t index) const;
  // Since the daemon was started, newest last; the last few.
  const std::vector<Fault>& faults(GpuId id) const;
  // An operator says that the GPU is well again.
  void absolve(GpuId id);
  // A drain for a cause that is not of GpuDrains has ended: another cause may stand.
  void given_back(GpuId id) { drains_.reassert(id); }
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
  void record_description(const Gpu& gpu, const scheduler::GpuView* known);
  void record_health(const scheduler::GpuView& known);
  void record_mig(const DiscoveredGpu& found, GpuId id);
  void fail_all(const std::string& reason);
  void health_changed(uint32_t index, Health health, const std::string& reason);
  void xid_happened(uint32_t index, const XidEvent& event);
  std::optional<scheduler::GpuView> view_of(GpuId id) const;
  Gpu describe(const DiscoveredGpu& found, GpuId id) const;

  Reactor& reactor_;
  Engine& engine_;
  GpuHost& host_;
  GpuDrains& drains_;
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
  std::map<GpuId, std::vector<Fault>> faults_;
};

}  // namespace tranche::machine
