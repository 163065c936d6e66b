#include "gpu/gpu_health.h"

#include <utility>

namespace tranche {
namespace {

constexpr uint32_t kGoodUntilOk = 3;
constexpr uint32_t kUnansweredUntilFailed = 3;
constexpr uint32_t kSlowedUntilDegraded = 5;

}  // namespace

void GpuHealthJudge::judge(Health health, std::string reason, bool needs_reset) {
  good_ = 0;
  if (judged_.health == health) return;  // the first reason stays: it is where it began
  judged_ = {health, std::move(reason), needs_reset, false};
}

// What is held against it goes before what readings say: it names the cause.
std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::publish() {
  const Verdict* worst = nullptr;
  for (const auto& held : holds_) {
    if (held && (worst == nullptr || held->health > worst->health)) worst = &*held;
  }
  if (worst == nullptr || judged_.health > worst->health) worst = &judged_;
  if (verdict_.health == worst->health) return std::nullopt;
  verdict_ = *worst;
  return verdict_;
}

void GpuHealthJudge::judge_reading(const Evidence& evidence) {
  const bool answered = evidence.code == nvml::Code::success;
  unanswered_ = answered ? 0 : unanswered_ + 1;
  const bool slowed =
      (evidence.clocks_event_reasons &
       (nvml::kClocksHardwareSlowdown | nvml::kClocksHardwareThermal | nvml::kClocksPowerBrake)) != 0;
  slowed_ = slowed ? slowed_ + 1 : 0;

  if (evidence.code == nvml::Code::gpu_is_lost || evidence.code == nvml::Code::gpu_not_found) {
    return judge(Health::lost,
                 "the GPU has fallen off the bus; look for Xid in the kernel log and reboot the machine");
  }
  if (evidence.code == nvml::Code::reset_required || evidence.recovery_action.value_or(0) != 0) {
    return judge(Health::failed, "the driver asks for a reset of the GPU (nvidia-smi --gpu-reset)", true);
  }
  if (evidence.rows_failure) {
    return judge(Health::failed, "row remapping has failed; the GPU's memory needs service");
  }
  if (!answered && unanswered_ >= kUnansweredUntilFailed) {
    return judge(Health::failed, evidence.call + " fails; see `nvidia-smi` and the kernel log");
  }
  if (!answered) {
    good_ = 0;
    return;
  }
  if (evidence.rows_pending) {
    return judge(Health::degraded, "a row remapping of the GPU's memory waits for a reset");
  }
  if (slowed_ >= kSlowedUntilDegraded) {
    return judge(Health::degraded,
                 "the hardware slows the GPU down (heat or power); check cooling and power supply");
  }
  if (slowed) return;
  if (judged_.health == Health::ok || ++good_ < kGoodUntilOk) return;
  judge(Health::ok, "");
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::reading(const Evidence& evidence) {
  judge_reading(evidence);
  // A driver that recommends something after an XID, and then nothing any more, has seen the reset.
  const bool recommends_nothing = evidence.code == nvml::Code::success && evidence.recovery_action == 0u;
  recommended_nothing_ = recommends_nothing ? recommended_nothing_ + 1 : 0;
  if (recommended_nothing_ >= kGoodUntilOk) holds_[static_cast<size_t>(Hold::xid)].reset();
  return publish();
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::silent(std::string reason) {
  if (judged_.health != Health::lost) judge(Health::failed, std::move(reason));
  return publish();
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::missing() {
  judge(Health::lost, "the driver does not list the GPU any more; look for Xid in the kernel log");
  return publish();
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::fallen(std::string reason) {
  judge(Health::lost, std::move(reason));
  return publish();
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::hold(Hold cause, Health health, std::string reason) {
  auto& held = holds_[static_cast<size_t>(cause)];
  if (cause == Hold::xid) recommended_nothing_ = 0;
  const bool of_the_driver = cause != Hold::xid;
  if (!held || held->health < health) {  // the first of its kind stays
    held = {health, std::move(reason), !of_the_driver && health == Health::failed, of_the_driver};
  }
  return publish();
}

std::optional<GpuHealthJudge::Verdict> GpuHealthJudge::release(Hold cause) {
  holds_[static_cast<size_t>(cause)].reset();
  return publish();
}

}  // namespace tranche
