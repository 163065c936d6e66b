// GPUs in memory, on the reactor's (virtual) time, with faults to inject: the GpuHost of the daemon's
// simulation and of other rooms' tests.
//
// Deterministic: same calls at the same instants, same callbacks in the same order.
#pragma once

#include <map>
#include <memory>
#include <string_view>

#include "gpu/gpu_host.h"

namespace tranche {

class SimulatedHost final : public GpuHost {
 public:
  struct Options {
    Duration sample_period = kSecond;
    Duration check_latency = kMillisecond;
    Duration inventory_latency = 10 * kMillisecond;
    Duration check_deadline = 2 * kSecond;
    Duration silence_until_failed = 5 * kSecond;  // a GPU that has not answered for so long is failed
  };

  // `count` like GPUs of a known board: "h100-80", "rtx4090"...; an unknown name gives 16 GiB of that name.
  // UUIDs are "GPU-simulated-<index>"; boards with NVLink are linked all to all.
  static std::vector<DiscoveredGpu> board(std::string_view type, uint32_t count);

  SimulatedHost(Reactor& reactor, std::vector<DiscoveredGpu> gpus)
      : SimulatedHost(reactor, gpus, Options{}) {}
  SimulatedHost(Reactor& reactor, std::vector<DiscoveredGpu> gpus, Options options);

  void discover(InventoryCallback done) override;
  void check_now(uint32_t index, CheckCallback done) override;
  const GpuStatus* status(uint32_t index) const override;
  GpuSourceStatus source() const override;
  void look_again() override {}
  void absolve(uint32_t index) override;
  void remember_xid(uint32_t index, uint64_t code) override;
  void let_go(uint32_t index) override;
  void take_up(uint32_t index) override;
  void on_xid(XidCallback happened) override { xid_happened_ = std::move(happened); }
  void on_inventory(std::function<void()> changed) override { inventory_changed_ = std::move(changed); }
  void on_health(HealthCallback changed) override { health_changed_ = std::move(changed); }
  void on_reading(ReadingCallback arrived) override { reading_arrived_ = std::move(arrived); }

  // What is on the GPUs.
  void add_process(uint32_t index, GpuProcess process);  // again for the same pid: its memory changes
  void remove_process(uint32_t index, pid_t pid);
  void set_utilisation(uint32_t index, uint32_t percent);

  // Faults. Each lasts until it is taken back.
  void set_ghost_memory(uint32_t index, MiB memory);                   // in use, by no process that is listed
  void set_process_list_known(uint32_t index, bool known);             // false: readings have no process list
  void set_memory_known(uint32_t index, bool known);                   // false: readings have no memory
  void set_hanging(uint32_t index, bool hanging);                      // this GPU does not answer
  void set_all_hanging(bool hanging);                                  // the driver does not answer at all
  void set_health(uint32_t index, Health health, std::string reason);  // lost, failed, degraded or ok again
  // The driver reports an XID: its consequences for health last until absolve(), or set_health().
  void report_xid(uint32_t index, uint64_t code);
  // Somebody has changed what is described (minor number, MIG); its index and UUID stay.
  void redescribe(uint32_t index, const std::function<void(DiscoveredGpu&)>& change);
  void set_inventory_error(std::optional<std::string> message);  // discover() fails with this

 private:
  struct Device {
    DiscoveredGpu gpu;
    std::map<pid_t, GpuProcess> processes;
    MiB ghost_memory;
    uint32_t utilisation_percent = 0;
    bool process_list_known = true;
    bool memory_known = true;
    bool hanging = false;
    Health injected_health = Health::ok;
    std::string injected_reason;
    Duration answered_at;
    GpuStatus status;
  };

  Device* find(uint32_t index);
  void sample_all();
  GpuReading read(const Device& device) const;
  bool answers(const Device& device) const;
  void finish_check(uint64_t request);
  void update_health(Device& device);
  void arm_sampling();

  struct Request {
    uint32_t index = 0;
    Duration deadline;
    CheckCallback checked;         // a check, or
    InventoryCallback discovered;  // an inventory
    Reactor::Handle timer;
  };

  Reactor& reactor_;
  Options options_;
  std::map<uint32_t, Device> devices_;
  std::map<uint64_t, Request> requests_;
  uint64_t last_request_ = 0;
  bool all_hanging_ = false;
  std::optional<std::string> inventory_error_;
  HealthCallback health_changed_;
  ReadingCallback reading_arrived_;
  XidCallback xid_happened_;
  std::function<void()> inventory_changed_;
  Reactor::Handle sampling_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // posted work holds a weak reference to it
};

}  // namespace tranche
