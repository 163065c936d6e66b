// NvmlHost's judgement of what the driver reports and of what changes under it: XIDs, device nodes, layouts,
// a driver that lets nobody in.
#include <algorithm>

#include "gpu/nvml_host.h"
#include "gpu/sampler_values.h"
#include "gpu/xid_policy.h"

namespace tranche {
namespace {

constexpr Duration kProbePause = kSecond;  // whoever asks how often

// Errors of programs say something of the GPU only when different people's programs make them.
constexpr Duration kFaultsRemembered = 24 * kHour;
constexpr size_t kFaultsUntilSuspect = 3, kUsersUntilSuspect = 2, kFaultsKept = 16;

std::string nodes_text(uint32_t missing) {
  std::string names;
  const auto add = [&](uint32_t bit, const char* name) {
    if ((missing & bit) != 0) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(sampler::kMissingControlNode, "/dev/nvidiactl");
  add(sampler::kMissingMemoryNode, "/dev/nvidia-uvm");
  add(sampler::kMissingGpuNode, "the GPU's own");
  return "a device node is missing (" + names +
         "), so no program can use the GPU; make it with `nvidia-modprobe -c 0 -u`";
}

}  // namespace

void NvmlHost::xid_arrived(const sampler::Xid& message) {
  Device* const device = device_of_sampler_index(message.gpu);
  if (device == nullptr) return;
  const Health health = xid_health(message.code);
  const XidEvent event{.code = message.code,
                       .seen_at = std::min(Duration(message.seen_at), now()),
                       .of_the_job = xid_rule(message.code).class_of == XidClass::job,
                       .text = xid_reason(message.code)};
  std::set<uid_t> users;
  if (xid_happened_) users = xid_happened_(device->gpu.index, event);
  if (event.of_the_job) return judge_job_fault(*device, std::move(users));
  if (health == Health::lost) return apply(*device, device->judge.fallen(event.text));
  if (health != Health::ok) {
    apply(*device, device->judge.hold(GpuHealthJudge::Hold::xid, health, event.text));
  }
}

void NvmlHost::judge_job_fault(Device& device, std::set<uid_t> users_now) {
  GpuJobFault fault{.at = now(), .uid = {}};
  // The last reading may be older than the program that failed: jobs are known at once.
  if (users_now.empty() && device.status.reading && device.status.reading->processes) {
    for (const GpuProcess& process : *device.status.reading->processes) {
      if (process.uid) users_now.insert(*process.uid);
    }
  }
  if (users_now.size() == 1) fault.uid = *users_now.begin();
  auto& faults = device.faults_of_jobs;
  std::erase_if(faults, [&](const GpuJobFault& old) { return now() - old.at > kFaultsRemembered; });
  if (faults.size() >= kFaultsKept) faults.erase(faults.begin());
  faults.push_back(fault);
  std::set<uid_t> users;
  for (const GpuJobFault& each : faults) {
    if (each.uid) users.insert(*each.uid);
  }
  if (faults.size() < kFaultsUntilSuspect || users.size() < kUsersUntilSuspect) return;
  apply(device,
        device.judge.hold(GpuHealthJudge::Hold::xid, Health::degraded,
                          "programs of different users have failed on it within a day (XID); test the "
                          "GPU, then `tranche gpus undrain` it"));
}

void NvmlHost::remember_xid(uint32_t index, uint64_t code) {
  const auto found = devices_.find(index);
  const Health health = xid_health(code);
  if (found == devices_.end() || health == Health::ok || health == Health::lost) return;
  apply(found->second, found->second.judge.hold(GpuHealthJudge::Hold::xid, health, xid_reason(code)));
}

void NvmlHost::absolve(uint32_t index) {
  const auto found = devices_.find(index);
  if (found == devices_.end()) return;
  found->second.faults_of_jobs.clear();
  apply(found->second, found->second.judge.release(GpuHealthJudge::Hold::xid));
}

void NvmlHost::judge_nodes(Device& device, uint32_t nodes_missing, uint32_t known) {
  if ((known & sampler::kKnownLayout) == 0) return;  // not looked for
  apply(device, nodes_missing == 0 ? device.judge.release(GpuHealthJudge::Hold::nodes)
                                   : device.judge.hold(GpuHealthJudge::Hold::nodes, Health::failed,
                                                       nodes_text(nodes_missing)));
}

bool NvmlHost::note_layout(Device& device, const sampler::Reading& message) {
  if ((message.known & sampler::kKnownLayout) == 0) return true;
  const bool differs = device.layout && *device.layout != message.layout;
  device.layout = message.layout;
  // At once: the sampler is well, and a delay that grows is for one that is not.
  if (differs) restart("the layout of GPU " + std::to_string(device.gpu.index) + " has changed", true);
  return !differs;
}

// --- Whether the driver lets new programs in ------------------------------------------------------------

void NvmlHost::arm_probe() {
  probe_timer_ = reactor_.at(now() + options_.probe_period, [this] {
    look_again();
    arm_probe();
  });
}

void NvmlHost::look_again() {
  // One that cannot be ended would not be the last: whether new programs get in is known then.
  if (!discovered_ || reaper_.waiting() > 0 || now() < probe_not_before_) return;
  probe_not_before_ = now() + kProbePause;
  std::vector<uint32_t> look_at;
  for (const auto& [index, device] : devices_) {
    if (device.let_go_index) look_at.push_back(*device.let_go_index);
  }
  probe_.start(options_.sampler_program, sampler_arguments(), options_.inventory_call_deadline, look_at,
               [this](const DriverProbe::Answer& answer) { driver_answered(answer); });
}

void NvmlHost::driver_answered(const DriverProbe::Answer& answer) {
  driver_problem_ = answer.problem;
  for (auto& [index, device] : devices_) {
    apply(device, answer.problem.empty()
                      ? device.judge.release(GpuHealthJudge::Hold::driver)
                      : device.judge.hold(GpuHealthJudge::Hold::driver, Health::failed, answer.problem));
  }
  for (const DriverProbe::Look& look : answer.looks) looked(look);
  if (!answer.problem.empty() || phase_ != Phase::kSampling) return;
  const bool lacks_one = std::any_of(devices_.begin(), devices_.end(), [](const auto& entry) {
    return !entry.second.sampler_index && !entry.second.let_go_index;
  });
  // Also when a GPU that was gone may be back: the newcomer sees as many as there are.
  if (!lacks_one) gone_retry_delay_ = Duration(0);
  bool differs = answer.driver_version != inventory_.driver_version;
  if (lacks_one && skip_indices_.empty() && answer.gpu_count >= devices_.size() && now() >= gone_retry_at_) {
    gone_retry_delay_ = std::clamp(2 * gone_retry_delay_, options_.retry_delay_min, options_.retry_delay_max);
    gone_retry_at_ = now() + gone_retry_delay_;
    differs = true;
  }
  if (differs) restart("the driver or the number of its GPUs may have changed", true);
}

}  // namespace tranche
