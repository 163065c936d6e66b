// Memory limits of cgroups, of drivers from release 615 on.
#include <unistd.h>

#include <string>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr size_t kPathBytesMax = 4096;

// A caller's path, "" if it is longer than any.
std::string path_of(const char* text) {
  const size_t length = strnlen(text, kPathBytesMax);
  return length == kPathBytesMax ? std::string() : std::string(text, length);
}

}  // namespace

NVML_EXPORT Return nvmlDeviceSetMemoryLimits_v1(Device* device, SetMemoryLimits* limits) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (limits == nullptr || limits->cgroup == nullptr) return Return::invalid_argument;
    if (geteuid() != 0) return Return::no_permission;
    const bool is_cleared = limits->soft_bytes == 0 && limits->hard_bytes == UINT64_MAX;
    const uint64_t total = gpu.identity.memory_bytes;
    if (limits->soft_bytes > limits->hard_bytes || limits->soft_bytes > total ||
        (!is_cleared && limits->hard_bytes != UINT64_MAX && limits->hard_bytes > total)) {
      return Return::invalid_argument;
    }
    const auto set = gpu.model.set_memory_limit(gpu.number, path_of(limits->cgroup), limits->soft_bytes,
                                                limits->hard_bytes);
    if (set) return Return::success;
    return set.error().code() == ErrorCode::over_limit ? Return::insufficient_resources
                                                       : Return::operating_system;
  });
}

NVML_EXPORT Return nvmlDeviceGetMemoryLimits_v1(Device* device, GetMemoryLimits* limits) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (limits == nullptr || limits->cgroup == nullptr) return Return::invalid_argument;
    const auto limit = gpu.model.memory_limit(gpu.number, path_of(limits->cgroup));
    if (!limit) {
      return limit.error().code() == ErrorCode::conflict ? Return::not_found : Return::operating_system;
    }
    limits->soft_bytes = limit->soft_bytes;
    limits->hard_bytes = limit->hard_bytes;
    limits->used_bytes = limit->used_bytes;
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
