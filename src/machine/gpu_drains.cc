#include "machine/gpu_drains.h"

#include <algorithm>

#include "linux/log.h"

namespace tranche::machine {
namespace {

constexpr const char* kBy = "tranche";

// The reason with which the log has the GPU drained; nullopt: it is not.
std::optional<std::string> drain_reason(const Engine& engine, GpuId gpu) {
  for (const auto& view : engine.scheduler().gpus()) {
    if (view.gpu->id == gpu && view.drained) return view.reason;
  }
  return std::nullopt;
}

bool is_ours(const std::string& reason) {
  return reason.starts_with(kReleasePrefix) || reason.starts_with(kMigPrefix) ||
         reason.starts_with(kOverPrefix) || reason.starts_with(kGhostPrefix);
}

}  // namespace

std::string_view prefix_of(DrainCause cause) {
  switch (cause) {
    case DrainCause::release:
      return kReleasePrefix;
    case DrainCause::mig:
      return kMigPrefix;
    case DrainCause::over:
      return kOverPrefix;
    case DrainCause::ghost:
      break;
  }
  return kGhostPrefix;
}

void GpuDrains::add(GpuId gpu, DrainCause cause, const std::string& sentence) {
  const std::string reason = reason_for(cause, sentence);
  reasons_[gpu][cause] = reason;
  if (drain_reason(engine_, gpu)) return;  // by an operator, or for another cause: it is drained
  log(LogLevel::warning, "gpu_drained", {{"gpu", gpu.value()}, {"reason", reason}});
  engine_.record(GpuDrained{gpu, kBy, reason});
}

void GpuDrains::remove(GpuId gpu, DrainCause cause) {
  reasons_[gpu].erase(cause);
  const auto current = drain_reason(engine_, gpu);
  if (!current || !is_ours(*current)) return;
  if (reasons_[gpu].empty()) {
    engine_.record(GpuUndrained{gpu, kBy});
  } else if (current->starts_with(prefix_of(cause))) {
    engine_.record(GpuDrained{gpu, kBy, reasons_[gpu].begin()->second});
  }
}

void GpuDrains::give_back(GpuId gpu) {
  const auto causes = reasons_.find(gpu);
  if (causes == reasons_.end() || causes->second.empty()) return engine_.record(GpuUndrained{gpu, kBy});
  engine_.record(GpuDrained{gpu, kBy, causes->second.begin()->second});
}

bool GpuDrains::is_operators(const std::string& reason) {
  return !is_ours(reason) && !reason.starts_with(kStrangerPrefix);
}

std::string GpuDrains::reason_for(DrainCause cause, const std::string& sentence) {
  return std::string(prefix_of(cause)) + sentence;
}

bool GpuDrains::is_drained_for(GpuId gpu, DrainCause cause) const {
  const auto current = drain_reason(engine_, gpu);
  return current && current->starts_with(prefix_of(cause));
}

}  // namespace tranche::machine
