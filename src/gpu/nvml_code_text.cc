#include "gpu/nvml_library.h"

namespace tranche::nvml {

std::string code_text(Code code) {
  switch (code) {
    case Code::success:
      return "no error";
    case Code::uninitialized:
      return "NVML is not initialised";
    case Code::invalid_argument:
      return "NVML refused an argument";
    case Code::not_supported:
      return "the GPU does not support it";
    case Code::no_permission:
      return "permission denied";
    case Code::already_initialized:
      return "NVML is initialised already";
    case Code::not_found:
      return "not found";
    case Code::insufficient_size:
      return "more than a buffer can hold";
    case Code::insufficient_power:
      return "a power cable is not connected";
    case Code::driver_not_loaded:
      return "the NVIDIA kernel driver is not loaded";
    case Code::timeout:
      return "the driver timed out";
    case Code::irq_issue:
      return "the kernel found an interrupt issue with the GPU";
    case Code::library_not_found:
      return "a library of the driver is missing";
    case Code::function_not_found:
      return "this driver does not have the function";
    case Code::corrupted_inforom:
      return "the GPU's infoROM is corrupted";
    case Code::gpu_is_lost:
      return "the GPU has fallen off the bus";
    case Code::reset_required:
      return "the GPU needs a reset";
    case Code::operating_system:
      return "the operating system or a cgroup blocks the GPU's device node";
    case Code::library_version_mismatch:
      return "the driver's library and kernel module differ in version; reboot the machine, jobs wait until "
             "then";
    case Code::in_use:
      return "the GPU is in use";
    case Code::memory:
      return "out of memory";
    case Code::no_data:
      return "no data";
    case Code::insufficient_resources:
      return "out of resources";
    case Code::argument_version_mismatch:
      return "the driver does not know this structure's version";
    case Code::not_ready:
      return "not ready";
    case Code::gpu_not_found:
      return "no such GPU";
    case Code::invalid_state:
      return "invalid state";
    case Code::unknown:
      return "an unknown error in the driver";
  }
  return "NVML error " + std::to_string(static_cast<int32_t>(code));
}

}  // namespace tranche::nvml
