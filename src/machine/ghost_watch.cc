#include "machine/ghost_watch.h"

#include "base/quantity_text.h"

namespace tranche::machine {

void GhostWatch::look(const scheduler::GpuView& gpu, const GpuReading& reading) {
  const GpuId id = gpu.gpu->id;
  if (!reading.memory_used || !reading.processes) return;
  const bool is_idle = gpu.tasks.empty() && reading.processes->empty();
  if (!is_idle || *reading.memory_used <= kIdleMemoryMax) {
    looks_.erase(id);
    if (is_idle && drains_.is_drained_for(id, DrainCause::ghost)) drains_.remove(id, DrainCause::ghost);
    return;
  }
  if (++looks_[id] != kLooks) return;
  drains_.add(
      id, DrainCause::ghost,
      format_memory(*reading.memory_used) +
          " is used and no process owns it; it gets no new job until that is free, or the GPU was reset");
}

}  // namespace tranche::machine
