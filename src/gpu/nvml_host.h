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
// How a GPU is let go. NVML holds the GPUs whose handles a process has asked for, until it ends: so the
// sampler is started again and does not ask for that one. The driver probe looks at it in passing.
//
// How a change from outside is met. Each reading carries a fingerprint of the GPU's minor number and MIG
// layout; when it differs, the sampler is started again and describes everything anew. Whether the driver
// still lets new programs in is asked by a process that comes and goes (DriverProbe).
//
// A callback must not destroy the host; it may call anything else of it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "gpu/driver_probe.h"
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
  std::string dev_root = "/dev";  // empty: device nodes are not looked at
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
  Duration probe_period = 30 * kSecond;
};

class NvmlHost final : public GpuHost, private SamplerLink::Observer {
 public:
  NvmlHost(Reactor& reactor, NvmlHostOptions options);
  ~NvmlHost() override;

  void discover(InventoryCallback done) override;
  void check_now(uint32_t index, CheckCallback done) override;
  const GpuStatus* status(uint32_t index) const override;
  GpuSourceStatus source() const override;
  void look_again() override;
  void absolve(uint32_t index) override;
  void remember_xid(uint32_t index, uint64_t code) override;
  void let_go(uint32_t index) override;
  void take_up(uint32_t index) override;
  void on_xid(XidCallback happened) override { xid_happened_ = std::move(happened); }
  void on_inventory(std::function<void()> changed) override { inventory_changed_ = std::move(changed); }
  void on_health(HealthCallback changed) override { health_changed_ = std::move(changed); }
  void on_reading(ReadingCallback arrived) override { reading_arrived_callback_ = std::move(arrived); }

 private:
  // A program's error, and whose program it was if only one user's were there.
  struct GpuJobFault {
    Duration at;
    std::optional<uid_t> uid;
  };
  enum class Phase { kIdle, kInventory, kSampling, kWaiting };

  struct Device {
    DiscoveredGpu gpu;
    GpuStatus status;
    GpuHealthJudge judge;
    std::optional<uint32_t> sampler_index;  // in the running sampler; unset: it does not have this GPU
    Duration answered_at;                   // of the newest reading from the running sampler
    bool skipped = false;                   // the running sampler does not ask it
    bool blame_confirmed = false;           // others have answered since it is skipped
    std::optional<uint32_t> let_go_index;   // the driver's index of a GPU that is let go
    std::string stuck_reason;               // why it is skipped or does not answer; empty: it is asked
    Duration retry_delay;
    Reactor::Handle retry;
    std::optional<uint64_t> layout;           // when it was described, or of the first reading after
    std::vector<GpuJobFault> faults_of_jobs;  // of the last day, oldest first; bounded
  };

  // What arrives from the sampler.
  void inventory_arrived(const sampler::Inventory& message) override;
  void gpu_arrived(const sampler::Gpu& message) override;
  void gpu_problem_arrived(const sampler::GpuProblem& message) override;
  void mig_device_arrived(const sampler::MigDevice& message) override;
  void inventory_ended() override;
  void xid_arrived(const sampler::Xid& message) override;
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
  // The GPU as the sampler describes it now, with its MIG devices; its index stays.
  DiscoveredGpu describe(const sampler::Gpu& message) const;
  bool adopt_change(Device& device, const sampler::Gpu& message);
  // Whether the layout is the one of the inventory; if not, the sampler has been ended.
  bool note_layout(Device& device, const sampler::Reading& message);
  void judge_nodes(Device& device, uint32_t nodes_missing, uint32_t known);
  void judge_job_fault(Device& device, std::set<uid_t> users_now);
  void judge_reading(Device& device, const sampler::Reading& message);
  // The driver's numbers have moved since GPUs were let go: all are taken up again, and no other is
  // misjudged.
  bool take_up_if_renumbered();
  void looked(const DriverProbe::Look& look);
  void arm_probe();
  void driver_answered(const DriverProbe::Answer& answer);
  std::vector<std::string> sampler_arguments() const;
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

  DriverProbe probe_;
  Reactor::Handle probe_timer_;
  Duration probe_not_before_;
  Duration gone_retry_at_, gone_retry_delay_;  // when GPUs that are gone are looked for again
  std::string driver_problem_;                 // why no new program can use the driver, or ""

  bool discovered_ = false;
  GpuInventory inventory_;                   // as discover() answers it
  std::map<uint32_t, Device> devices_;       // by index
  std::set<uint32_t> skip_indices_;          // GPUs that hung while being described
  std::vector<sampler::Gpu> arriving_gpus_;  // of the inventory that is being taken
  std::vector<sampler::GpuProblem> arriving_problems_;
  std::vector<sampler::MigDevice> arriving_mig_devices_;
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
  XidCallback xid_happened_;
  std::function<void()> inventory_changed_;
  std::shared_ptr<NvmlHost*> alive_;  // posted work holds a weak reference to it
};

}  // namespace tranche
