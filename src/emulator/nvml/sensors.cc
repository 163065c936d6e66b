// Temperature, fan, power, energy and clocks.
#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint64_t kReasonGpuIdle = 0x1;
constexpr uint64_t kAllReasons = 0x1FF;  // idle .. display clock setting
constexpr uint32_t kClockStepMhz = 15;

// The graphics clock's place in its range, carried over to the video clock's.
uint32_t video_clock(const Gpu& gpu, uint32_t graphics_mhz) {
  return static_cast<uint32_t>(uint64_t{gpu.detail.video_clock_max_mhz} * graphics_mhz /
                               gpu.board.clock_max_mhz);
}

Return clock_of(const Gpu& gpu, ClockDomain domain, uint32_t graphics_mhz, uint32_t memory_mhz,
                uint32_t& clock) {
  switch (domain) {
    case ClockDomain::graphics:
    case ClockDomain::sm:
      clock = graphics_mhz;
      return Return::success;
    case ClockDomain::memory:
      clock = memory_mhz;
      return Return::success;
    case ClockDomain::video:
      clock = video_clock(gpu, graphics_mhz);
      return Return::success;
  }
  return Return::invalid_argument;
}

Return clock_now(Device* device, ClockDomain domain, uint32_t* clock) {
  return answer_one(device, clock, [&](const Gpu& gpu, uint32_t& answer) {
    const GpuReading reading = gpu.read();
    return clock_of(gpu, domain, reading.clock_mhz, reading.memory_clock_mhz, answer);
  });
}

// The driver averages over a second from Ampere on, but not on GA100, the chip of the A100.
bool is_power_averaged(const Gpu& gpu) { return gpu.board.architecture > Architecture::Ampere; }

Return performance_state(Device* device, uint32_t* state) {
  return answer_one(device, state, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.read().performance_state;
    return Return::success;
  });
}

Return supported_reasons(Device* device, uint64_t* reasons) {
  return answer_one(device, reasons, [](const Gpu&, uint64_t& answer) {
    answer = kAllReasons;
    return Return::success;
  });
}

// Clocks are low because the GPU is idle, or by a fault.
Return current_reasons(Device* device, uint64_t* reasons) {
  return answer_one(device, reasons, [](const Gpu& gpu, uint64_t& answer) {
    const GpuReading reading = gpu.read();
    const bool idle = reading.performance_state != 0;
    answer = (idle ? kReasonGpuIdle : 0) | reading.throttle_reasons;
    return Return::success;
  });
}

// Fan functions name a fan by number; boards with one of their own have exactly one here.
Return fan_speed(Device* device, uint32_t fan, uint32_t* percent) {
  return answer_one(device, percent, [&](const Gpu& gpu, uint32_t& answer) {
    if (!gpu.board.fan) return Return::not_supported;
    if (fan != 0) return Return::invalid_argument;
    answer = gpu.read().fan_percent;
    return Return::success;
  });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetTemperature(Device* device, uint32_t sensor, uint32_t* celsius) {
  return answer_one(device, celsius, [&](const Gpu& gpu, uint32_t& answer) {
    if (sensor != 0) return Return::invalid_argument;
    if (gpu.is_share()) return Return::not_supported;
    answer = gpu.read().temperature;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetTemperatureThreshold(Device* device, uint32_t threshold, uint32_t* celsius) {
  constexpr uint32_t kShutdown = 0, kSlowdown = 1, kThresholds = 8;
  return answer_one(device, celsius, [&](const Gpu& gpu, uint32_t& answer) {
    if (threshold >= kThresholds) return Return::invalid_argument;
    if (threshold != kShutdown && threshold != kSlowdown) return Return::not_supported;
    answer = threshold == kShutdown ? gpu.board.temperature_shutdown : gpu.board.temperature_slowdown;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetNumFans(Device* device, uint32_t* fans) {
  return answer_one(device, fans, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.board.fan ? 1 : 0;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetFanSpeed(Device* device, uint32_t* percent) {
  return fan_speed(device, 0, percent);
}
NVML_EXPORT Return nvmlDeviceGetFanSpeed_v2(Device* device, uint32_t fan, uint32_t* percent) {
  return fan_speed(device, fan, percent);
}
NVML_EXPORT Return nvmlDeviceGetTargetFanSpeed(Device* device, uint32_t fan, uint32_t* percent) {
  return fan_speed(device, fan, percent);
}

NVML_EXPORT Return nvmlDeviceGetPowerUsage(Device* device, uint32_t* milliwatts) {
  return answer_one(device, milliwatts, [](const Gpu& gpu, uint32_t& answer) {
    if (gpu.is_share()) return Return::not_supported;
    const GpuReading reading = gpu.read();
    answer = is_power_averaged(gpu) ? reading.power_milliwatts : reading.power_instant_milliwatts;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetPowerManagementDefaultLimit(Device* device, uint32_t* milliwatts) {
  return answer_one(device, milliwatts, [](const Gpu& gpu, uint32_t& answer) {
    if (gpu.is_share()) return Return::not_supported;
    answer = gpu.board.power_limit_mw;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetPowerManagementMode(Device* device, uint32_t* mode) {
  return answer_one(device, mode, [](const Gpu&, uint32_t& answer) {
    answer = 1;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetPowerManagementLimitConstraints(Device* device, uint32_t* least,
                                                                uint32_t* most) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(least, most)) return Return::invalid_argument;
    *least = gpu.detail.power_min_mw;
    *most = gpu.detail.power_max_mw;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetPowerSource(Device* device, uint32_t* source) {
  return answer_one(device, source, [](const Gpu&, uint32_t& answer) {
    answer = 0;  // mains
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetTotalEnergyConsumption(Device* device, uint64_t* millijoules) {
  return answer_one(device, millijoules, [](const Gpu& gpu, uint64_t& answer) {
    answer = gpu.read().energy_millijoules;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetClockInfo(Device* device, ClockDomain domain, uint32_t* clock) {
  return clock_now(device, domain, clock);
}
NVML_EXPORT Return nvmlDeviceGetMaxClockInfo(Device* device, ClockDomain domain, uint32_t* clock) {
  return answer_one(device, clock, [&](const Gpu& gpu, uint32_t& answer) {
    return clock_of(gpu, domain, gpu.board.clock_max_mhz, gpu.board.memory_clock_mhz, answer);
  });
}
// Application clocks cannot be set, so only the current clock is told.
NVML_EXPORT Return nvmlDeviceGetClock(Device* device, ClockDomain domain, uint32_t id, uint32_t* clock) {
  constexpr uint32_t kCurrent = 0, kIds = 4;
  if (id == kCurrent) return clock_now(device, domain, clock);
  return answer_one(device, clock, [&](const Gpu&, uint32_t&) {
    return id < kIds ? Return::not_supported : Return::invalid_argument;
  });
}

NVML_EXPORT Return nvmlDeviceGetSupportedMemoryClocks(Device* device, uint32_t* count, uint32_t* clocks) {
  return with_gpu(device, [&](const Gpu& gpu) {
    const bool slows_down = gpu.board.memory_clock_idle_mhz != gpu.board.memory_clock_mhz;
    return copy_list(count, clocks, slows_down ? 2 : 1, [&](uint32_t i) {
      return i == 0 ? gpu.board.memory_clock_mhz : gpu.board.memory_clock_idle_mhz;
    });
  });
}
NVML_EXPORT Return nvmlDeviceGetSupportedGraphicsClocks(Device* device, uint32_t memory_clock,
                                                        uint32_t* count, uint32_t* clocks) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (memory_clock != gpu.board.memory_clock_mhz && memory_clock != gpu.board.memory_clock_idle_mhz) {
      return Return::not_found;
    }
    const uint32_t steps = (gpu.board.clock_max_mhz - gpu.board.clock_idle_mhz) / kClockStepMhz + 1;
    return copy_list(count, clocks, steps,
                     [&](uint32_t i) { return gpu.board.clock_max_mhz - i * kClockStepMhz; });
  });
}

NVML_EXPORT Return nvmlDeviceGetPerformanceState(Device* device, uint32_t* state) {
  return performance_state(device, state);
}
NVML_EXPORT Return nvmlDeviceGetPowerState(Device* device, uint32_t* state) {
  return performance_state(device, state);
}

NVML_EXPORT Return nvmlDeviceGetSupportedClocksThrottleReasons(Device* device, uint64_t* reasons) {
  return supported_reasons(device, reasons);
}
NVML_EXPORT Return nvmlDeviceGetSupportedClocksEventReasons(Device* device, uint64_t* reasons) {
  return supported_reasons(device, reasons);
}
NVML_EXPORT Return nvmlDeviceGetCurrentClocksThrottleReasons(Device* device, uint64_t* reasons) {
  return current_reasons(device, reasons);
}
NVML_EXPORT Return nvmlDeviceGetCurrentClocksEventReasons(Device* device, uint64_t* reasons) {
  return current_reasons(device, reasons);
}

}  // namespace tranche::emulator::nvml
