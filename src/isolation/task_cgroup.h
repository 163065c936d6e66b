// The cgroup of one task: `<root>/u<uid>/j<job>/t<rank>.<attempt>` in the unified hierarchy, and
// `<root>/u<uid>.j<job>.t<rank>.<attempt>` in each v1 hierarchy that serves limits (one level, because every
// v1 memory cgroup is dear and v1 carries no meaning here beyond the limits).
//
// A process is born in it: clone3 with CLONE_INTO_CGROUP on descriptor unified(), then join() by the child
// itself while it has one thread. Moving a process afterwards costs 7.5 ms on an idle host.
#pragma once

#include <cstdint>
#include <string>

#include "isolation/cgroup_tree.h"
#include "isolation/task_processes.h"
#include "wire/launcher.h"

namespace tranche::isolation {

// "u2001/j5/t0.1": the folder in the unified hierarchy, and what identifies a process's task.
std::string task_cgroup_name(uint32_t uid, const wire::TaskKey& key);
// "u2001.j5.t0.1": the folder in each v1 hierarchy.
std::string task_cgroup_v1_name(uint32_t uid, const wire::TaskKey& key);
// The key in a path as /proc/PID/cgroup has it, if it lies under `root` ("/tranche") and is well formed.
bool parse_task_cgroup(std::string_view path, std::string_view root, wire::TaskKey& key, uint32_t& uid);

class TaskCgroup final : public TaskProcesses {
 public:
  // `tree` is borrowed and outlives the result. create: the caller has seen that no record names this
  // attempt, so what lies there under its name is a leftover: an empty one is replaced, with its filter and
  // counters; one with processes is EEXIST, and the text says who they are. A create that fails leaves
  // nothing it made.
  static Outcome<TaskCgroup> create(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key);
  static Outcome<TaskCgroup> open(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key);

  int unified() const { return unified_.get(); }
  int birth_cgroup() const override { return unified_.get(); }
  int events() const override { return events_.get(); }
  Outcome<void> set_limits(const TaskLimits& limits, uint32_t which) const override;
  Outcome<void> join() const override;  // the v1 hierarchies; in the unified one it was born
  Outcome<void> set_frozen(bool frozen) const override;
  Outcome<void> kill() const override;
  void signal_all(int signal) const override;
  size_t signal_those_that_catch(int signal) const override;
  bool is_populated() const override;  // re-arms events()
  TaskUsage usage() const override;

  // Removes the empty cgroup in all hierarchies and parents that have become empty. EBUSY: not empty yet;
  // then it is gone from the hierarchies where it could go.
  Outcome<void> remove() const override { return remove(*tree_, uid_, key_); }
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
