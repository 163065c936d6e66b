// Whether the driver lets a new program in: asked by a process that comes, initialises NVML and goes.
//
// A driver that was replaced under running programs goes on serving those, the sampler among them, while
// every new program is refused ("driver/library version mismatch"). Only a newcomer can see that.
//
// Threading: the reactor's. An answer that does not come in time is none: the caller hears nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/sampler_link.h"

namespace tranche {

class DriverProbe final : private SamplerLink::Observer {
 public:
  // A look at one GPU that the sampler does not hold.
  struct Look {
    std::string uuid;
    sampler::Reading reading;
  };
  struct Answer {
    int32_t code = 0;     // NVML's of what failed; 0: it let the newcomer in
    std::string problem;  // a sentence; empty if it did
    std::string driver_version;
    uint32_t gpu_count = 0;
    std::vector<Look> looks;
  };

  DriverProbe(Reactor& reactor, ProcessReaper& reaper) : reactor_(reactor), reaper_(reaper) {}

  // `look_at`: GPUs to look at on the way, by the driver's index. One at a time: false while one is under
  // way, or if it cannot be started.
  bool start(const std::string& program, std::vector<std::string> arguments, Duration deadline,
             const std::vector<uint32_t>& look_at, std::function<void(const Answer&)> answered);

 private:
  void inventory_arrived(const sampler::Inventory& message) override;
  void gpu_arrived(const sampler::Gpu& message) override;
  void gpu_problem_arrived(const sampler::GpuProblem&) override {}
  void mig_device_arrived(const sampler::MigDevice&) override {}
  void inventory_ended() override {}
  void xid_arrived(const sampler::Xid&) override {}
  void reading_arrived(const sampler::Reading& message) override;
  void user_name_arrived(const sampler::UserName&) override {}
  void progress_arrived(const sampler::Progress&) override {}
  void sampler_ended(const std::string&) override { end(); }
  // The link is dropped after its own call.
  void end();

  Reactor& reactor_;
  ProcessReaper& reaper_;
  std::unique_ptr<SamplerLink> link_;
  std::function<void(const Answer&)> answered_;
  std::vector<Look> looks_;
  std::string looked_at_;  // UUID of the GPU whose reading comes next
  Reactor::Handle timer_;
};

}  // namespace tranche
