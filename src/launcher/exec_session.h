// A command inside a task that runs: in its cgroup, so under its device filter and limits and ended with it,
// in its namespaces, as its user, with a client of its own (wire/attach.h). One process a session, forked by
// the launcher and needed by nobody: neither the task's shepherd nor its record know of it.
#pragma once

#include "launcher/launcher_host.h"

namespace tranche::launcher {

// One accepted Exec. `plan.request` is the task's Start as far as it still matters: key, user, flags, size of
// the terminal.
struct ExecPlan {
  TaskPlan plan;
  wire::TaskRecord record{};
  // Of the task's main process:
  isolation::FileDescriptor process;  // pidfd
  isolation::FileDescriptor mount_namespace;
  isolation::FileDescriptor ipc_namespace;
};

// Opens the task's main process and, if wanted, its namespaces, provided that it is still the one recorded.
isolation::Outcome<void> open_main_process(const wire::TaskRecord& record, bool namespaces, ExecPlan& exec);

// Called in the forked child. Never returns to the launcher's code.
[[noreturn]] void run_exec_session(const LauncherHost& host, ExecPlan exec);

}  // namespace tranche::launcher
