#include "gpu/gpu_health.h"

#include <utility>

namespace tranche {
namespace {

constexpr uint32_t kGoodUntilOk = 3;
constexpr uint32_t kUnansweredUntilFailed = 3;
constexpr uint32_t kSlowedUntilDegraded = 5;

}  // namespace

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::change(Health health, std::string reason) {
  good_ = 0;
  if (verdict_.health == health) return std::nullopt;  // the first reason stays: it is where it began
  verdict_ = {health, std::move(reason)};
  return verdict_;
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::reading(const Evidence& evidence) {
  const bool answered = evidence.code == nvml::Code::success;
  unanswered_ = answered ? 0 : unanswered_ + 1;
  const bool slowed =
      (evidence.clocks_event_reasons &
       (nvml::kClocksHardwareSlowdown | nvml::kClocksHardwareThermal | nvml::kClocksPowerBrake)) != 0;
  slowed_ = slowed ? slowed_ + 1 : 0;

  if (evidence.code == nvml::Code::gpu_is_lost || evidence.code == nvml::Code::gpu_not_found) {
    return change(Health::lost,
                  "the GPU has fallen off the bus; look for Xid in the kernel log and reboot the machine");
  }
  if (evidence.code == nvml::Code::reset_required) {
    return change(Health::failed, "the driver asks for a reset of the GPU (nvidia-smi --gpu-reset)");
  }
  if (evidence.rows_failure) {
    return change(Health::failed, "row remapping has failed; the GPU's memory needs service");
  }
  if (!answered && unanswered_ >= kUnansweredUntilFailed) {
    return change(Health::failed, evidence.call + " fails; see `nvidia-smi` and the kernel log");
  }
  if (!answered) {
    good_ = 0;
    return std::nullopt;
  }
  if (evidence.rows_pending) {
    return change(Health::degraded, "a row remapping of the GPU's memory waits for a reset");
  }
  if (slowed_ >= kSlowedUntilDegraded) {
    return change(Health::degraded,
                  "the hardware slows the GPU down (heat or power); check cooling and power supply");
  }
  if (slowed) return std::nullopt;
  if (verdict_.health == Health::ok || ++good_ < kGoodUntilOk) return std::nullopt;
  return change(Health::ok, "");
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::silent(std::string reason) {
  if (verdict_.health == Health::lost) return std::nullopt;
  return change(Health::failed, std::move(reason));
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::missing() {
  return change(Health::lost, "the driver does not list the GPU any more; look for Xid in the kernel log");
}

}  // namespace tranche
