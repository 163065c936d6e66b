// The processes of one task, however they are held together: by a cgroup (task_cgroup.h), or without root by
// descent from their shepherd (task_descendants.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "isolation/failure.h"

namespace tranche::isolation {

struct TaskLimits {
  uint32_t cpu_milli = 0;        // weight
  uint32_t cpu_limit_milli = 0;  // cap; 0 none
  uint32_t pids = 0;             // 0 none
  uint64_t memory_mib = 0;       // swap included; 0 none
};

struct TaskUsage {
  uint64_t user_time_ns = 0;
  uint64_t system_time_ns = 0;
  uint64_t memory_peak_bytes = 0;
  uint64_t oom_kills = 0;
};

class TaskProcesses {
 public:
  virtual ~TaskProcesses() = default;

  // The cgroup that the first process is born in (CLONE_INTO_CGROUP); -1: none.
  virtual int birth_cgroup() const = 0;
  // Readable edge: poll with POLLPRI after is_populated(). -1: nobody tells, so ask again.
  virtual int events() const = 0;

  // `which`: wire::kSet... What cannot be held is passed over.
  virtual Outcome<void> set_limits(const TaskLimits& limits, uint32_t which) const = 0;
  // Called by the task's first process, single-threaded.
  virtual Outcome<void> join() const = 0;

  virtual Outcome<void> set_frozen(bool frozen) const = 0;
  // SIGKILL to every process, also of those that are being forked meanwhile.
  virtual Outcome<void> kill() const = 0;
  // One signal to every process; a process that is born meanwhile may miss it.
  virtual void signal_all(int signal) const = 0;
  // The same to those processes alone that have a handler for it; how many these were.
  virtual size_t signal_those_that_catch(int signal) const = 0;
  // Whether any process is left; true when it cannot be told.
  virtual bool is_populated() const = 0;
  virtual TaskUsage usage() const = 0;

  // Of what was made for the task nothing is left. EBUSY: not empty yet.
  virtual Outcome<void> remove() const = 0;

 protected:
  TaskProcesses() = default;
  TaskProcesses(const TaskProcesses&) = default;
  TaskProcesses& operator=(const TaskProcesses&) = default;
};

}  // namespace tranche::isolation
