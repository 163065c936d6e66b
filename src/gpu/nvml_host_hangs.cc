// NvmlHost's judgement of hangs: who is stuck, who is to blame, who is left out and asked again.
#include <algorithm>
#include <vector>

#include "gpu/nvml_host.h"

namespace tranche {
namespace {

std::string name_of_gpu(uint32_t index) { return "GPU " + std::to_string(index); }

std::string stuck_text(uint32_t index, nvml::Call call, Duration since) {
  return name_of_gpu(index) + " does not answer: " + std::string(nvml::call_name(call)) +
         " has not returned for " + std::to_string(since.count() / kSecond.count()) +
         " s; see the kernel log";
}

}  // namespace

void NvmlHost::progress_arrived(const sampler::Progress& message) {
  silence_timer_ = reactor_.at(now() + options_.progress_deadline,
                               [this] { restart("tranche-sampler has stopped answering", false); });
  if (phase_ == Phase::kInventory) judge_inventory_progress(message);
  if (phase_ == Phase::kSampling) judge_sampling_progress(message);
}

void NvmlHost::judge_inventory_progress(const sampler::Progress& message) {
  for (uint32_t i = 0; i < message.count; ++i) {
    const sampler::Activity& activity = message.activities[i];
    const bool stuck = activity.call != 0 && activity.gpu != sampler::kNoGpu &&
                       now() - Duration(activity.entered) > options_.inventory_call_deadline;
    if (!stuck || activity.gpu >= sampler::kGpusMax) continue;
    const auto call = static_cast<nvml::Call>(activity.call);
    leave_out(activity.gpu, call, stuck_text(activity.gpu, call, now() - Duration(activity.entered)));
    return;
  }
}

// A GPU hangs while it is looked at, by a sampler that numbers the GPUs as the first one did unless one of
// them has gone; a wrong guess is taken back by the retry.
void NvmlHost::leave_out(uint32_t index, nvml::Call call, const std::string& reason) {
  absolve_unconfirmed();
  const auto found = devices_.find(index);
  const bool even_its_name = call == nvml::Call::device_handle || call == nvml::Call::uuid;
  if (found != devices_.end() && !even_its_name && !found->second.skipped) {
    skip(found->second, reason);
  } else {
    skip_indices_.insert(index);
    if (discovered_) {
      indices_retry_ = reactor_.at(now() + indices_retry_delay_, [this] {
        skip_indices_.clear();
        restart("a GPU that did not answer is looked at again", true);
      });
      indices_retry_delay_ = std::min(options_.retry_delay_max, 2 * indices_retry_delay_);
    }
  }
  restart(reason, true);
}

void NvmlHost::judge_sampling_progress(const sampler::Progress& message) {
  struct Stuck {
    Device* device;
    nvml::Call call;
    Duration entered;
  };
  std::vector<Stuck> stuck;
  for (uint32_t i = 0; i < message.count; ++i) {
    const sampler::Activity& activity = message.activities[i];
    Device* const device = device_of_sampler_index(activity.gpu);
    if (device == nullptr || activity.call == 0) continue;
    if (now() - Duration(activity.entered) <= options_.call_deadline) continue;
    stuck.push_back({device, static_cast<nvml::Call>(activity.call), Duration(activity.entered)});
  }
  if (stuck.empty()) return;
  const auto first = std::min_element(stuck.begin(), stuck.end(),
                                      [](const Stuck& a, const Stuck& b) { return a.entered < b.entered; });
  const bool others_answer = std::any_of(devices_.begin(), devices_.end(), [&](const auto& entry) {
    const bool is_stuck =
        std::any_of(stuck.begin(), stuck.end(), [&](const Stuck& s) { return s.device == &entry.second; });
    return !is_stuck && entry.second.sampler_index && entry.second.answered_at > first->entered;
  });
  if (others_answer) {
    for (const Stuck& s : stuck) {
      s.device->stuck_reason = stuck_text(s.device->gpu.index, s.call, now() - s.entered);
      apply(*s.device, s.device->judge.silent(s.device->stuck_reason));
    }
    return;
  }
  const std::string reason = stuck_text(first->device->gpu.index, first->call, now() - first->entered);
  absolve_unconfirmed();
  // The last one that is asked goes on being asked, by the next sampler: there is nobody else to go on with.
  const auto asked = std::count_if(devices_.begin(), devices_.end(), [](const auto& entry) {
    return !entry.second.skipped && !entry.second.let_go_index;
  });
  if (asked > 1) skip(*first->device, reason);
  restart(reason, false);
}

void NvmlHost::absolve_unconfirmed() {
  for (auto& [index, device] : devices_) {
    if (!device.skipped || device.blame_confirmed) continue;
    device.skipped = false;
    device.retry.reset();
    device.retry_delay = options_.retry_delay_min;
  }
}

void NvmlHost::skip(Device& device, const std::string& reason) {
  device.skipped = true;
  device.blame_confirmed = false;
  device.stuck_reason = reason;
  device.retry = reactor_.at(now() + device.retry_delay, [this, &device] { retry(device); });
  device.retry_delay = std::min(options_.retry_delay_max, 2 * device.retry_delay);
}

void NvmlHost::retry(Device& device) {
  device.retry.reset();
  if (phase_ != Phase::kSampling || !device.sampler_index) {
    device.retry = reactor_.at(now() + options_.retry_delay_min, [this, &device] { retry(device); });
    return;
  }
  device.skipped = false;
  device.answered_at = now();
  link_->request(sampler::Kind::resume, 0, *device.sampler_index);
}

}  // namespace tranche
