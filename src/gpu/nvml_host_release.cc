// NvmlHost's letting go of a GPU, so that an administrator can reset it, and its taking up again.
#include <algorithm>

#include "gpu/nvml_host.h"
#include "gpu/sampler_values.h"

namespace tranche {

void NvmlHost::let_go(uint32_t index) {
  const auto found = devices_.find(index);
  if (found == devices_.end()) return;
  Device& device = found->second;
  // The sampler that runs may be the last that the driver lets in; one that is stuck holds its GPU anyway.
  const bool can = phase_ == Phase::kSampling && device.sampler_index && !device.skipped &&
                   !device.let_go_index && driver_problem_.empty();
  if (!can) return;
  device.let_go_index = device.sampler_index;
  device.status.let_go = true;
  restart("GPU " + std::to_string(index) + " is let go, so that it can be reset", true);
}

void NvmlHost::take_up(uint32_t index) {
  const auto found = devices_.find(index);
  if (found == devices_.end() || !found->second.let_go_index) return;
  found->second.let_go_index.reset();
  found->second.status.let_go = false;
  if (phase_ == Phase::kSampling || phase_ == Phase::kInventory) {
    restart("GPU " + std::to_string(index) + " is taken up again", true);
  }
}

bool NvmlHost::take_up_if_renumbered() {
  const bool renumbered = std::any_of(devices_.begin(), devices_.end(), [&](const auto& entry) {
    return entry.second.let_go_index &&
           std::any_of(arriving_gpus_.begin(), arriving_gpus_.end(), [&](const sampler::Gpu& gpu) {
             return sampler::field_text(gpu.uuid) == entry.second.gpu.uuid;
           });
  });
  if (!renumbered) return false;
  for (auto& [index, device] : devices_) {
    device.let_go_index.reset();
    device.status.let_go = false;
  }
  restart("GPUs have other numbers than before", true);
  return true;
}

// Only good news counts: a GPU that is being reset answers with errors, and it is closed already.
void NvmlHost::looked(const DriverProbe::Look& look) {
  for (auto& [index, device] : devices_) {
    if (!device.let_go_index || device.gpu.uuid != look.uuid) continue;
    if (look.reading.code != 0) return;
    GpuReading reading = reading_of(device, look.reading);
    if (reading.memory_used || reading.processes) device.status.reading = std::move(reading);
    const bool known = (look.reading.known & sampler::kKnownLayout) != 0;
    const bool changed = known && device.layout && *device.layout != look.reading.layout;
    if (known) device.layout = look.reading.layout;
    if (changed) return take_up(index);  // it is described anew, and let go again if it is still closed
    return judge_reading(device, look.reading);
  }
}

}  // namespace tranche
