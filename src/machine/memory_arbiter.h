// The daemon's view of the arbiter: what each task was promised of a GPU's memory, may use and uses, and what
// each GPU has to give. Real: arbiter_client.h. Tests have their own.
//
// Units: bytes where the arbiter counts, MiB where the daemon says. Threading: the reactor's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "model/job.h"

namespace tranche::machine {

// Rounded up.
inline MiB to_mib(uint64_t bytes) { return MiB(static_cast<int64_t>((bytes + (1 << 20) - 1) >> 20)); }

// Of one task and GPU.
struct ShareUsage {
  TaskKey task;
  std::string gpu;  // device_uuid_digits
  uint64_t limit = 0;
  uint64_t guarantee = 0;  // of the limit
  uint64_t charged = 0;
  uint64_t granted = 0;
  uint64_t owed = 0;  // of what it borrows beyond the guarantee, to be given back
  uint64_t denied = 0;
  uint32_t processes = 0;
  uint32_t waits = 0;
  bool held_by_driver = false;
};

// Of a job that runs, the most of any GPU that it shares: what it may use, and what its processes hold of it
// now (none: not known).
struct MemoryHeld {
  MiB part;
  std::optional<MiB> charged;
};

class MemoryArbiter {
 public:
  using Answered = std::function<void(Result<std::vector<ShareUsage>>)>;

  virtual ~MemoryArbiter() = default;
  // Whether one is running now, as far as can be told without asking it.
  virtual bool is_there() = 0;
  // Everything, by task. One question at a time: another one before the answer is refused (conflict).
  virtual void usage(Answered answered) = 0;
  // What a task may have of a GPU from now on. An arbiter that has not heard of it forgets it: said again.
  virtual void set_limit(const TaskKey& task, const std::string& gpu, MiB limit, MiB guarantee) = 0;
  // What a GPU has for tasks, and what of it processes of nobody's hold.
  virtual void set_board(const std::string& gpu, MiB usable, MiB elsewhere) = 0;
};

}  // namespace tranche::machine
