#include "isolation/task_descendants.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "isolation/file.h"
#include "wire/launcher.h"

namespace tranche::isolation {
namespace {

// Of a fork bomb there may always be one more; who asks kills again after a second.
constexpr int kMostRounds = 32;

bool is_dead(char state) { return state == 'Z' || state == 'X'; }

}  // namespace

TaskDescendants TaskDescendants::of_shepherd(std::string mark) {
  const auto self = ProcessTree::look(::getpid());
  TaskDescendants task = of_others(std::move(mark), {::getpid(), self ? self->start_ticks : 0}, {});
  task.is_shepherd_ = true;
  return task;
}

TaskDescendants TaskDescendants::of_others(std::string mark, Member shepherd, Member main) {
  TaskDescendants task;
  task.mark_ = std::move(mark);
  task.shepherd_ = shepherd;
  task.main_ = main;
  return task;
}

std::vector<TaskDescendants::Member> TaskDescendants::members() const {
  const ProcessTree tree = ProcessTree::read();
  std::unordered_map<int, bool> marked;
  const auto is_marked = [&](int pid) {
    const auto [place, is_new] = marked.try_emplace(pid, false);
    if (is_new) place->second = started_with(pid, wire::kTaskMarkVariable) == mark_;
    return place->second;
  };
  const auto belongs = [&](int pid) {
    const Member candidate{pid, tree.start_ticks(pid)};
    return candidate == shepherd_ || candidate == main_ || is_marked(pid);
  };
  std::vector<Member> members;
  for (const auto& [pid, process] : tree.all()) {
    if (pid == shepherd_.pid || is_dead(process.state)) continue;
    if (tree.nearest(pid, belongs) != 0) members.push_back({pid, process.start_ticks});
  }
  return members;
}

// The number may have passed to a stranger since it was read; the descriptor cannot.
bool TaskDescendants::send(const Member& member, int signal) {
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, member.pid, 0)));
  if (!process) return false;
  const auto now = ProcessTree::look(member.pid);
  if (!now || now->start_ticks != member.start_ticks) return false;
  return ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

// `first_signal`, if not 0, to all before `signal` to any: those that stand still do not fork away.
void TaskDescendants::signal_until_none_is_new(int first_signal, int signal) const {
  std::vector<Member> done;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<Member> fresh = members();
    std::erase_if(fresh, [&](const Member& member) {
      return std::find(done.begin(), done.end(), member) != done.end();
    });
    if (fresh.empty()) return;
    for (const int now : {first_signal, signal}) {
      if (now == 0) continue;
      for (const Member& member : fresh) (void)send(member, now);
    }
    done.insert(done.end(), fresh.begin(), fresh.end());
  }
}

Outcome<void> TaskDescendants::set_frozen(bool frozen) const {
  signal_until_none_is_new(0, frozen ? SIGSTOP : SIGCONT);
  return {};
}

Outcome<void> TaskDescendants::kill() const {
  signal_until_none_is_new(SIGSTOP, SIGKILL);
  return {};
}

void TaskDescendants::signal_all(int signal) const {
  for (const Member& member : members()) (void)send(member, signal);
}

size_t TaskDescendants::signal_those_that_catch(int signal) const {
  size_t count = 0;
  for (const Member& member : members()) {
    if (catches_signal(member.pid, signal) && send(member, signal)) ++count;
  }
  return count;
}

bool TaskDescendants::is_populated() const {
  // A subreaper has a child as long as anybody descends from it: no search is needed while it has one.
  siginfo_t child{};
  if (is_shepherd_ && ::waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0) return true;
  return !members().empty();
}

TaskUsage TaskDescendants::usage() const {
  TaskUsage usage;
  rusage waited_for{};
  if (!is_shepherd_ || ::getrusage(RUSAGE_CHILDREN, &waited_for) != 0) return usage;
  const auto nanoseconds = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  usage.user_time_ns = nanoseconds(waited_for.ru_utime);
  usage.system_time_ns = nanoseconds(waited_for.ru_stime);
  usage.memory_peak_bytes = static_cast<uint64_t>(waited_for.ru_maxrss) << 10;
  return usage;
}

}  // namespace tranche::isolation
