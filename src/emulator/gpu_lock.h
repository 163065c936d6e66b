// The lock of one GPU, held for a scope, with the way to the processes' parts of its timeline.
#pragma once

#include <algorithm>

#include "emulator/clocks.h"
#include "emulator/device_model.h"
#include "emulator/robust_lock.h"

namespace tranche::emulator {

// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): a member of GpuLock, never deleted by its base
class DeviceModel::Uses final : public ProcessTimelines {
 public:
  Uses(SharedState& state, uint32_t gpu) : state_(state), gpu_(gpu) {}
  ProcessTimeline& of(uint32_t slot) override { return state_.uses[slot % kMaxProcesses][gpu_].timeline; }

 private:
  SharedState& state_;
  uint32_t gpu_;
};

class DeviceModel::GpuLock {
 public:
  GpuLock(DeviceModel& model, uint32_t gpu)
      : model_(model),
        gpu_(model.state_->gpus[gpu]),
        uses_(*model.state_, gpu),
        lock_(gpu_.lock, [&model, gpu] { model.repair_gpu(gpu); }) {
    // The memory is shared with programs that may have spoilt it: nothing is indexed past its end.
    gpu_.timeline.active_count = std::min(gpu_.timeline.active_count, kMaxProcesses);
    if (gpu_.mig.enabled == 0) return;
    for (Timeline& timeline : gpu_.instance_timelines) {
      timeline.active_count = std::min(timeline.active_count, kMaxProcesses);
    }
  }

  SharedGpu& gpu() { return gpu_; }
  Timeline& timeline() { return gpu_.timeline; }
  // That on which the work of a process runs: under MIG its compute instance has one of its own.
  Timeline& timeline_of(uint32_t slot) {
    const uint32_t executor = model_.executor_of(slot, gpu_);
    return executor < kMaxExecutors ? gpu_.instance_timelines[executor] : gpu_.timeline;
  }
  ProcessTimelines& uses() { return uses_; }
  void advance_to_now() {
    const uint64_t now = model_.now();
    advance(gpu_.timeline, uses_, now);
    if (gpu_.mig.enabled == 0) return;
    for (Timeline& timeline : gpu_.instance_timelines) advance(timeline, uses_, now);
  }

 private:
  DeviceModel& model_;
  SharedGpu& gpu_;
  Uses uses_;
  RobustLock lock_;
};

template <class Change>
void DeviceModel::change_clock(uint32_t gpu, Change change) {
  {
    GpuLock lock(*this, gpu);
    lock.advance_to_now();
    change();
    const uint64_t reasons = lock.gpu().faults.throttle_reasons.load();
    const uint32_t slowed_by = kernels_slowed_by(board(gpu), settings(gpu), reasons);
    lock.timeline().slowed_by = slowed_by;
    for (Timeline& timeline : lock.gpu().instance_timelines) timeline.slowed_by = slowed_by;
  }
  wake_waiters(gpu);
}

}  // namespace tranche::emulator
