// GPU performance monitoring (GPM), on Hopper and later: a client takes two samples and asks for metrics of
// the time between them.
//
// The emulator knows when kernels ran, not what they did: the shares of time of the graphics engine and of
// the SMs are the same number, PCIe traffic is what copies moved, and of the pipes, which no model of work
// exists for, it says "not supported" rather than a number.
#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {

struct GpmSample {
  bool is_taken = false;
  uint32_t gpu = 0;
  uint64_t time_ns = 0, busy_ns = 0, bytes_to_gpu = 0, bytes_from_gpu = 0;
};

namespace {

namespace metric {
constexpr uint32_t graphics_util = 1, sm_util = 2, pcie_sent = 20, pcie_received = 21;
}  // namespace metric
constexpr size_t kMaxSamples = 4096;
constexpr uint32_t kMaxMetrics = 1024;  // more than any version of NVML knows
constexpr double kBytesPerMiB = 1 << 20;

std::mutex g_samples_mutex;
std::vector<std::unique_ptr<GpmSample>> g_samples;

std::optional<GpmSample> content_of(const GpmSample* sample) {
  const std::lock_guard lock(g_samples_mutex);
  for (const auto& known : g_samples) {
    if (known.get() == sample) return *known;
  }
  return std::nullopt;
}

bool has_gpm(const Gpu& gpu) { return gpu.board.architecture >= Architecture::Hopper; }

void answer_metric(const GpmSample& first, const GpmSample& second, GpmMetric& metric) {
  const auto span_ns = static_cast<double>(second.time_ns - first.time_ns);
  const auto rate = [&](uint64_t from, uint64_t to) {
    return static_cast<double>(to - from) / kBytesPerMiB * 1e9 / span_ns;
  };
  metric.result = Return::success;
  switch (metric.id) {
    case metric::graphics_util:
    case metric::sm_util:
      metric.value = static_cast<double>(second.busy_ns - first.busy_ns) * 100 / span_ns;
      metric.short_name = metric.id == metric::graphics_util ? "GRACT" : "SMACT";
      metric.long_name = metric.id == metric::graphics_util ? "Graphics Engine Active" : "SM Active";
      metric.unit = "%";
      break;
    case metric::pcie_sent:
      metric.value = rate(first.bytes_from_gpu, second.bytes_from_gpu);
      metric.short_name = "PCITX";
      metric.long_name = "PCIe TX";
      metric.unit = "MiB/s";
      break;
    case metric::pcie_received:
      metric.value = rate(first.bytes_to_gpu, second.bytes_to_gpu);
      metric.short_name = "PCIRX";
      metric.long_name = "PCIe RX";
      metric.unit = "MiB/s";
      break;
    default:
      metric.value = 0;
      metric.result = Return::not_supported;
  }
}

}  // namespace

// Clients have passed either the bare version or, as other structures have it, the size with it.
NVML_EXPORT Return nvmlGpmQueryDeviceSupport(Device* device, GpmSupport* support) {
  return answer_one(device, support, [](const Gpu& gpu, GpmSupport& answer) {
    if (answer.version != 1 && answer.version != versioned<GpmSupport>(1))
      return Return::argument_version_mismatch;
    answer.is_supported = has_gpm(gpu) ? 1 : 0;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlGpmSampleAlloc(GpmSample** sample) {
  return with_session([&](const Session&) {
    if (sample == nullptr) return Return::invalid_argument;
    const std::lock_guard lock(g_samples_mutex);
    if (g_samples.size() >= kMaxSamples) return Return::memory;
    g_samples.push_back(std::make_unique<GpmSample>());
    *sample = g_samples.back().get();
    return Return::success;
  });
}

NVML_EXPORT Return nvmlGpmSampleFree(GpmSample* sample) {
  return with_session([&](const Session&) {
    const std::lock_guard lock(g_samples_mutex);
    return std::erase_if(g_samples, [&](const auto& known) { return known.get() == sample; }) == 1
               ? Return::success
               : Return::invalid_argument;
  });
}

NVML_EXPORT Return nvmlGpmSampleGet(Device* device, GpmSample* sample) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (!content_of(sample)) return Return::invalid_argument;
    if (!has_gpm(gpu)) return Return::not_supported;
    const GpuReading reading = gpu.read();
    const uint64_t received = gpu.model.bytes_moved(gpu.number, Bus::to_gpu);
    const uint64_t sent = gpu.model.bytes_moved(gpu.number, Bus::from_gpu);
    const std::lock_guard lock(g_samples_mutex);
    for (const auto& known : g_samples) {
      if (known.get() != sample) continue;
      *known = {true, gpu.number, reading.time_ns, reading.busy_ns, received, sent};
    }
    return Return::success;
  });
}

NVML_EXPORT Return nvmlGpmMetricsGet(GpmMetricsGet* request) {
  return with_session([&](const Session&) {
    if (request == nullptr) return Return::invalid_argument;
    if (request->version != 1) return Return::argument_version_mismatch;
    const std::optional<GpmSample> first = content_of(request->first), second = content_of(request->second);
    if (!first || !second || request->count > kMaxMetrics) return Return::invalid_argument;
    if (!first->is_taken || !second->is_taken || first->gpu != second->gpu ||
        second->time_ns <= first->time_ns) {
      return Return::invalid_argument;
    }
    GpmMetric* const metrics = request->metrics;
    for (uint32_t i = 0; i < request->count; ++i) answer_metric(*first, *second, metrics[i]);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlGpmQueryIfStreamingEnabled(Device* device, uint32_t* state) {
  return answer_one(device, state, [](const Gpu& gpu, uint32_t& answer) {
    if (!has_gpm(gpu)) return Return::not_supported;
    answer = kDisabled;
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
