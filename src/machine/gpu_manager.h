// The machine's GPUs as events: what the inventory finds becomes NodeAdded and GpuAdded, edges of health
// become HealthChanged. Knows which GpuId of the log is which index of the driver.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpu/gpu_host.h"
#include "machine/engine.h"

namespace tranche::machine {

class GpuManager {
 public:
  // All outlive this. `manage`: UUIDs of the GPUs to manage, empty for all.
  GpuManager(Reactor& reactor, Engine& engine, GpuHost& host, std::vector<std::string> manage);

  // Asks the inventory and records what differs from the log; `done` once, also when there is no driver (the
  // machine then runs jobs without GPUs, and the inventory is asked again every minute).
  void discover(std::function<void()> done);

  const Gpu* find(GpuId id) const;
  std::optional<GpuId> by_index(uint32_t index) const;
  const DiscoveredGpu* discovered(uint32_t index) const;
  GpuHost& host() { return host_; }
  const std::string& node_name() const { return node_name_; }
  const std::string& driver_version() const { return inventory_.driver_version; }
  // Why there is no GPU, or what is wrong with some; empty if all is well.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void take_inventory(Result<GpuInventory> inventory);
  void record_node();
  void record_gpus();
  Gpu describe(const DiscoveredGpu& found, GpuId id) const;

  Reactor& reactor_;
  Engine& engine_;
  GpuHost& host_;
  std::vector<std::string> manage_;
  GpuInventory inventory_;
  std::map<uint32_t, GpuId> ids_;  // by index
  std::map<GpuId, Gpu> gpus_;      // every one that the log knows
  std::vector<std::string> problems_;
  std::string node_name_;
  Reactor::Handle again_;
};

}  // namespace tranche::machine
