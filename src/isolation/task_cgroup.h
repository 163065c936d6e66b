// The cgroup of one task: `<root>/u<uid>/j<job>/t<rank>.<attempt>` in the unified hierarchy, and
// `<root>/u<uid>.j<job>.t<rank>.<attempt>` in each v1 hierarchy that serves limits (one level, because every
// v1 memory cgroup is dear and v1 carries no meaning here beyond the limits).
//
// A process is born in it: clone3 with CLONE_INTO_CGROUP on descriptor unified(), then join_v1() by the child
// itself while it has one thread. Moving a process afterwards costs 7.5 ms on an idle host.
#pragma once

#include <cstdint>
#include <string>

#include "isolation/cgroup_tree.h"
#include "wire/launcher.h"

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

// "u2001/j5/t0.1": the folder in the unified hierarchy, and what identifies a process's task.
std::string task_cgroup_name(uint32_t uid, const wire::TaskKey& key);
// "u2001.j5.t0.1": the folder in each v1 hierarchy.
std::string task_cgroup_v1_name(uint32_t uid, const wire::TaskKey& key);
// The key in a path as /proc/PID/cgroup has it, if it lies under `root` ("/tranche") and is well formed.
bool parse_task_cgroup(std::string_view path, std::string_view root, wire::TaskKey& key, uint32_t& uid);

class TaskCgroup {
 public:
  // `tree` is borrowed and outlives the result. create: the caller has seen that no record names this
  // attempt, so what lies there under its name is a leftover: an empty one is replaced, with its filter and
  // counters; one with processes is EEXIST, and the text says who they are. A create that fails leaves
  // nothing it made.
  static Outcome<TaskCgroup> create(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key);
  static Outcome<TaskCgroup> open(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key);

  int unified() const { return unified_.get(); }
  // Readable edge: poll with POLLPRI after read_populated().
  int events() const { return events_.get(); }

  Outcome<void> set_limits(const TaskLimits& limits, uint32_t which) const;  // which: wire::kSet...
  // Called by the task's first process, single-threaded.
  Outcome<void> join_v1() const;

  Outcome<void> set_frozen(bool frozen) const;
  // SIGKILL to every process, also of those that are being forked meanwhile.
  Outcome<void> kill() const;
  // One signal to every process; a process that is born meanwhile may miss it.
  void signal_all(int signal) const;
  // The same to those processes alone that have a handler for it; how many these were.
  size_t signal_those_that_catch(int signal) const;
  // Whether any process is left; true when it cannot be told. Re-arms events().
  bool is_populated() const;
  TaskUsage usage() const;

  // Removes the empty cgroup in all hierarchies and parents that have become empty. EBUSY: not empty yet;
  // then it is gone from the hierarchies where it could go.
  Outcome<void> remove() const { return remove(*tree_, uid_, key_); }
  // The same for one that is not open, or exists in some hierarchies only.
  static Outcome<void> remove(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key);

 private:
  static Outcome<TaskCgroup> open_folders(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key);
  template <class Wanted>
  size_t signal_members(int signal, Wanted wanted) const;
  Outcome<void> set_cpu(const TaskLimits& limits) const;
  Outcome<void> set_memory(uint64_t mib) const;

  const CgroupTree* tree_ = nullptr;
  uint32_t uid_ = 0;
  wire::TaskKey key_{};
  std::string name_;  // u2001/j5/t0.1
  FileDescriptor unified_;
  FileDescriptor events_;
  FileDescriptor v1_memory_;
  FileDescriptor v1_cpu_;
  FileDescriptor v1_pids_;
};

}  // namespace tranche::isolation
