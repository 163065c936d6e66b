// Fills the sampler's messages with what NVML says of one GPU. Sampler process only: any call may not return.
#pragma once

#include <string>

#include "gpu/nvml_library.h"
#include "gpu/sampler_protocol.h"

namespace tranche {

struct ReaderRoots {
  std::string proc = "/proc";
  std::string sysfs = "/sys";
  std::string dev = "/dev";  // empty: its nodes are not looked at
};

// What does not change: all of Gpu but its header, index, UUID and links. Fails with the code of the call
// without which a GPU cannot be used (memory).
nvml::Code describe_device(nvml::NvmlCaller& nvml, nvml::Device device, const ReaderRoots& roots,
                           sampler::Gpu& gpu);

// Memory and processes, which is what releasing a slice waits for: `thorough` adds what readings show
// besides.
void read_device(nvml::NvmlCaller& nvml, nvml::Device device, const ReaderRoots& roots, bool thorough,
                 sampler::Reading& reading);

// What the driver keeps for itself of `memory_total` bytes where it does not say (series before 510): never
// less than any board is known to need, so that a promise of memory can be kept.
uint64_t assumed_reserve(uint64_t memory_total);

}  // namespace tranche
