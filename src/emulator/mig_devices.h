// MIG devices of an emulated GPU as programs and NVML see them: a compute instance with the memory of its GPU
// instance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/mig/layout.h"

namespace tranche::emulator {

struct MigDeviceInfo {
  uint32_t gpu = 0;                                 // in the device model
  uint32_t gpu_minor = 0;                           // of its node
  uint32_t gpu_instance = 0, compute_instance = 0;  // ids
  std::string uuid_text;                            // "MIG-..."
  std::array<uint8_t, 16> uuid{};
  std::string name;  // "1g.10gb", "1c.3g.40gb"
  uint32_t multiprocessors = 0;
  uint32_t executor = 0;                    // that its work runs on
  uint32_t slices = 0, compute_slices = 0;  // of the GPU instance, of the compute instance
  uint64_t memory_bytes = 0;                // of the GPU instance
  const GpuInstanceProfile* profile = nullptr;
};

}  // namespace tranche::emulator
