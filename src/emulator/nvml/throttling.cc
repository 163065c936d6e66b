// Why and for how long clocks were low, and what the driver weighs when it sets them: heat, use, the
// interrupt it comes by.
#include <algorithm>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

namespace policy {  // why clocks are below those of applications; 2 to 5 never are the reason here
constexpr uint32_t power = 0, thermal = 1, reliability = 5, any = 10, below_base = 11;
}

uint64_t throttled_by(const Gpu& gpu, uint32_t policy) {
  const auto had = [&](uint64_t reason) { return gpu.model.throttled_ns(gpu.number, reason); };
  const uint64_t heat = std::max(had(kReasonSoftwareThermal), had(kReasonHardwareThermal));
  if (policy == policy::power) return had(kReasonPowerCap);
  if (policy == policy::thermal) return heat;
  if (policy == policy::any) return had(UINT64_MAX);
  return policy == policy::below_base ? std::max(heat, had(kReasonPowerBrake)) : 0;
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetViolationStatus(Device* device, uint32_t policy, ViolationTime* time) {
  return answer_one(device, time, [&](const Gpu& gpu, ViolationTime& answer) {
    const bool exists =
        policy <= policy::reliability || policy == policy::any || policy == policy::below_base;
    if (!exists) return Return::invalid_argument;
    if (gpu.is_share()) return Return::not_supported;
    answer = {.reference_us = wall_us(gpu.model, monotonic_now()), .violation_ns = throttled_by(gpu, policy)};
    return Return::success;
  });
}

// One sensor, inside the GPU; its range is from freezing to where the board shuts down.
NVML_EXPORT Return nvmlDeviceGetThermalSettings(Device* device, uint32_t sensor, ThermalSettings* settings) {
  constexpr uint32_t kAll = 15;
  constexpr int32_t kInsideTheGpu = 1, kOfTheGpu = 1;
  return answer_one(device, settings, [&](const Gpu& gpu, ThermalSettings& answer) {
    if (sensor != 0 && sensor != kAll) return Return::invalid_argument;
    if (gpu.is_share()) return Return::not_supported;
    answer = {};
    answer.count = 1;
    answer.sensors[0] = {kInsideTheGpu, 0, static_cast<int32_t>(gpu.board.temperature_shutdown),
                         static_cast<int32_t>(gpu.read().temperature), kOfTheGpu};
    return Return::success;
  });
}

// Use of the engines, of memory, of video and of the bus, which is told by no percentage here.
NVML_EXPORT Return nvmlDeviceGetDynamicPstatesInfo(Device* device, DynamicStates* states) {
  return answer_one(device, states, [](const Gpu& gpu, DynamicStates& answer) {
    if (gpu.is_share() || gpu.model.mig_enabled(gpu.number)) return Return::not_supported;
    const GpuReading reading = gpu.read();
    answer = {};
    answer.domains[0] = {1, reading.utilisation_percent, 0, 0};
    answer.domains[1] = {1, reading.memory_utilisation_percent, 0, 0};
    answer.domains[2] = {1, 0, 0, 0};
    return Return::success;
  });
}

// Of the two states that a GPU has here.
NVML_EXPORT Return nvmlDeviceGetMinMaxClockOfPState(Device* device, uint32_t domain, uint32_t state,
                                                    uint32_t* least, uint32_t* most) {
  constexpr uint32_t kGraphics = 0, kMultiprocessors = 1, kMemory = 2, kBusy = 0, kIdle = 8;
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(least, most)) return Return::invalid_argument;
    if (gpu.is_share() || (state != kBusy && state != kIdle)) return Return::not_supported;
    const Board& board = gpu.board;
    if (domain == kGraphics || domain == kMultiprocessors) {
      *least = board.clock_idle_mhz;
      *most = state == kBusy ? board.clock_max_mhz : board.clock_idle_mhz;
    } else if (domain == kMemory) {
      *least = *most = state == kBusy ? board.memory_clock_mhz : board.memory_clock_idle_mhz;
    } else {
      return Return::not_supported;
    }
    return Return::success;
  });
}

// As message interrupts are numbered on a plain machine: from 64 on, one a GPU (chosen).
NVML_EXPORT Return nvmlDeviceGetIrqNum(Device* device, uint32_t* number) {
  constexpr uint32_t kFirst = 64;
  return answer_one(device, number, [&](const Gpu& gpu, uint32_t& answer) {
    answer = kFirst + gpu.number;
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
