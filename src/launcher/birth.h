// The task's first process, from clone to exec. It is born in its cgroup with a mount namespace of its own,
// makes itself the user's, opens the user's files as the user, reports, waits for the word and executes.
#pragma once

#include "isolation/task_processes.h"
#include "launcher/launch_block.h"
#include "launcher/launcher_host.h"

namespace tranche::launcher {

// What the child tells the shepherd on its channel (SEQPACKET): once when it is ready (stage none), or once
// why it will never execute. End of file after the word means that it executes.
struct BirthReport {
  uint32_t stage;  // wire::StartStage
  int32_t error;
  char text[wire::kMaxText];
};

// Standard files of an interactive task; -1: opened from the launch block's paths.
struct TaskFiles {
  int input = -1;
  int output = -1;
  int error = -1;
  int terminal = -1;  // slave of the pseudo-terminal, instead of the three
};

struct Birth {
  const LauncherHost& host;
  const TaskPlan& plan;
  const LaunchBlock& block;
  const isolation::TaskProcesses& processes;
  TaskFiles files;
  int channel = -1;         // the child's end
  int arbiter_socket = -1;  // unbound: gets its name in the task's own view; -1: no guard
  // Of a task that runs, to be entered instead of new ones; -1: new ones.
  int mount_namespace = -1;
  int ipc_namespace = -1;
};

struct BornProcess {
  int pid = 0;
  isolation::FileDescriptor process;  // pidfd
};

// Returns in the shepherd only.
isolation::Outcome<BornProcess> give_birth(const Birth& birth);

}  // namespace tranche::launcher
