#include "launcher/personal_task.h"

#include <poll.h>

#include <cerrno>
#include <cstdio>

#include "isolation/task_cgroup.h"
#include "isolation/task_descendants.h"
#include "launcher/courtesy_guard.h"
#include "launcher/packet.h"
#include "launcher/record_file.h"
#include "wire/launcher.h"

namespace tranche::launcher {

using isolation::failed;
using isolation::Outcome;
using isolation::TaskCgroup;
using isolation::TaskDescendants;

std::string task_mark(const LauncherHost& host, const wire::TaskKey& key) {
  return host.options.run_folder + "/" + record_name(key);
}

Outcome<TaskProcessesPointer> create_processes(const LauncherHost& host, uint32_t uid,
                                               const wire::TaskKey& key) {
  if (host.options.personal) {
    return std::make_unique<TaskDescendants>(TaskDescendants::of_shepherd(task_mark(host, key)));
  }
  TRY_ASSIGN(TaskCgroup cgroup, TaskCgroup::create(host.cgroups, uid, key));
  return std::make_unique<TaskCgroup>(std::move(cgroup));
}

Outcome<TaskProcessesPointer> open_processes(const LauncherHost& host, const wire::TaskRecord& record) {
  if (host.options.personal) {
    return std::make_unique<TaskDescendants>(TaskDescendants::of_others(
        task_mark(host, record.key), {record.shepherd_pid, record.shepherd_start_ticks},
        {record.task_pid, record.task_start_ticks}));
  }
  TRY_ASSIGN(TaskCgroup cgroup, TaskCgroup::open(host.cgroups, record.uid, record.key));
  return std::make_unique<TaskCgroup>(std::move(cgroup));
}

Outcome<void> remove_task_traces(const LauncherHost& host, uint32_t uid, const wire::TaskKey& key) {
  if (!host.options.personal) return TaskCgroup::remove(host.cgroups, uid, key);
  remove_courtesy_guard(host, key);
  return {};
}

std::optional<wire::TaskKey> find_task_of(const LauncherHost& host, int pid) {
  const std::vector<wire::TaskRecord> records = read_records(host.tasks_folder.get());
  const isolation::ProcessTree tree = isolation::ProcessTree::read();
  std::optional<wire::TaskKey> key;
  (void)tree.nearest(pid, [&](int candidate) {
    const uint64_t ticks = tree.start_ticks(candidate);
    const std::string mark = isolation::started_with(candidate, wire::kTaskMarkVariable);
    for (const wire::TaskRecord& record : records) {
      const bool is_its = (candidate == record.shepherd_pid && ticks == record.shepherd_start_ticks) ||
                          (candidate == record.task_pid && ticks == record.task_start_ticks) ||
                          (!mark.empty() && mark == task_mark(host, record.key));
      if (is_its) key = record.key;
    }
    return key.has_value();
  });
  return key;
}

Outcome<void> end_all_tasks(const LauncherHost& host) {
  constexpr int kPauseMs = 20;
  constexpr int kPauses = 1000;  // 20 s
  constexpr int kAgainAfter = 50;
  size_t left = 0;
  for (int pause = 0; pause < kPauses; ++pause) {
    left = 0;
    for (const wire::TaskRecord& record : read_records(host.tasks_folder.get())) {
      if (record.tasks_gone != 0) continue;
      TRY_ASSIGN(const TaskProcessesPointer processes, open_processes(host, record));
      const bool populated = processes->is_populated();
      if (populated && pause % kAgainAfter == 0) (void)processes->kill();
      // A shepherd that lives writes down how its task has ended.
      if (populated || process_start_ticks(record.shepherd_pid) == record.shepherd_start_ticks) ++left;
    }
    if (left == 0) return {};
    (void)::poll(nullptr, 0, kPauseMs);
  }
  return failed(EBUSY, std::to_string(left) + " tasks do not end");
}

}  // namespace tranche::launcher
