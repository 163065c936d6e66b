// How busy a GPU is: utilisation of the whole GPU and of its media engines, and sampled history.
//
// Utilisation is an integer percentage of the newest complete sample period, so it lags by up to two
// periods; samples are one a period.
#include <algorithm>
#include <vector>

#include "emulator/nvml/mig_handles.h"
#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint32_t kSamplePeriodUs = static_cast<uint32_t>(kSamplePeriodNs / 1000);

// The media engines exist and nothing can run on them.
Return idle_engine(Device* device, uint32_t* percent, uint32_t* period_us) {
  return with_gpu(device, [&](const Gpu&) {
    if (any_null(percent, period_us)) return Return::invalid_argument;
    *percent = 0;
    *period_us = kSamplePeriodUs;
    return Return::success;
  });
}

// JPEG decoders and optical flow engines can be read from Ampere on.
Return idle_new_engine(Device* device, uint32_t* percent, uint32_t* period_us) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(percent, period_us)) return Return::invalid_argument;
    if (gpu.board.architecture < Architecture::Ampere) return Return::not_supported;
    *percent = 0;
    *period_us = kSamplePeriodUs;
    return Return::success;
  });
}

// Session statistics of the encoder and of frame capture: three counters, all zero.
Return no_sessions(Device* device, uint32_t* sessions, uint32_t* frames, uint32_t* latency) {
  return with_gpu(device, [&](const Gpu&) {
    if (any_null(sessions, frames, latency)) return Return::invalid_argument;
    *sessions = *frames = *latency = 0;
    return Return::success;
  });
}

Return no_session_list(Device* device, uint32_t* count) {
  return answer_one(device, count, [](const Gpu&, uint32_t& answer) {
    answer = 0;
    return Return::success;
  });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetUtilizationRates(Device* device, Utilization* utilization) {
  if (is_mig_device(device)) return Return::not_supported;
  return answer_one(device, utilization, [](const Gpu& gpu, Utilization& answer) {
    if (gpu.model.mig_enabled(gpu.number)) return Return::not_supported;
    const GpuReading reading = gpu.read();
    answer = {.gpu = reading.utilisation_percent, .memory = reading.memory_utilisation_percent};
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetEncoderUtilization(Device* device, uint32_t* percent, uint32_t* period_us) {
  return idle_engine(device, percent, period_us);
}
NVML_EXPORT Return nvmlDeviceGetDecoderUtilization(Device* device, uint32_t* percent, uint32_t* period_us) {
  return idle_engine(device, percent, period_us);
}
NVML_EXPORT Return nvmlDeviceGetJpgUtilization(Device* device, uint32_t* percent, uint32_t* period_us) {
  return idle_new_engine(device, percent, period_us);
}
NVML_EXPORT Return nvmlDeviceGetOfaUtilization(Device* device, uint32_t* percent, uint32_t* period_us) {
  return idle_new_engine(device, percent, period_us);
}
NVML_EXPORT Return nvmlDeviceGetEncoderStats(Device* device, uint32_t* sessions, uint32_t* frames,
                                             uint32_t* latency) {
  return no_sessions(device, sessions, frames, latency);
}
NVML_EXPORT Return nvmlDeviceGetFBCStats(Device* device, FrameCaptureStats* stats) {
  return answer_one(device, stats, [](const Gpu&, FrameCaptureStats& answer) {
    answer = {};
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetEncoderSessions(Device* device, uint32_t* count, void*) {
  return no_session_list(device, count);
}
NVML_EXPORT Return nvmlDeviceGetFBCSessions(Device* device, uint32_t* count, void*) {
  return no_session_list(device, count);
}

// Only GPU utilisation is kept as samples. A null list asks for the room needed.
NVML_EXPORT Return nvmlDeviceGetSamples(Device* device, uint32_t kind, uint64_t last_seen_us, ValueType* type,
                                        uint32_t* count, Sample* samples) {
  constexpr uint32_t kGpuUtilization = 1, kKinds = 10;
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(type, count) || kind >= kKinds) return Return::invalid_argument;
    if (kind != kGpuUtilization) return Return::not_supported;
    const std::vector<UtilisationSample> history =
        gpu.model.samples(gpu.number, monotonic_ns(gpu.model, last_seen_us));
    if (history.empty()) return Return::not_found;
    *type = ValueType::u32;
    if (samples == nullptr) {
      *count = static_cast<uint32_t>(history.size());
      return Return::success;
    }
    // The newest that fit: a caller's room is from an earlier call, and more periods may be over now.
    const size_t number = std::min<size_t>(history.size(), *count);
    if (number == 0) return Return::insufficient_size;
    for (size_t i = 0; i < number; ++i) {
      const UtilisationSample& sample = history[history.size() - number + i];
      samples[i] = {.timestamp_us = wall_us(gpu.model, sample.end_ns), .value = {.u64 = sample.percent}};
    }
    *count = static_cast<uint32_t>(number);
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
