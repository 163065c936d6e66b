// Who is whose child, from /proc: what holds a task together where there is no cgroup for it.
//
// By proc(5): /proc/PID/stat has parent, session and start time of every process, whoever's it is;
// /proc/PID/environ has the environment that a process was started with, for its own user.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tranche::isolation {

struct TreeProcess {
  int parent = 0;
  uint64_t start_ticks = 0;
  char state = '?';
};

// All processes at about one moment; zombies too.
class ProcessTree {
 public:
  static ProcessTree read();
  // One process now.
  static std::optional<TreeProcess> look(int pid);

  const std::unordered_map<int, TreeProcess>& all() const { return processes_; }
  uint64_t start_ticks(int pid) const {
    const auto found = processes_.find(pid);
    return found == processes_.end() ? 0 : found->second.start_ticks;
  }
  // The nearest of `pid` and its ancestors that `is_wanted(pid)`; 0: none.
  template <class IsWanted>
  int nearest(int pid, IsWanted is_wanted) const {
    // No chain is longer than there are processes; a snapshot that is not of one moment may hold a circle.
    for (size_t steps = 0; pid > 0 && steps <= processes_.size(); ++steps) {
      if (is_wanted(pid)) return pid;
      const auto found = processes_.find(pid);
      if (found == processes_.end()) return 0;
      pid = found->second.parent;
    }
    return 0;
  }

 private:
  std::unordered_map<int, TreeProcess> processes_;
};

// What variable `name` had when the process was started; "" if it had none, or is another user's.
std::string started_with(int pid, std::string_view name);

// Whether process `pid` has a handler for `signal`.
bool catches_signal(int pid, int signal);

}  // namespace tranche::isolation
