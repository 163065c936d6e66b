// The shepherd's first part: everything between Start and the first instruction of the task.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/failpoint.h"
#include "launcher/courtesy_guard.h"
#include "launcher/driver_limits.h"
#include "launcher/record_file.h"
#include "launcher/shepherd.h"
#include "wire/guard.h"

namespace tranche::launcher {

using isolation::call_failed;
using isolation::Failure;
using isolation::FileDescriptor;
using isolation::Outcome;
using wire::LauncherKind;
using wire::StartStage;
using wire::TaskState;

Outcome<TaskFiles> Shepherd::make_client_files() {
  if ((plan_.request.flags & wire::kStartInteractive) == 0) return TaskFiles{};
  client_done_ = false;
  client_.set_client(std::move(plan_.client));
  TRY_ASSIGN(task_ends_, make_task_files(plan_.request, client_));
  return task_ends_.files();
}

std::optional<Shepherd::StageFailure> Shepherd::build() {
  auto block = read_launch_block(plan_.launch_block.get());
  if (!block) return StageFailure{StartStage::request, block.error()};
  block_ = std::move(*block);
  plan_.launch_block.close();

  auto processes = create_processes(host_, plan_.request.uid, plan_.request.key);
  if (!processes) return StageFailure{StartStage::cgroup, processes.error()};
  processes_ = std::move(*processes);
  cgroup_removed_ = false;
  failpoint("cgroup.made");
  isolation::TaskLimits limits;
  limits.cpu_milli = plan_.request.cpu_milli;
  limits.cpu_limit_milli = plan_.request.cpu_limit_milli;
  limits.pids = plan_.request.pids_limit;
  limits.memory_mib = plan_.request.memory_mib;
  // A new cgroup has no memory limit: there is nothing to write for a task without one.
  const uint32_t memory = limits.memory_mib == 0 ? 0 : wire::kSetMemory;
  const auto limited = processes_->set_limits(limits, memory | wire::kSetCpu | wire::kSetPids);
  if (!limited) return StageFailure{StartStage::cgroup, limited.error()};
  if (plan_.device_filter >= 0) {
    const auto filtered = isolation::attach_device_filter(processes_->birth_cgroup(), plan_.device_filter);
    if (!filtered) return StageFailure{StartStage::devices, filtered.error()};
  }

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
    has_driver_limits_ = true;
    const auto held = set_driver_limits(host_, plan_.request);
    if (!held) return StageFailure{StartStage::devices, held.error()};
    failpoint("driver_limits.set");
    const auto made = arbiter_.make_files(plan_.request, *held);
    if (!made) return StageFailure{StartStage::devices, made.error()};
    if (host_.options.personal) {
      const auto guarded = make_courtesy_guard(host_, plan_.request.key, arbiter_.socket());
      if (!guarded) return StageFailure{StartStage::devices, guarded.error()};
    }
  }
  auto born =
      give_birth(Birth{host_, plan_, block_, *processes_, *files, child_end.get(), arbiter_.socket()});
  task_ends_ = {};
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
  if (processes_->events() >= 0)
    loop_.watch(processes_->events(), EPOLLPRI, [this](uint32_t) { check_gone(); });
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
  // By the eyes of the task's process, which executes nothing of its user's yet.
  const std::string socket = host_.options.personal
                                 ? courtesy_socket(host_, plan_.request.key)
                                 : "/proc/" + std::to_string(record_.task_pid) + "/root" TRANCHE_GUARD_SOCKET;
  const auto limits = arbiter_.write_limits(socket + TRANCHE_GUARD_LIMITS_SUFFIX);
  if (!limits) return fail_start(StartStage::devices, limits.error());
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
  if (processes_) (void)processes_->kill();
}

}  // namespace tranche::launcher
