// From the sampler's messages to the seam's values: checked, cut, converted.
#pragma once

#include <span>

#include "gpu/gpu_host.h"
#include "gpu/sampler_protocol.h"

namespace tranche {

// Bytes as MiB: what is promised is rounded down, what is used up. Nonsense above a PiB is cut.
MiB mib_down(uint64_t bytes);
MiB mib_up(uint64_t bytes);

DiscoveredGpu discovered_gpu(const sampler::Gpu& message);

MigDevice mig_device(const sampler::MigDevice& message);

// "GPU 2 is left out: nvmlDeviceGetUUID failed: the GPU has fallen off the bus".
std::string problem_text(const sampler::GpuProblem& message);

// A link is of use only between GPUs that were both discovered: others are dropped, and GPUs without a link
// to each other get the farthest.
void complete_links(std::span<DiscoveredGpu> gpus);

}  // namespace tranche
