// Memory of an idle GPU that no process owns: a driver that has not cleaned up, whoever's it was. What a job
// was promised there is not there, so the GPU is drained until it is free. (What the end of a job leaves
// behind is seen by ReleaseWatch at once.)
//
// While jobs are on the GPU nothing is judged: what the driver keeps for them is no ghost. A driver that does
// not say what is used, or by whom, changes nothing. Threading: the reactor's thread.
#pragma once

#include <map>

#include "gpu/gpu_host.h"
#include "machine/gpu_drains.h"
#include "scheduler/scheduler.h"

namespace tranche::machine {

// What a driver may hold on an idle GPU beside its reserve (ECC bookkeeping, page tables).
inline constexpr MiB kIdleMemoryMax{64};

class GhostWatch {
 public:
  explicit GhostWatch(GpuDrains& drains) : drains_(drains) {}

  // A periodic reading of one GPU.
  void look(const scheduler::GpuView& gpu, const GpuReading& reading);

 private:
  static constexpr int kLooks = 3;  // in a row: a process that ends has its memory back a moment later

  GpuDrains& drains_;
  std::map<GpuId, int> looks_;
};

}  // namespace tranche::machine
