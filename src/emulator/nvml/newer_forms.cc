// Newer forms of old questions, which carry a version in their structure: temperature, fan, names of a GPU.
#include <string>
#include <string_view>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;

// The commonest shape of a versioned structure with one answer.
template <class T, class Body>
Return answer_versioned(Device* device, T* answer, Body body) {
  return answer_one(device, answer, [&](const Gpu& gpu, T& value) {
    if (value.version != versioned<T>(1)) return Return::argument_version_mismatch;
    return body(gpu, value);
  });
}

std::string clock_text(uint32_t state, uint32_t graphics_mhz, uint32_t memory_mhz) {
  return "perf=" + std::to_string(state) + ", nvclock=" + std::to_string(graphics_mhz) +
         ", nvclockmin=" + std::to_string(graphics_mhz) + ", nvclockmax=" + std::to_string(graphics_mhz) +
         ", memclock=" + std::to_string(memory_mhz) + ", memclockmin=" + std::to_string(memory_mhz) +
         ", memclockmax=" + std::to_string(memory_mhz);
}

bool is_uuid(const GpuIdentity& identity, const UuidRequest& request) {
  constexpr uint32_t kText = 1;
  if (request.type != kText) return request.bytes == identity.uuid;
  const std::string_view text(request.text.data(), strnlen(request.text.data(), request.text.size()));
  return text == identity.uuid_text.data();
}

}  // namespace

// The sensor of the hottest place exists from release 615 on, and is the only one there is.
NVML_EXPORT Return nvmlDeviceGetTemperatureV(Device* device, TemperatureReading* reading) {
  return answer_versioned(device, reading, [](const Gpu& gpu, TemperatureReading& answer) {
    if (answer.sensor >= static_cast<uint32_t>(gpu.model.level().number("nvml.temperature_sensors")))
      return Return::invalid_argument;
    if (gpu.is_share()) return Return::not_supported;
    answer.celsius = static_cast<int32_t>(gpu.read().temperature);
    return Return::success;
  });
}

// Degrees that are left before the GPU slows down; boards from Ada on tell it.
NVML_EXPORT Return nvmlDeviceGetMarginTemperature(Device* device, MarginTemperature* margin) {
  return answer_versioned(device, margin, [](const Gpu& gpu, MarginTemperature& answer) {
    if (gpu.board.architecture < Architecture::Ada || gpu.is_share()) return Return::not_supported;
    answer.celsius =
        static_cast<int32_t>(gpu.board.temperature_slowdown) - static_cast<int32_t>(gpu.read().temperature);
    return Return::success;
  });
}

// The fan turns in proportion to its percentage.
NVML_EXPORT Return nvmlDeviceGetFanSpeedRPM(Device* device, FanSpeedInfo* info) {
  constexpr uint32_t kFullSpeedRpm = 3000;
  return answer_versioned(device, info, [](const Gpu& gpu, FanSpeedInfo& answer) {
    if (!gpu.board.fan || gpu.is_share()) return Return::not_supported;
    if (answer.fan != 0) return Return::invalid_argument;
    answer.rpm = gpu.read().fan_percent * kFullSpeedRpm / 100;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetCurrentClockFreqs(Device* device, TextAnswer* text) {
  return answer_versioned(device, text, [](const Gpu& gpu, TextAnswer& answer) {
    const GpuReading reading = gpu.read();
    const std::string clocks =
        clock_text(reading.performance_state, reading.clock_mhz, reading.memory_clock_mhz);
    return copy_text(clocks, answer.text.data(), static_cast<uint32_t>(answer.text.size()));
  });
}

NVML_EXPORT Return nvmlDeviceGetPerformanceModes(Device* device, TextAnswer* text) {
  return answer_versioned(device, text, [](const Gpu& gpu, TextAnswer& answer) {
    std::string modes = clock_text(0, gpu.board.clock_max_mhz, gpu.board.memory_clock_mhz);
    if (gpu.board.memory_clock_idle_mhz != gpu.board.memory_clock_mhz) {
      modes = clock_text(8, gpu.board.clock_idle_mhz, gpu.board.memory_clock_idle_mhz) + "; " + modes;
    }
    return copy_text(modes, answer.text.data(), static_cast<uint32_t>(answer.text.size()));
  });
}

// "r570_86": the branch that the driver was built from.
NVML_EXPORT Return nvmlSystemGetDriverBranch(DriverBranch* branch, uint32_t length) {
  return with_session([&](const Session& session) {
    if (branch == nullptr) return Return::invalid_argument;
    if (branch->version != versioned<DriverBranch>(1)) return Return::argument_version_mismatch;
    std::string text = "r" + session.model().driver_version();
    text = text.substr(0, text.find('.', text.find('.') + 1));
    text.replace(text.find('.'), 1, "_");
    const auto room = static_cast<uint32_t>(branch->text.size());
    return copy_text(text, branch->text.data(), length < room ? length : room);
  });
}

NVML_EXPORT Return nvmlDeviceGetHandleByUUIDV(const UuidRequest* request, Device** device) {
  return with_session([&](const Session& session) {
    if (request == nullptr || device == nullptr || request->type < 1 || request->type > 2)
      return Return::invalid_argument;
    if (request->version != versioned<UuidRequest>(1)) return Return::argument_version_mismatch;
    for (uint32_t index = 0; index < session.visible().size(); ++index) {
      if (!is_uuid(gpu_at(session, index).identity, *request)) continue;
      *device = session.handle(index);
      return Return::success;
    }
    return Return::not_found;
  });
}

// A number that the GPU was given in the factory; here the first half of its UUID.
NVML_EXPORT Return nvmlDeviceGetPdi(Device* device, PlatformIdentifier* identifier) {
  return answer_versioned(device, identifier, [](const Gpu& gpu, PlatformIdentifier& answer) {
    std::memcpy(&answer.value, gpu.identity.uuid.data(), sizeof answer.value);
    return Return::success;
  });
}

// Neither heterogeneous memory management nor address translation by the host.
NVML_EXPORT Return nvmlDeviceGetAddressingMode(Device* device, AddressingMode* mode) {
  return answer_versioned(device, mode, [](const Gpu&, AddressingMode& answer) {
    answer.mode = 0;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetRepairStatus(Device* device, RepairStatus* status) {
  return answer_versioned(device, status, [](const Gpu& gpu, RepairStatus& answer) {
    if (gpu.board.architecture < Architecture::Ampere || !gpu.board.ecc) return Return::not_supported;
    answer.channel_pending = answer.tpc_pending = 0;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetCapabilities(Device* device, DeviceCapabilities* capabilities) {
  return answer_versioned(device, capabilities, [](const Gpu&, DeviceCapabilities& answer) {
    answer.mask = 0;  // no extended GPU memory
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetGpuUptime_v1(Device* device, GpuUptime* uptime) {
  return answer_one(device, uptime, [](const Gpu& gpu, GpuUptime& answer) {
    answer.seconds = static_cast<uint32_t>((gpu.read().time_ns - gpu.model.created_ns()) / kNsPerSecond);
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
