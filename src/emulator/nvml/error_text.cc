// What nvmlErrorString says. The texts are shown by tools to people; they are ours.
#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

const char* text_of(Return code) {
  switch (code) {
    case Return::success:
      return "Success";
    case Return::uninitialized:
      return "Uninitialized";
    case Return::invalid_argument:
      return "Invalid Argument";
    case Return::not_supported:
      return "Not Supported";
    case Return::no_permission:
      return "Insufficient Permissions";
    case Return::already_initialized:
      return "Already Initialized";
    case Return::not_found:
      return "Not Found";
    case Return::insufficient_size:
      return "Insufficient Size";
    case Return::insufficient_power:
      return "Insufficient External Power";
    case Return::driver_not_loaded:
      return "Driver Not Loaded";
    case Return::timeout:
      return "Timeout";
    case Return::irq_issue:
      return "Interrupt Request Issue";
    case Return::library_not_found:
      return "NVML Shared Library Not Found";
    case Return::function_not_found:
      return "Function Not Found";
    case Return::corrupted_inforom:
      return "Corrupted infoROM";
    case Return::gpu_is_lost:
      return "GPU is lost";
    case Return::reset_required:
      return "GPU requires reset";
    case Return::operating_system:
      return "The operating system has blocked the request";
    case Return::lib_rm_version_mismatch:
      return "Driver/library version mismatch";
    case Return::in_use:
      return "In use by another client";
    case Return::memory:
      return "Insufficient Memory";
    case Return::no_data:
      return "No data";
    case Return::vgpu_ecc_not_supported:
      return "vGPU is not supported while ECC is on";
    case Return::insufficient_resources:
      return "Insufficient Resources";
    case Return::freq_not_supported:
      return "Frequency Not Supported";
    case Return::argument_version_mismatch:
      return "Structure version mismatch";
    case Return::deprecated:
      return "Deprecated";
    case Return::not_ready:
      return "Not Ready";
    case Return::gpu_not_found:
      return "No GPU was found";
    case Return::invalid_state:
      return "Invalid State";
    case Return::unknown:
      break;
  }
  return "Unknown Error";
}

}  // namespace

NVML_EXPORT const char* nvmlErrorString(Return code) { return text_of(code); }

}  // namespace tranche::emulator::nvml
