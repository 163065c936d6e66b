#include "launcher/shepherd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/failpoint.h"
#include "launcher/driver_limits.h"
#include "launcher/record_file.h"

namespace tranche::launcher {

using isolation::FileDescriptor;
using wire::ExitCause;
using wire::LauncherKind;
using wire::TaskState;

Shepherd::Shepherd(const LauncherHost& host, TaskPlan plan, FileDescriptor launcher_socket)
    : host_(host),
      plan_(std::move(plan)),
      link_(loop_, host.run_folder.get(), record_, std::move(launcher_socket),
            [this](Packet& packet) { on_packet(packet); }),
      timer_(loop_, [this] { on_timer(); }),
      client_(loop_, {.signal = [this](int signal) { signal_client_group(signal); },
                      .lost =
                          [this] {
                            if (!client_.has_terminal())
                              lost_client_at_ = boot_time_ns() + wire::kLostClientGraceNs;
                            arm_timer();
                          },
                      .detached = [] {},
                      .finished = [this] { client_done_ = true; }}),
      arbiter_(loop_, host.options.run_folder) {
  const wire::StartRequest& request = plan_.request;
  record_.key = request.key;
  record_.uid = request.uid;
  record_.state = static_cast<uint32_t>(TaskState::preparing);
  record_.flags = request.flags;
  record_.gpu_count = request.gpu_count;
  std::copy(std::begin(request.gpu_minors), std::end(request.gpu_minors), std::begin(record_.gpu_minors));
  record_.shepherd_pid = ::getpid();
  record_.shepherd_start_ticks = process_start_ticks(record_.shepherd_pid);
  record_.time_limit_ns = request.time_limit_ns;
  record_.grace_ns = request.grace_ns;
  time_limit_.set_limit(request.time_limit_ns);
}

int Shepherd::run() {
  watch_signals();
  prepare();
  while (!is_done()) loop_.run_once();
  return 0;
}

void Shepherd::watch_signals() {
  signals_ = make_signal_file({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGPIPE});
  loop_.watch(signals_.get(), EPOLLIN, [this](uint32_t) {
    // A shepherd ends with its task; being asked to end is not obeyed.
    drain_signal_file(signals_.get());
    reap();
    check_gone();
  });
}

bool Shepherd::write_record() {
  const auto written = launcher::write_record(host_.tasks_folder.get(), record_);
  if (written) return true;
  ::dprintf(STDERR_FILENO, "tranche-shepherd: record %s: %s\n", record_name(record_.key).c_str(),
            written.error().text.c_str());
  return false;
}

bool Shepherd::has_ended() const {
  return state() == TaskState::start_failed || state() == TaskState::exited;
}

bool Shepherd::is_done() const {
  return record_.tasks_gone != 0 && client_done_ && cgroup_removed_ && link_.is_drained();
}

void Shepherd::reap() {
  int status = 0;
  rusage usage{};
  int pid = 0;
  while ((pid = ::wait4(-1, &status, WNOHANG, &usage)) > 0) {
    record_.end.max_resident_kib =
        std::max(record_.end.max_resident_kib, static_cast<uint64_t>(usage.ru_maxrss));
    if (pid == record_.task_pid && !main_reaped_) {
      failpoint("task.waited_for");
      main_reaped_ = true;
      on_main_ended(status, static_cast<uint64_t>(usage.ru_maxrss));
    }
  }
}

void Shepherd::on_main_ended(int status, uint64_t max_resident_kib) {
  // What it last said on the channel comes first: why it did not execute, or that it did.
  while (birth_channel_ && on_birth_channel()) {
  }
  if (has_ended()) return;
  wire::TaskEnd& end = record_.end;
  end.ended_boottime_ns = boot_time_ns();
  end.max_resident_kib = std::max(end.max_resident_kib, max_resident_kib);
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const isolation::TaskUsage usage = processes_->usage();
  end.user_time_ns = usage.user_time_ns;
  end.system_time_ns = usage.system_time_ns;
  end.memory_peak_bytes = usage.memory_peak_bytes;
  end.oom_kills = static_cast<uint32_t>(usage.oom_kills);
  ExitCause cause = WIFSIGNALED(status) ? ExitCause::signalled : ExitCause::exited;
  if (end.oom_kills != 0 && end.exit_code != 0) cause = ExitCause::oom;
  if (ending_ != ExitCause::none) cause = ending_;
  end.cause = static_cast<uint32_t>(cause);
  record_.state = static_cast<uint32_t>(TaskState::exited);
  const bool gone = !processes_->is_populated();
  usage_is_final_ = gone;
  write_record();
  auto event = make_event<wire::ExitedEvent>(LauncherKind::exited);
  event.end = end;
  link_.send(event);
  if (!gone && ending_ == ExitCause::none) end_task(ExitCause::exited, record_.grace_ns);
}

void Shepherd::signal_main(int signal) {
  if (!main_reaped_) ::syscall(SYS_pidfd_send_signal, main_process_.get(), signal, nullptr, 0);
}

void Shepherd::signal_client_group(int signal) {
  if (state() != TaskState::running || main_reaped_) return;
  if (client_.terminal() >= 0 && ::ioctl(client_.terminal(), TIOCSIG, signal) == 0) return;
  // Not yet waited for, so the number is still that process's and its group's.
  ::kill(-record_.task_pid, signal);
}

void Shepherd::end_task(ExitCause cause, uint64_t grace_ns) {
  if (ending_ == ExitCause::none) ending_ = cause;
  if (!processes_ || record_.tasks_gone != 0) return;
  if (record_.frozen != 0) {
    (void)processes_->set_frozen(false);
    record_.frozen = 0;
    time_limit_.thaw(boot_time_ns());
  }
  const uint64_t now = boot_time_ns();
  const uint64_t kill_at = std::max<uint64_t>(1, grace_ns > UINT64_MAX - now ? UINT64_MAX : now + grace_ns);
  if (kill_at_ == 0 && grace_ns != 0) {
    processes_->signal_all(SIGTERM);
    processes_->signal_all(SIGCONT);
  }
  kill_at_ = kill_at_ == 0 ? kill_at : std::min(kill_at_, kill_at);
  if (grace_ns == 0) {
    (void)processes_->kill();
    kill_at_ = now + kKillAgainNs;
  }
  arm_timer();
}

uint64_t Shepherd::limit_signal_at() const {
  const uint64_t end = time_limit_.deadline();
  const bool wanted = plan_.request.limit_signal != 0 && !limit_signal_sent_ && end != 0;
  if (!wanted || state() != TaskState::running || ending_ != ExitCause::none) return 0;
  const uint64_t before = plan_.request.limit_signal_before_ns;
  return end > before ? end - before : 1;
}

// A shell without a trap would die of it while the program that it started saves its work, so it goes to
// those that have a handler, and to the main process if none has.
void Shepherd::send_limit_signal() {
  limit_signal_sent_ = true;
  const int signal = plan_.request.limit_signal;
  if (processes_->signal_those_that_catch(signal) == 0) signal_main(signal);
}

void Shepherd::on_timer() {
  const uint64_t now = boot_time_ns();
  const auto due = [now](uint64_t& when) {
    if (when == 0 || when > now) return false;
    when = 0;
    return true;
  };
  if (due(kill_at_) && processes_) {
    (void)processes_->kill();
    kill_at_ = now + kKillAgainNs;
  }
  if (const uint64_t at = limit_signal_at(); at != 0 && at <= now) send_limit_signal();
  const uint64_t limit = time_limit_.deadline();
  if (limit != 0 && limit <= now && state() == TaskState::running && ending_ == ExitCause::none) {
    end_task(ExitCause::time_limit, record_.grace_ns);
  }
  if (due(lost_client_at_) && state() == TaskState::running) end_task(ExitCause::killed, record_.grace_ns);
  if (due(linger_until_)) client_done_ = true;
  if (due(retry_at_)) reap();
  check_gone();
  arm_timer();
}

void Shepherd::arm_timer() {
  uint64_t next = 0;
  const auto consider = [&next](uint64_t when) {
    if (when != 0) next = next == 0 ? when : std::min(next, when);
  };
  consider(kill_at_);
  consider(lost_client_at_);
  consider(retry_at_);
  consider(linger_until_);
  consider(limit_signal_at());
  if (state() == TaskState::running && ending_ == ExitCause::none) consider(time_limit_.deadline());
  timer_.arm(next);
}

// The task is gone when its main process has been waited for and its cgroup is empty.
void Shepherd::check_gone() {
  if (record_.tasks_gone == 0) {
    if (!has_ended() || !main_reaped_) {
      if (processes_) (void)processes_->is_populated();  // re-arms the notification
      return;
    }
    if (processes_ && processes_->is_populated()) {
      if (processes_->events() < 0 && retry_at_ == 0) {
        retry_at_ = boot_time_ns() + kLookAgainNs;
        arm_timer();
      }
      return;
    }
    on_gone();
  }
  if (!cgroup_removed_) {
    cgroup_removed_ = processes_->remove().has_value();
    failpoint("cgroup.removed");
    if (!cgroup_removed_) {
      retry_at_ = boot_time_ns() + kRetryNs;
      arm_timer();
    }
  }
}

void Shepherd::clear_limits() {
  if (!has_driver_limits_ || !processes_) return;
  has_driver_limits_ = false;
  const auto cleared = clear_driver_limits(host_, record_.uid, record_.key);
  failpoint("driver_limits.cleared");
  if (cleared) return;
  ::dprintf(STDERR_FILENO, "tranche-shepherd: limits of task %s: %s\n", record_name(record_.key).c_str(),
            cleared.error().text.c_str());
}

void Shepherd::on_gone() {
  if (processes_ && processes_->events() >= 0) loop_.forget(processes_->events());
  kill_at_ = lost_client_at_ = 0;
  if (processes_ && state() == TaskState::exited && !usage_is_final_) {
    const isolation::TaskUsage usage = processes_->usage();
    record_.end.user_time_ns = usage.user_time_ns;
    record_.end.system_time_ns = usage.system_time_ns;
  }
  // Before anybody hears that the task is gone: whoever does may remove its cgroup.
  clear_limits();
  record_.tasks_gone = 1;
  write_record();
  arbiter_.forget();
  link_.send(make_event<wire::TaskEvent>(LauncherKind::tasks_gone));
  // A launcher that came meanwhile has read an older record: it must hear of the end. If none is there, the
  // next one reads this record, because it listens before it reads.
  link_.try_connect();
  if (client_done_) return;
  wire::ExitFrame exit{};
  const bool executed = state() == TaskState::exited;
  exit.exit_code = executed || record_.end.exit_code > 0 ? record_.end.exit_code : -1;
  exit.signal = record_.end.signal;
  exit.cause = record_.end.cause;
  linger_until_ = boot_time_ns() + kLingerNs;
  client_.finish(exit, executed ? "" : record_.text);
  arm_timer();
}

void run_shepherd(const LauncherHost& host, TaskPlan plan, FileDescriptor launcher_socket) {
  ::prctl(PR_SET_NAME, "tranche-shepherd");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  ::setsid();
  Shepherd shepherd(host, std::move(plan), std::move(launcher_socket));
  ::_exit(shepherd.run());
}

}  // namespace tranche::launcher
