#include "isolation/task_cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "isolation/cpu_weights.h"
#include "isolation/process_tree.h"

namespace tranche::isolation {
namespace {

constexpr int kMakeAttempts = 8;

// Who is in the cgroup: "process 4711 (python3), process 4712 (python3) and more".
std::string describe_members(int root, const std::string& name) {
  const auto text = read_text_at(root, (name + "/cgroup.procs").c_str());
  if (!text) return "processes that cannot be listed";
  constexpr size_t kNamed = 3;
  std::string members;
  size_t begin = 0;
  for (size_t count = 0; begin < text->size(); ++count) {
    if (count == kNamed) return members + " and more";
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string pid = text->substr(begin, end - begin);
    begin = end + 1;
    const auto command = read_text_at(AT_FDCWD, ("/proc/" + pid + "/comm").c_str());
    if (count != 0) members += ", ";
    members += "process " + pid;
    if (command) members += " (" + command->substr(0, command->find('\n')) + ")";
  }
  return members.empty() ? "cgroups below it" : members;
}

// A folder that nobody has used: counters, limits and filters of a leftover must not be the new task's.
Outcome<void> make_fresh(int root, const std::string& name) {
  for (int attempt = 0; attempt < kMakeAttempts; ++attempt) {
    if (::mkdirat(root, name.c_str(), 0755) == 0) return {};
    if (errno == ENOENT) return failed(ENOENT, "cgroup " + name + " has no parent");
    if (errno != EEXIST) return call_failed("making cgroup " + name);
    if (::unlinkat(root, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) continue;
    if (errno != EBUSY && errno != ENOTEMPTY) return call_failed("removing the left cgroup " + name);
    return failed(EEXIST, "cgroup " + name + " is left from before and holds " +
                              describe_members(root, name) + ": end them, then it starts");
  }
  return failed(EAGAIN, "making cgroup " + name + ": somebody keeps making it");
}

// Makes `name`'s levels under the unified root. A neighbour that ends may remove a parent between two steps.
Outcome<void> make_levels(const CgroupTree& tree, const std::string& name) {
  const std::string user = name.substr(0, name.find('/'));
  const std::string job = name.substr(0, name.rfind('/'));
  for (int attempt = 0; attempt < kMakeAttempts; ++attempt) {
    const auto made = make_fresh(tree.unified(), name);
    if (made || made.error().error != ENOENT) return made;
    for (const std::string& level : {user, job}) {
      if (::mkdirat(tree.unified(), level.c_str(), 0755) != 0 && errno != EEXIST && errno != ENOENT) {
        return call_failed("making cgroup " + level);
      }
      if (!tree.has_unified_controllers()) continue;
      const FileDescriptor folder(
          ::openat(tree.unified(), level.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (folder) TRY(enable_controllers(folder.get()));
    }
  }
  return failed(EAGAIN, "making cgroup " + name + ": its parents keep being removed");
}

Outcome<void> make_v1(int root, const std::string& name) {
  return root < 0 ? Outcome<void>() : make_fresh(root, name);
}

Outcome<FileDescriptor> open_folder(int root, const std::string& name) {
  if (root < 0) return FileDescriptor();
  return open_at(root, name.c_str(), O_RDONLY | O_DIRECTORY);
}

template <class Integer>
bool take_number(std::string_view& text, char prefix, Integer& value) {
  if (text.empty() || text.front() != prefix) return false;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// True if process `pid` is in the cgroup `suffix` ends the path of.
bool is_member(int pid, const std::string& suffix) {
  const auto text = read_text_at(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/cgroup").c_str());
  if (!text) return false;
  const size_t line = text->find("0::");
  if (line == std::string::npos) return false;
  const std::string_view path = std::string_view(*text).substr(line, text->find('\n', line) - line);
  return path.ends_with(suffix);
}

}  // namespace

std::string task_cgroup_name(uint32_t uid, const wire::TaskKey& key) {
  return "u" + std::to_string(uid) + "/j" + std::to_string(key.job) + "/t" + std::to_string(key.rank) + "." +
         std::to_string(key.attempt);
}

std::string task_cgroup_v1_name(uint32_t uid, const wire::TaskKey& key) {
  std::string name = task_cgroup_name(uid, key);
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

bool parse_task_cgroup(std::string_view path, std::string_view root, wire::TaskKey& key, uint32_t& uid) {
  if (!path.starts_with(root) || !path.substr(root.size()).starts_with("/")) return false;
  std::string_view rest = path.substr(root.size() + 1);
  if (!take_number(rest, 'u', uid) || !rest.starts_with("/j")) return false;
  rest.remove_prefix(1);
  if (!take_number(rest, 'j', key.job) || !rest.starts_with("/t")) return false;
  rest.remove_prefix(1);
  if (!take_number(rest, 't', key.rank) || !take_number(rest, '.', key.attempt)) return false;
  return rest.empty() || rest.front() == '/';
}

Outcome<TaskCgroup> TaskCgroup::open_folders(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key) {
  TaskCgroup cgroup;
  cgroup.tree_ = &tree;
  cgroup.uid_ = uid;
  cgroup.key_ = key;
  cgroup.name_ = task_cgroup_name(uid, key);
  const std::string v1_name = task_cgroup_v1_name(uid, key);
  TRY_ASSIGN(cgroup.unified_, open_folder(tree.unified(), cgroup.name_));
  TRY_ASSIGN(cgroup.events_, open_at(cgroup.unified(), "cgroup.events", O_RDONLY));
  TRY_ASSIGN(cgroup.v1_memory_, open_folder(tree.v1_memory(), v1_name));
  TRY_ASSIGN(cgroup.v1_cpu_, open_folder(tree.v1_cpu(), v1_name));
  TRY_ASSIGN(cgroup.v1_pids_, open_folder(tree.v1_pids(), v1_name));
  return cgroup;
}

Outcome<TaskCgroup> TaskCgroup::create(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key) {
  const std::string v1_name = task_cgroup_v1_name(uid, key);
  const auto make = [&]() -> Outcome<TaskCgroup> {
    TRY(make_levels(tree, task_cgroup_name(uid, key)));
    TRY(make_v1(tree.v1_memory(), v1_name));
    TRY(make_v1(tree.v1_cpu(), v1_name));
    TRY(make_v1(tree.v1_pids(), v1_name));
    return open_folders(tree, uid, key);
  };
  auto made = make();
  // What this made is empty and goes; a leftover with processes in it stays, as removing refuses it.
  if (!made) (void)remove(tree, uid, key);
  return made;
}

Outcome<TaskCgroup> TaskCgroup::open(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key) {
  return open_folders(tree, uid, key);
}

Outcome<void> TaskCgroup::set_cpu(const TaskLimits& limits) const {
  constexpr uint64_t kPeriodUs = 100'000;
  constexpr uint64_t kLeastQuotaUs = 1'000;
  const uint64_t quota = std::max(kLeastQuotaUs, limits.cpu_limit_milli * kPeriodUs / 1000);
  if (v1_cpu_) {
    const uint64_t shares = std::max<uint64_t>(2, uint64_t{limits.cpu_milli} * 1024 / 1000);
    TRY(write_text_at(v1_cpu_.get(), "cpu.shares", std::to_string(shares)));
    return write_text_at(v1_cpu_.get(), "cpu.cfs_quota_us",
                         limits.cpu_limit_milli == 0 ? "-1" : std::to_string(quota));
  }
  if (!tree_->has_unified_controllers()) return {};
  TRY(write_text_at(unified(), "cpu.weight", std::to_string(cpu_weight(limits.cpu_milli))));
  weigh_levels(*tree_, uid_, key_.job);
  return write_text_at(
      unified(), "cpu.max",
      (limits.cpu_limit_milli == 0 ? "max" : std::to_string(quota)) + " " + std::to_string(kPeriodUs));
}

Outcome<void> TaskCgroup::set_memory(uint64_t mib) const {
  const std::string bytes = mib == 0 ? "" : std::to_string(mib << 20);
  if (v1_memory_) {
    const std::string limit = mib == 0 ? "-1" : bytes;
    const int memory = v1_memory_.get();
    // The limit with swap (absent without swap accounting) may never be below the limit: order by direction.
    const bool has_swap = ::faccessat(memory, "memory.memsw.limit_in_bytes", W_OK, 0) == 0;
    if (write_text_at(memory, "memory.limit_in_bytes", limit)) {
      return has_swap ? write_text_at(memory, "memory.memsw.limit_in_bytes", limit) : Outcome<void>();
    }
    if (has_swap) TRY(write_text_at(memory, "memory.memsw.limit_in_bytes", limit));
    return write_text_at(memory, "memory.limit_in_bytes", limit);
  }
  if (!tree_->has_unified_controllers()) return {};
  // Absent without swap; then there is nothing to forbid.
  (void)write_text_at(unified(), "memory.swap.max", mib == 0 ? "max" : "0");
  return write_text_at(unified(), "memory.max", mib == 0 ? "max" : bytes);
}

Outcome<void> TaskCgroup::set_limits(const TaskLimits& limits, uint32_t which) const {
  if ((which & wire::kSetCpu) != 0) TRY(set_cpu(limits));
  if ((which & wire::kSetMemory) != 0) TRY(set_memory(limits.memory_mib));
  if ((which & wire::kSetPids) == 0) return {};
  const std::string pids = limits.pids == 0 ? "max" : std::to_string(limits.pids);
  if (v1_pids_) return write_text_at(v1_pids_.get(), "pids.max", pids);
  if (tree_->has_unified_controllers()) return write_text_at(unified(), "pids.max", pids);
  return {};
}

Outcome<void> TaskCgroup::join() const {
  for (const FileDescriptor* folder : {&v1_memory_, &v1_cpu_, &v1_pids_}) {
    if (*folder) TRY(write_text_at(folder->get(), "tasks", "0"));
  }
  return {};
}

Outcome<void> TaskCgroup::set_frozen(bool frozen) const {
  return write_text_at(unified(), "cgroup.freeze", frozen ? "1" : "0");
}

Outcome<void> TaskCgroup::kill() const {
  const auto killed = write_text_at(unified(), "cgroup.kill", "1");
  if (killed) return {};
  // Kernels before 5.14 have no cgroup.kill: hold everyone still, so that none can fork away, then kill.
  (void)set_frozen(true);
  signal_all(SIGKILL);
  return set_frozen(false);
}

void TaskCgroup::signal_all(int signal) const {
  signal_members(signal, [](int) { return true; });
}

size_t TaskCgroup::signal_those_that_catch(int signal) const {
  return signal_members(signal, [signal](int pid) { return catches_signal(pid, signal); });
}

template <class Wanted>
size_t TaskCgroup::signal_members(int signal, Wanted wanted) const {
  const auto text = read_text_at(unified(), "cgroup.procs");
  if (!text) return 0;
  size_t count = 0;
  size_t begin = 0;
  while (begin < text->size()) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    int pid = 0;
    std::from_chars(text->data() + begin, text->data() + end, pid);
    begin = end + 1;
    if (pid <= 0) continue;
    // The number may have passed to a stranger since it was read; the descriptor cannot.
    const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (process && wanted(pid) && is_member(pid, tree_->path() + "/" + name_)) {
      ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
      ++count;
    }
  }
  return count;
}

bool TaskCgroup::is_populated() const {
  char buffer[128];
  const ssize_t count = ::pread(events_.get(), buffer, sizeof buffer, 0);
  if (count < 0) return errno != ENODEV;  // ENODEV: the folder is gone, so nobody is in it
  return value_of_key(std::string_view(buffer, static_cast<size_t>(count)), "populated") != 0;
}

TaskUsage TaskCgroup::usage() const {
  TaskUsage usage;
  if (const auto text = read_text_at(unified(), "cpu.stat")) {
    usage.user_time_ns = value_of_key(*text, "user_usec") * 1000;
    usage.system_time_ns = value_of_key(*text, "system_usec") * 1000;
  }
  const bool v1 = static_cast<bool>(v1_memory_);
  const int memory = v1 ? v1_memory_.get() : unified();
  if (const auto text = read_text_at(memory, v1 ? "memory.max_usage_in_bytes" : "memory.peak")) {
    std::from_chars(text->data(), text->data() + text->size(), usage.memory_peak_bytes);
  }
  if (const auto text = read_text_at(memory, v1 ? "memory.oom_control" : "memory.events")) {
    usage.oom_kills = value_of_key(*text, "oom_kill");
  }
  return usage;
}

Outcome<void> TaskCgroup::remove(const CgroupTree& tree, uint32_t uid, const wire::TaskKey& key) {
  Outcome<void> removed;
  const auto remove_one = [&removed](int root, const std::string& name) {
    if (root < 0 || ::unlinkat(root, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return;
    const int error = errno;
    if (!removed) return;  // the first reason is told
    removed = failed(error, "removing cgroup " + name + ", which holds " + describe_members(root, name));
  };
  const std::string name = task_cgroup_name(uid, key);
  const std::string v1_name = task_cgroup_v1_name(uid, key);
  remove_one(tree.unified(), name);
  for (const int root : {tree.v1_memory(), tree.v1_cpu(), tree.v1_pids()}) remove_one(root, v1_name);
  if (!removed) return removed;
  ::unlinkat(tree.unified(), name.substr(0, name.rfind('/')).c_str(), AT_REMOVEDIR);
  ::unlinkat(tree.unified(), name.substr(0, name.find('/')).c_str(), AT_REMOVEDIR);
  weigh_levels(tree, uid, key.job);
  return {};
}

}  // namespace tranche::isolation
