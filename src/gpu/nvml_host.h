// The GpuHost of a real (or emulated) driver: keeps a tranche-sampler alive and judges what it says.
//
// How a hang is met. Every GPU has a thread in the sampler, which reports several times a second in which
// call each thread is and since when. A GPU that is stuck while others answer is failed, with the call's
// name, and nothing is killed. When nobody has answered since one got stuck (the driver's own lock is held),
// the sampler is killed and started again without asking the GPU that was stuck first; that one is failed
// once others answer, and asked again later, at growing intervals. A sampler that says nothing at all, or
// ends, is started again with growing delays. If killed samplers cannot end (a thread is uninterruptible in
// the kernel), a few are tolerated and then no more are started until one goes.
//
// A callback must not destroy the host; it may call anything else of it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "gpu/gpu_health.h"
#include "gpu/gpu_host.h"
#include "gpu/nvml_calls.h"
#include "gpu/sampler_link.h"

namespace tranche {

struct NvmlHostOptions {
  std::string sampler_program;  // path of tranche-sampler
  std::string library_dir;      // driver.library_dir of the configuration; empty: the dynamic linker's choice
  std::string proc_root = "/proc";
  std::string sysfs_root = "/sys";
  Duration sample_period = kSecond;
  Duration progress_period = 250 * kMillisecond;
  Duration progress_deadline =
      5 * kSecond;  // the sampler itself has said nothing for so long: it is started again
  Duration call_deadline = 5 * kSecond;  // a call in one thread has not returned: that GPU is stuck
  Duration inventory_call_deadline = 20 * kSecond;  // the same while GPUs are first looked at
  Duration inventory_deadline = 60 * kSecond;       // without persistence mode, nvmlInit takes seconds a GPU
  Duration check_deadline = 2 * kSecond;
  Duration restart_delay_min = kSecond, restart_delay_max = kMinute;
  Duration retry_delay_min = kMinute, retry_delay_max = 16 * kMinute;  // of a GPU that is not asked any more
};

class NvmlHost final : public GpuHost, private SamplerLink::Observer {
 public:
  NvmlHost(Reactor& reactor, NvmlHostOptions options);
  ~NvmlHost() override;

  void discover(InventoryCallback done) override;
  void check_now(uint32_t index, CheckCallback done) override;
  const GpuStatus* status(uint32_t index) const override;
  GpuSourceStatus source() const override;
  void on_health(HealthCallback changed) override { health_changed_ = std::move(changed); }
  void on_reading(ReadingCallback arrived) override { reading_arrived_callback_ = std::move(arrived); }

 private:
  enum class Phase { kIdle, kInventory, kSampling, kWaiting };

  struct Device {
    DiscoveredGpu gpu;
    GpuStatus status;
    GpuHealthJudge judge;
    std::optional<uint32_t> sampler_index;  // in the running sampler; unset: it does not have this GPU
    Duration answered_at;                   // of the newest reading from the running sampler
    bool skipped = false;                   // the running sampler does not ask it
    bool blame_confirmed = false;           // others have answered since it is skipped
    std::string stuck_reason;               // why it is skipped or does not answer; empty: it is asked
    Duration retry_delay;
    Reactor::Handle retry;
  };

  // What arrives from the sampler.
  void inventory_arrived(const sampler::Inventory& message) override;
  void gpu_arrived(const sampler::Gpu& message) override;
  void gpu_problem_arrived(const sampler::GpuProblem& message) override;
  void inventory_ended() override;
  void reading_arrived(const sampler::Reading& message) override;
  void user_name_arrived(const sampler::UserName& message) override;
  void progress_arrived(const sampler::Progress& message) override;
  void sampler_ended(const std::string& reason) override;

  void start_sampler();
  void stop_sampler();
  // Ends the sampler and starts another after a delay, or at once.
  void restart(const std::string& reason, bool at_once);
  void fail_inventory(ErrorCode code, const std::string& reason);
  void adopt_first_inventory();
  void adopt_later_inventory();
  void judge_inventory_progress(const sampler::Progress& message);
  void judge_sampling_progress(const sampler::Progress& message);
  void leave_out(uint32_t index, nvml::Call call, const std::string& reason);
  void skip(Device& device, const std::string& reason);
  // Without those that were blamed the driver hangs all the same, so they had only waited for somebody else.
  void absolve_unconfirmed();
  void retry(Device& device);
  void finish_check(uint64_t id, Result<GpuReading> answer);
  void fail_checks(const std::string& reason);
  void apply(Device& device, std::optional<GpuHealthJudge::Verdict> verdict);
  GpuReading reading_of(const Device& device, const sampler::Reading& message) const;
  Device* device_of_sampler_index(uint32_t index);
  void post(Reactor::Callback work);
  Duration now() const { return reactor_.clock().since_boot(); }

  Reactor& reactor_;
  NvmlHostOptions options_;
  ProcessReaper reaper_;
  Phase phase_ = Phase::kIdle;
  std::unique_ptr<SamplerLink> link_;
  std::vector<std::unique_ptr<SamplerLink>> ended_links_;  // until the reactor's next turn
  std::string problem_;                                    // of the source; empty while it answers
  uint64_t restarts_ = 0;
  Duration restart_delay_;
  Duration started_at_;
  Duration indices_retry_delay_;
  Reactor::Handle silence_timer_, inventory_timer_, restart_timer_, indices_retry_;

  bool discovered_ = false;
  GpuInventory inventory_;                   // as discover() answers it
  std::map<uint32_t, Device> devices_;       // by index
  std::set<uint32_t> skip_indices_;          // GPUs that hung while being described
  std::vector<sampler::Gpu> arriving_gpus_;  // of the inventory that is being taken
  std::vector<sampler::GpuProblem> arriving_problems_;
  std::string arriving_driver_version_;
  std::vector<InventoryCallback> waiting_for_inventory_;

  struct Check {
    uint32_t index = 0;
    CheckCallback done;
    Reactor::Handle timer;
  };
  std::map<uint64_t, Check> checks_;
  uint64_t last_check_ = 0;
  std::unordered_map<uid_t, std::string> user_names_;  // bounded

  HealthCallback health_changed_;
  ReadingCallback reading_arrived_callback_;
  std::shared_ptr<NvmlHost*> alive_;  // posted work holds a weak reference to it
};

}  // namespace tranche
