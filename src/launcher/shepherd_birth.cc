// The shepherd's first part: everything between Start and the first instruction of the task.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/failpoint.h"
#include "launcher/record_file.h"
#include "launcher/shepherd.h"

namespace tranche::launcher {

using isolation::call_failed;
using isolation::Failure;
using isolation::FileDescriptor;
using isolation::Outcome;
using wire::LauncherKind;
using wire::StartStage;
using wire::TaskState;

namespace {

Outcome<void> make_pipe(FileDescriptor& read_end, FileDescriptor& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return call_failed("making a pipe");
  read_end = FileDescriptor(ends[0]);
  write_end = FileDescriptor(ends[1]);
  return {};
}

}  // namespace

Outcome<TaskFiles> Shepherd::make_terminal() {
  FileDescriptor master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master || ::unlockpt(master.get()) != 0) return call_failed("making a pseudo-terminal");
  FileDescriptor slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave) return call_failed("opening the pseudo-terminal");
  if (::fchown(slave.get(), plan_.request.uid, static_cast<gid_t>(-1)) != 0 ||
      ::fchmod(slave.get(), 0600) != 0) {
    return call_failed("giving the pseudo-terminal to the user");
  }
  winsize size{};
  size.ws_row = plan_.request.terminal_rows != 0 ? plan_.request.terminal_rows : 24;
  size.ws_col = plan_.request.terminal_columns != 0 ? plan_.request.terminal_columns : 80;
  ::ioctl(master.get(), TIOCSWINSZ, &size);
  client_.set_task(std::move(master), {}, {}, true);
  TaskFiles files;
  files.terminal = slave.get();
  task_ends_[0] = std::move(slave);
  return files;
}

Outcome<TaskFiles> Shepherd::make_pipes() {
  FileDescriptor input;
  FileDescriptor output;
  FileDescriptor error;
  TRY(make_pipe(task_ends_[0], input));
  TRY(make_pipe(output, task_ends_[1]));
  TaskFiles files;
  files.input = task_ends_[0].get();
  files.output = files.error = task_ends_[1].get();
  if ((plan_.request.flags & wire::kStartMergeStderr) == 0) {
    TRY(make_pipe(error, task_ends_[2]));
    files.error = task_ends_[2].get();
  }
  client_.set_task(std::move(input), std::move(output), std::move(error), false);
  return files;
}

Outcome<TaskFiles> Shepherd::make_client_files() {
  if ((plan_.request.flags & wire::kStartInteractive) == 0) return TaskFiles{};
  client_done_ = false;
  client_.set_client(std::move(plan_.client));
  return (plan_.request.flags & wire::kStartTerminal) != 0 ? make_terminal() : make_pipes();
}

std::optional<Shepherd::StageFailure> Shepherd::build() {
  auto block = read_launch_block(plan_.launch_block.get());
  if (!block) return StageFailure{StartStage::request, block.error()};
  block_ = std::move(*block);
  plan_.launch_block.close();

  auto cgroup = isolation::TaskCgroup::create(host_.cgroups, plan_.request.uid, plan_.request.key);
  if (!cgroup) return StageFailure{StartStage::cgroup, cgroup.error()};
  cgroup_ = std::move(*cgroup);
  cgroup_removed_ = false;
  failpoint("cgroup.made");
  isolation::TaskLimits limits;
  limits.cpu_milli = plan_.request.cpu_milli;
  limits.cpu_limit_milli = plan_.request.cpu_limit_milli;
  limits.pids = plan_.request.pids_limit;
  limits.memory_mib = plan_.request.memory_mib;
  const auto limited = cgroup_->set_limits(limits, wire::kSetCpu | wire::kSetMemory | wire::kSetPids);
  if (!limited) return StageFailure{StartStage::cgroup, limited.error()};
  const auto filtered = isolation::attach_device_filter(cgroup_->unified(), plan_.nodes);
  if (!filtered) return StageFailure{StartStage::devices, filtered.error()};

  failpoint("device_filter.attached");
  const auto files = make_client_files();
  if (!files) return StageFailure{StartStage::files, files.error()};
  int channel[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0) {
    return StageFailure{StartStage::request, isolation::system_failure(errno, "making the birth channel")};
  }
  birth_channel_ = FileDescriptor(channel[0]);
  const FileDescriptor child_end(channel[1]);
  if (!host_.guard_folder.empty() && plan_.request.share_count != 0) {
    const auto made = arbiter_.make_files(plan_.request);
    if (!made) return StageFailure{StartStage::devices, made.error()};
  }
  auto born = give_birth(Birth{host_, plan_, block_, *cgroup_, *files, child_end.get(), arbiter_.socket()});
  for (FileDescriptor& end : task_ends_) end.close();
  failpoint("task.born");
  if (!born) return StageFailure{StartStage::cgroup, born.error()};
  main_process_ = std::move(born->process);
  main_reaped_ = false;
  record_.task_pid = born->pid;
  return std::nullopt;
}

void Shepherd::prepare() {
  write_record();
  if (const auto failure = build()) {
    fail_start(failure->stage, failure->failure);
    check_gone();
    return;
  }
  loop_.watch(birth_channel_.get(), EPOLLIN, [this](uint32_t) { on_birth_channel(); });
  loop_.watch(cgroup_->events(), EPOLLPRI, [this](uint32_t) { check_gone(); });
}

bool Shepherd::on_birth_channel() {
  BirthReport report{};
  const ssize_t count = ::recv(birth_channel_.get(), &report, sizeof report, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count == static_cast<ssize_t>(sizeof report) && report.stage == 0) {
    on_prepared();
    return true;
  }
  loop_.forget(birth_channel_.get());
  birth_channel_.close();
  if (count == static_cast<ssize_t>(sizeof report)) {
    report.text[sizeof report.text - 1] = '\0';
    fail_start(static_cast<StartStage>(report.stage), {report.error, report.text});
  } else if (go_given_) {
    on_started();
  } else if (ending_ != wire::ExitCause::none) {
    fail_start(StartStage::cancelled, {ECANCELED, "cancelled before it started"});
  } else {
    fail_start(StartStage::identity,
               {EIO, "the prepared process was lost before it could start (memory limit too low?)"});
  }
  check_gone();
  return true;
}

void Shepherd::on_prepared() {
  if (has_ended()) return;
  record_.task_start_ticks = process_start_ticks(record_.task_pid);
  record_.state = static_cast<uint32_t>(TaskState::prepared);
  write_record();
  arbiter_.start();
  link_.send(make_event<wire::TaskEvent>(LauncherKind::prepared));
}

void Shepherd::on_started() {
  auto event = make_event<wire::StartedEvent>(LauncherKind::started);
  event.task_pid = record_.task_pid;
  event.task_start_ticks = record_.task_start_ticks;
  event.started_boottime_ns = record_.end.started_boottime_ns;
  link_.send(event);
  if (!client_done_) client_.send_started();
  block_ = {};
  arm_timer();
}

void Shepherd::fail_start(StartStage stage, const Failure& failure) {
  if (has_ended()) return;
  record_.state = static_cast<uint32_t>(TaskState::start_failed);
  record_.stage = static_cast<uint32_t>(stage);
  record_.error = failure.error;
  record_.end.started_boottime_ns = 0;
  // As shells say it.
  if (stage == StartStage::execute) record_.end.exit_code = failure.error == ENOENT ? 127 : 126;
  set_text(record_.text, failure.text);
  write_record();
  auto event = make_event<wire::StartFailedEvent>(LauncherKind::start_failed);
  event.stage = record_.stage;
  event.error = record_.error;
  std::memcpy(event.text, record_.text, sizeof event.text);
  link_.send(event);
  if (cgroup_) (void)cgroup_->kill();
}

}  // namespace tranche::launcher
