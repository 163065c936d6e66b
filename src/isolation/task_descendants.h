// The processes of one task without a cgroup: personal mode. They are those that descend from the task's
// shepherd, which is a subreaper, so that nobody leaves by forking twice or by a session of its own; and
// those that were started with the task's mark in their environment, which finds them when the shepherd was
// lost, and the commands of `tranche exec`.
//
// What this does not hold: memory, processors and the number of processes; and after the loss of the shepherd
// a process that has left both its parents and its environment.
#pragma once

#include <string>
#include <vector>

#include "isolation/process_tree.h"
#include "isolation/task_processes.h"

namespace tranche::isolation {

class TaskDescendants final : public TaskProcesses {
 public:
  struct Member {
    int pid = 0;
    uint64_t start_ticks = 0;
    bool operator==(const Member&) const = default;
  };

  // The calling process is the task's shepherd; all its children are the task's.
  static TaskDescendants of_shepherd(std::string mark);
  // Asked by another: the shepherd may live or be lost; `main` is the task's first process.
  static TaskDescendants of_others(std::string mark, Member shepherd, Member main);

  int birth_cgroup() const override { return -1; }
  int events() const override { return -1; }
  Outcome<void> set_limits(const TaskLimits&, uint32_t) const override { return {}; }
  Outcome<void> join() const override { return {}; }
  Outcome<void> set_frozen(bool frozen) const override;  // by SIGSTOP and SIGCONT
  Outcome<void> kill() const override;
  void signal_all(int signal) const override;
  size_t signal_those_that_catch(int signal) const override;
  bool is_populated() const override;
  // For the shepherd alone: of what it has waited for. The peak is that of the largest process.
  TaskUsage usage() const override;
  Outcome<void> remove() const override { return {}; }

 private:
  std::vector<Member> members() const;
  void signal_until_none_is_new(int first_signal, int signal) const;
  static bool send(const Member& member, int signal);

  std::string mark_;
  Member shepherd_;
  Member main_;
  bool is_shepherd_ = false;
};

}  // namespace tranche::isolation
