// Says when a GPU has let go of a task that is gone: `TaskExited` is not `SliceReleased` (design section 2).
//
// A slice is free when the driver shows no process on its GPU that is dead or of that task, and, for a whole
// GPU without any process, no memory either. An answer that does not come means unknown: the slice stays
// taken. After three seconds the GPU is drained with the reason; it is looked at further, and put back when
// it lets go.
#pragma once

#include <map>
#include <string>

#include "machine/gpu_drains.h"
#include "machine/gpu_manager.h"

namespace tranche::machine {

class ReleaseWatch {
 public:
  ReleaseWatch(Reactor& reactor, Engine& engine, GpuManager& gpus, GpuDrains& drains);

  // Watches one slice of a task whose processes are gone; records SliceReleased when it is free.
  void watch(const TaskKey& task, const Slice& slice);
  size_t watching() const { return pending_.size(); }

 private:
  struct Pending {
    Slice slice;
    Duration since;
    Duration pause;
    bool drained = false;
    Reactor::Handle again;
  };
  using Key = std::pair<TaskKey, GpuId>;

  void check(const Key& key);
  void judge(const Key& key, const Result<GpuReading>& reading);
  void released(const Key& key);
  void still_held(const Key& key, const std::string& reason);

  Reactor& reactor_;
  Engine& engine_;
  GpuManager& gpus_;
  GpuDrains& drains_;
  std::map<Key, Pending> pending_;
};

}  // namespace tranche::machine
