// What an XID does to those who use the GPU: who loses a context, with which CUDA result, and what the driver
// recommends afterwards.
//
// Codes and classes: NVIDIA's catalogue of XID errors (docs.nvidia.com, "Xid Errors"), by what it says the
// operator has to do. The CUDA result is the one that the description of the code matches; where it matches
// none, CUDA_ERROR_LAUNCH_FAILED for a process's own error and CUDA_ERROR_UNKNOWN for the GPU's: chosen.
#pragma once

#include <cstdint>
#include <string_view>

#include "emulator/fault_state.h"

namespace tranche::emulator {

enum class XidEffect {
  none,     // only the event
  context,  // the contexts of one process are lost; the GPU is well
  gpu,      // every context on the GPU is lost, and none can be made until the GPU has been reset
  lost,     // the GPU has fallen off the bus
};

struct XidMeaning {
  XidEffect effect = XidEffect::none;
  int32_t cuda_result = 0;  // of every call in a lost context
  RecoveryAction recovery = RecoveryAction::none;
};

inline constexpr uint32_t kXidMax = 999;

XidMeaning meaning_of_xid(uint32_t code);

}  // namespace tranche::emulator
