#include "launcher/birth.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "isolation/loop_filter.h"
#include "isolation/mount_view.h"
#include "isolation/process_state.h"
#include "isolation/user_file.h"
#include "launcher/adopted_task.h"
#include "launcher/courtesy_guard.h"
#include "launcher/packet.h"

namespace tranche::launcher {
namespace {

using isolation::call_failed;
using isolation::failed;
using isolation::Failure;
using isolation::FileDescriptor;
using isolation::Outcome;

bool has(const Birth& birth, uint32_t flag) { return (birth.plan.request.flags & flag) != 0; }

[[noreturn]] void give_up(const Birth& birth, wire::StartStage stage, const Failure& failure) {
  BirthReport report{};
  report.stage = static_cast<uint32_t>(stage);
  report.error = failure.error;
  set_text(report.text, failure.text);
  (void)!::send(birth.channel, &report, sizeof report, MSG_NOSIGNAL);
  ::_exit(127);
}

void must(const Birth& birth, wire::StartStage stage, Outcome<void> outcome) {
  if (!outcome) give_up(birth, stage, outcome.error());
}

// Those of a task that runs hold all that was built for it.
Outcome<void> join_namespaces(const Birth& birth) {
  if (::setns(birth.ipc_namespace, CLONE_NEWIPC) != 0)
    return call_failed("entering the task's IPC namespace");
  if (::setns(birth.mount_namespace, CLONE_NEWNS) != 0)
    return call_failed("entering the task's mount namespace");
  return {};
}

Outcome<void> enter_namespaces(const Birth& birth) {
  if (birth.host.options.personal) return {};
  if (birth.mount_namespace >= 0) return join_namespaces(birth);
  const std::string jobs = birth.host.options.run_folder + "/jobs";
  const std::string job = jobs + "/" + std::to_string(birth.plan.request.key.job);
  isolation::MountView view;
  view.driver_library_folder = birth.host.options.driver_library_folder;
  view.library_folder = birth.host.library_folder;
  view.hidden_folder = jobs;
  if (birth.arbiter_socket >= 0) view.guard_folder = birth.host.guard_folder;
  if (has(birth, wire::kStartJobShares)) {
    view.shared_memory_folder = job + "/shm";
    TRY_ASSIGN(const FileDescriptor ipc, isolation::open_at(AT_FDCWD, (job + "/ipc").c_str(), O_RDONLY));
    if (::setns(ipc.get(), CLONE_NEWIPC) != 0) return call_failed("entering the job's IPC namespace");
  }
  TRY(isolation::build_mount_view(view));
  return birth.arbiter_socket < 0 ? Outcome<void>() : isolation::name_guard_socket(birth.arbiter_socket);
}

Outcome<void> start_session(const Birth& birth) {
  if (::setsid() < 0) return call_failed("starting a session");
  if (birth.files.terminal < 0) return {};
  if (::ioctl(birth.files.terminal, TIOCSCTTY, 0) != 0) return call_failed("taking the terminal");
  return {};
}

Outcome<void> drop_rights(const Birth& birth) {
  TRY(isolation::restore_limits(birth.host.inherited));
  if (has(birth, wire::kStartNoNewPrivileges) && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return call_failed("setting no_new_privs");
  }
  // Where the user could open the nodes without us, nothing is gained by refusing it to the task.
  if (has(birth, wire::kStartEmulatedNodes) && !birth.host.options.personal)
    TRY(isolation::refuse_loop_ioctls());
  return isolation::become(birth.plan.identity, birth.plan.request.gid);
}

Outcome<void> enter_directory(const Birth& birth) {
  if (::chdir(birth.block.directory) == 0) return {};
  return call_failed(std::string("working directory ") + birth.block.directory);
}

Outcome<void> put(int file, int place) {
  if (::dup2(file, place) < 0) return call_failed("placing standard files");
  // dup2 onto itself keeps FD_CLOEXEC.
  if (file == place) ::fcntl(place, F_SETFD, 0);
  return {};
}

Outcome<void> open_named_files(const Birth& birth) {
  const uint32_t uid = birth.plan.identity.uid;
  const bool merge = has(birth, wire::kStartMergeStderr) || birth.block.stderr_path.empty();
  TRY_ASSIGN(const FileDescriptor input, isolation::open_input(birth.block.stdin_path, true));
  TRY_ASSIGN(const FileDescriptor output, isolation::open_log(birth.block.stdout_path, uid));
  FileDescriptor error;
  if (!merge) {
    TRY_ASSIGN(error, isolation::open_log(birth.block.stderr_path, uid));
  }
  TRY(put(input.get(), STDIN_FILENO));
  TRY(put(output.get(), STDOUT_FILENO));
  return put(merge ? output.get() : error.get(), STDERR_FILENO);
}

Outcome<void> place_files(const Birth& birth) {
  ::umask(birth.block.umask);
  if (birth.files.terminal >= 0) {
    for (const int place : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      TRY(put(birth.files.terminal, place));
    return {};
  }
  if (birth.files.input < 0) return open_named_files(birth);
  TRY(put(birth.files.input, STDIN_FILENO));
  TRY(put(birth.files.output, STDOUT_FILENO));
  return put(birth.files.error, STDERR_FILENO);
}

void wait_for_word(const Birth& birth) {
  const BirthReport ready{};
  if (::send(birth.channel, &ready, sizeof ready, MSG_NOSIGNAL) < 0) ::_exit(127);
  char word = 0;
  ssize_t count = 0;
  while ((count = ::recv(birth.channel, &word, sizeof word, 0)) < 0 && errno == EINTR) {
  }
  // A lost shepherd says nothing, and then nothing may ever execute.
  if (count == 1 && word == 'g') return;
  ::raise(kNeverExecutedSignal);
  ::_exit(127);
}

Failure execute_failure(const char* command, int error) {
  const std::string name = command;
  if (error == ENOENT && name.find('/') == std::string::npos) {
    return {error, "command " + name + " was not found in PATH"};
  }
  if (error == ENOENT) return {error, "command " + name + " (or its interpreter) does not exist"};
  if (error == EACCES) return {error, "command " + name + " is not executable by this user"};
  if (error == E2BIG)
    return {error, "command and environment are too large for the kernel; export less (--export)"};
  return isolation::system_failure(error, "executing " + name);
}

// In personal mode variables do what a mount does for root. First, as who looks for them reads only so much.
void add_variables(const Birth& birth, std::vector<std::string>& added, std::vector<char*>& variables) {
  constexpr std::string_view kPath = "LD_LIBRARY_PATH=";
  std::string old_path;
  std::erase_if(variables, [&](const char* variable) {
    if (variable == nullptr || !std::string_view(variable).starts_with(kPath)) return false;
    old_path = variable + kPath.size();
    return true;
  });
  added = courtesy_variables(birth.host, birth.plan.request.key, old_path);
  std::vector<char*> first;
  for (std::string& variable : added) first.push_back(variable.data());
  variables.insert(variables.begin(), first.begin(), first.end());
}

[[noreturn]] void live(const Birth& birth) {
  using wire::StartStage;
  must(birth, StartStage::cgroup, birth.processes.join());
  // Not even a copy of the shepherd's ends: its death must be seen by the launcher and by wait_for_word.
  int kept[] = {birth.channel,        birth.files.input,    birth.files.output,    birth.files.error,
                birth.files.terminal, birth.arbiter_socket, birth.mount_namespace, birth.ipc_namespace};
  isolation::close_all_but(kept, std::size(kept));
  must(birth, StartStage::namespaces, enter_namespaces(birth));
  must(birth, StartStage::identity, start_session(birth));
  isolation::unblock_signals();
  must(birth, StartStage::identity, drop_rights(birth));
  must(birth, StartStage::directory, enter_directory(birth));
  must(birth, StartStage::files, place_files(birth));
  // Everything is O_CLOEXEC from birth; this holds even for what a library may have opened without.
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  wait_for_word(birth);
  std::vector<std::string> added;
  std::vector<char*> variables = birth.block.variables;
  if (birth.host.options.personal) {
    add_variables(birth, added, variables);
  }
  environ = variables.data();
  const char* command = birth.block.arguments[0];
  ::execvp(command, birth.block.arguments.data());
  give_up(birth, StartStage::execute, execute_failure(command, errno));
}

}  // namespace

Outcome<BornProcess> give_birth(const Birth& birth) {
  int process = -1;
  clone_args arguments{};
  arguments.flags = CLONE_PIDFD;
  if (birth.processes.birth_cgroup() >= 0) arguments.flags |= CLONE_INTO_CGROUP;
  const bool joins = birth.mount_namespace >= 0 || birth.host.options.personal;
  if (!joins) arguments.flags |= CLONE_NEWNS;
  if (!joins && !has(birth, wire::kStartJobShares)) arguments.flags |= CLONE_NEWIPC;
  arguments.pidfd = reinterpret_cast<__u64>(&process);
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<__u64>(std::max(birth.processes.birth_cgroup(), 0));
  const long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) return call_failed("starting a process in the task's cgroup");
  if (pid == 0) live(birth);
  return BornProcess{static_cast<int>(pid), FileDescriptor(process)};
}

}  // namespace tranche::launcher
