#include "launcher/adopted_task.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/record_file.h"

namespace tranche::launcher {

using isolation::FileDescriptor;
using wire::ExitCause;
using wire::LauncherKind;
using wire::TaskState;

namespace {
constexpr uint64_t kKillAgain = 1'000'000'000;
constexpr uint64_t kLookAgain = 100'000'000;
}  // namespace

AdoptedTask::AdoptedTask(EventLoop& loop, const LauncherHost& host, const wire::TaskRecord& record,
                         OnChange on_change)
    : loop_(loop),
      host_(host),
      record_(record),
      on_change_(std::move(on_change)),
      timer_(loop, [this] { on_timer(); }),
      processes_(open_processes(host, record).value_or(nullptr)) {}

AdoptedTask::~AdoptedTask() {
  if (main_process_) loop_.forget(main_process_.get());
  if (processes_ && processes_->events() >= 0) loop_.forget(processes_->events());
}

void AdoptedTask::begin() {
  if (processes_ && processes_->events() >= 0)
    loop_.watch(processes_->events(), EPOLLPRI, [this](uint32_t) { check_gone(); });
  if (state() == TaskState::running) {
    time_limit_.set_limit(record_.time_limit_ns);
    time_limit_.start(record_.end.started_boottime_ns);
    if (record_.frozen != 0) time_limit_.freeze(boot_time_ns());
    open_main_process();
  } else if (state() == TaskState::exited) {
    end_task(ExitCause::exited, record_.grace_ns);
  } else if (processes_) {
    (void)processes_->kill();
    kill_at_ = boot_time_ns() + kKillAgain;
  }
  check_gone();
  arm_timer();
}

void AdoptedTask::open_main_process() {
  main_process_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, record_.task_pid, 0)));
  if (!main_process_ || process_start_ticks(record_.task_pid) != record_.task_start_ticks) {
    main_process_.close();
    return on_main_gone(false, 0);
  }
  loop_.watch(main_process_.get(), EPOLLIN, [this](uint32_t) {
    int status = 0;
    const bool known = ::waitpid(record_.task_pid, &status, WNOHANG) == record_.task_pid;
    on_main_gone(known, status);
  });
}

void AdoptedTask::on_main_reaped(int status) {
  if (state() == TaskState::running) on_main_gone(true, status);
}

void AdoptedTask::on_main_gone(bool known, int status) {
  if (main_process_) loop_.forget(main_process_.get());
  main_process_.close();
  // The record says `running`, as it must before the word is given, and the word was never given: it cannot
  // be told any more from here whether the daemon has taken it for started, so its end is not known.
  if (known && WIFSIGNALED(status) && WTERMSIG(status) == kNeverExecutedSignal) known = false;
  wire::TaskEnd& end = record_.end;
  end.ended_boottime_ns = boot_time_ns();
  end.exit_code = known && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  end.signal = known && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  ExitCause cause = ExitCause::unknown;
  if (known) cause = WIFSIGNALED(status) ? ExitCause::signalled : ExitCause::exited;
  if (processes_) {
    const isolation::TaskUsage usage = processes_->usage();
    end.user_time_ns = usage.user_time_ns;
    end.system_time_ns = usage.system_time_ns;
    end.memory_peak_bytes = usage.memory_peak_bytes;
    end.oom_kills = static_cast<uint32_t>(usage.oom_kills);
    if (known && end.oom_kills != 0 && end.exit_code != 0) cause = ExitCause::oom;
  }
  if (ending_ != ExitCause::none) cause = ending_;
  end.cause = static_cast<uint32_t>(cause);
  change(TaskState::exited);
  if (ending_ == ExitCause::none) end_task(ExitCause::exited, record_.grace_ns);
  check_gone();
}

void AdoptedTask::change(TaskState state) {
  record_.state = static_cast<uint32_t>(state);
  (void)write_record(host_.tasks_folder.get(), record_);
  on_change_(record_);
}

void AdoptedTask::end_task(ExitCause cause, uint64_t grace_ns) {
  if (ending_ == ExitCause::none) ending_ = cause;
  if (!processes_) return;
  if (record_.frozen != 0) {
    (void)processes_->set_frozen(false);
    record_.frozen = 0;
  }
  const uint64_t now = boot_time_ns();
  if (grace_ns == 0) {
    (void)processes_->kill();
    kill_at_ = now + kKillAgain;
  } else {
    const uint64_t kill_at = grace_ns > UINT64_MAX - now ? UINT64_MAX : now + grace_ns;
    if (kill_at_ == 0) {
      processes_->signal_all(SIGTERM);
      processes_->signal_all(SIGCONT);
    }
    kill_at_ = kill_at_ == 0 ? kill_at : std::min(kill_at_, kill_at);
  }
  arm_timer();
}

void AdoptedTask::on_timer() {
  const uint64_t now = boot_time_ns();
  if (kill_at_ != 0 && kill_at_ <= now && processes_) {
    (void)processes_->kill();
    kill_at_ = now + kKillAgain;
  }
  const uint64_t limit = time_limit_.deadline();
  if (limit != 0 && limit <= now && state() == TaskState::running && ending_ == ExitCause::none) {
    end_task(ExitCause::time_limit, record_.grace_ns);
  }
  check_gone();
  arm_timer();
}

void AdoptedTask::arm_timer() {
  if (record_.tasks_gone != 0) return timer_.arm(0);
  const uint64_t limit =
      state() == TaskState::running && ending_ == ExitCause::none ? time_limit_.deadline() : 0;
  uint64_t next = 0;
  for (const uint64_t when : {kill_at_, look_at_, limit}) {
    if (when != 0) next = next == 0 ? when : std::min(next, when);
  }
  timer_.arm(next);
}

void AdoptedTask::check_gone() {
  const bool populated = processes_ && processes_->is_populated();
  look_at_ = 0;
  if (record_.tasks_gone != 0 || state() == TaskState::running) return;
  if (populated) {
    if (processes_->events() < 0) look_at_ = boot_time_ns() + kLookAgain;
    return arm_timer();
  }
  if (state() == TaskState::preparing || state() == TaskState::prepared) {
    record_.stage = static_cast<uint32_t>(wire::StartStage::supervisor);
    record_.error = EOWNERDEAD;
    set_text(record_.text, "the task's supervisor was lost before the task could start");
    change(TaskState::start_failed);
  }
  if (processes_ && processes_->events() >= 0) loop_.forget(processes_->events());
  record_.tasks_gone = 1;
  change(state());
  arm_timer();
}

wire::Reply AdoptedTask::handle(const Packet& packet) {
  auto reply = make_message<wire::Reply>(LauncherKind::reply, packet.header.id);
  std::string text;
  reply.status = apply(packet, text);
  set_text(reply.text, text);
  return reply;
}

int AdoptedTask::apply(const Packet& packet, std::string& text) {
  if (state() != TaskState::running || !processes_) {
    text = "the task is not running";
    return ESRCH;
  }
  const LauncherKind kind = packet.kind();
  wire::SignalRequest signal{};
  wire::KillRequest kill{};
  wire::SetLimitsRequest limits{};
  isolation::Outcome<void> done;
  if (kind == LauncherKind::signal && packet.decode(signal) && signal.signal >= 1 && signal.signal <= 64) {
    if (signal.scope == static_cast<uint32_t>(wire::SignalScope::whole_task)) {
      processes_->signal_all(signal.signal);
    } else if (signal.scope == static_cast<uint32_t>(wire::SignalScope::who_catches)) {
      (void)processes_->signal_those_that_catch(signal.signal);
    } else {
      ::syscall(SYS_pidfd_send_signal, main_process_.get(), signal.signal, nullptr, 0);
    }
  } else if (kind == LauncherKind::kill && packet.decode(kill)) {
    end_task(ExitCause::killed, kill.grace_ns);
  } else if (kind == LauncherKind::freeze || kind == LauncherKind::thaw) {
    const bool frozen = kind == LauncherKind::freeze;
    done = processes_->set_frozen(frozen);
    record_.frozen = frozen ? 1 : 0;
    frozen ? time_limit_.freeze(boot_time_ns()) : time_limit_.thaw(boot_time_ns());
    (void)write_record(host_.tasks_folder.get(), record_);
  } else if (kind == LauncherKind::set_limits && packet.decode(limits)) {
    const isolation::TaskLimits wanted{limits.cpu_milli, limits.cpu_limit_milli, limits.pids_limit,
                                       limits.memory_mib};
    done = processes_->set_limits(wanted, limits.which);
    if ((limits.which & wire::kSetTimeLimit) != 0) {
      record_.time_limit_ns = limits.time_limit_ns;
      time_limit_.set_limit(limits.time_limit_ns);
      (void)write_record(host_.tasks_folder.get(), record_);
    }
  } else {
    text = "the task's supervisor was lost: only Signal, Kill, Freeze, Thaw and SetLimits are possible";
    return EOWNERDEAD;
  }
  arm_timer();
  if (done) return 0;
  text = done.error().text;
  return done.error().error;
}

}  // namespace tranche::launcher
