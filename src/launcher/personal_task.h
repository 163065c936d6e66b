// What a task's processes are held together by: its cgroup, or in personal mode descent and a mark.
#pragma once

#include <memory>
#include <optional>

#include "isolation/task_processes.h"
#include "launcher/launcher_host.h"

namespace tranche::launcher {

using TaskProcessesPointer = std::unique_ptr<isolation::TaskProcesses>;

// For a new task, by its shepherd.
isolation::Outcome<TaskProcessesPointer> create_processes(const LauncherHost& host, uint32_t uid,
                                                          const wire::TaskKey& key);
// For one that is recorded, by anybody.
isolation::Outcome<TaskProcessesPointer> open_processes(const LauncherHost& host,
                                                        const wire::TaskRecord& record);
// What was made for the task goes; EBUSY while a process of it is left.
isolation::Outcome<void> remove_task_traces(const LauncherHost& host, uint32_t uid, const wire::TaskKey& key);

// What the environment of all of a task's processes has in personal mode: "<run
// folder>/<job>.<rank>.<attempt>".
std::string task_mark(const LauncherHost& host, const wire::TaskKey& key);

// Which task a process is of in personal mode, by its own mark or an ancestor that is a shepherd or a task's
// first process.
std::optional<wire::TaskKey> find_task_of(const LauncherHost& host, int pid);

// Ends every process of every recorded task and waits until their shepherds have seen it: what `tranche-up
// stop
// --jobs` asks for in personal mode. An error names how many are left.
isolation::Outcome<void> end_all_tasks(const LauncherHost& host);

}  // namespace tranche::launcher
