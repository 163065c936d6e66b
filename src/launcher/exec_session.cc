#include "launcher/exec_session.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/birth.h"
#include "launcher/client_stream.h"
#include "launcher/event_loop.h"
#include "launcher/personal_task.h"
#include "launcher/task_files.h"

namespace tranche::launcher {

using isolation::call_failed;
using isolation::failed;
using isolation::Failure;
using isolation::FileDescriptor;
using isolation::Outcome;

namespace {

// From the hang-up of a client that is lost to the end of what it had started.
constexpr uint64_t kLostGraceNs = 10'000'000'000;
// The task itself has ended: its GPUs wait for what is left in it.
constexpr uint64_t kEndedGraceNs = 1'000'000'000;

class ExecSession {
 public:
  ExecSession(const LauncherHost& host, ExecPlan exec)
      : host_(host),
        exec_(std::move(exec)),
        timer_(loop_, [this] { send_signal(SIGKILL); }),
        client_(loop_, {.signal = [this](int signal) { send_signal(signal); },
                        .lost = [this] { hang_up(kLostGraceNs); },
                        .detached = [this] { hang_up(kLostGraceNs); },
                        .finished = [this] { done_ = true; }}) {}

  void run() {
    signals_ = make_signal_file({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGPIPE});
    loop_.watch(signals_.get(), EPOLLIN, [this](uint32_t) {
      drain_signal_file(signals_.get());
      reap();
    });
    client_.set_client(std::move(exec_.plan.client));
    if (const Outcome<void> begun = begin(); !begun) fail(begun.error());
    while (!done_) loop_.run_once();
  }

 private:
  Outcome<void> begin() {
    TRY_ASSIGN(block_, read_launch_block(exec_.plan.launch_block.get()));
    const wire::StartRequest& request = exec_.plan.request;
    TRY_ASSIGN(processes_, open_processes(host_, exec_.record));
    TRY_ASSIGN(TaskFileEnds ends, make_task_files(request, client_));
    int channel[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0)
      return call_failed("making a channel");
    channel_ = FileDescriptor(channel[0]);
    const FileDescriptor child_end(channel[1]);
    Birth birth{host_, exec_.plan, block_, *processes_, ends.files(), child_end.get()};
    birth.mount_namespace = exec_.mount_namespace.get();
    birth.ipc_namespace = exec_.ipc_namespace.get();
    TRY_ASSIGN(BornProcess born, give_birth(birth));
    pid_ = born.pid;
    process_ = std::move(born.process);
    loop_.watch(channel_.get(), EPOLLIN, [this](uint32_t) { on_channel(); });
    loop_.watch(exec_.process.get(), EPOLLIN, [this](uint32_t) {
      loop_.forget(exec_.process.get());
      hang_up(kEndedGraceNs);
    });
    return {};
  }

  // A report says why it will never execute; the end of the channel that it does.
  void on_channel() {
    BirthReport report{};
    const ssize_t count = ::recv(channel_.get(), &report, sizeof report, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count == static_cast<ssize_t>(sizeof report) && report.stage == 0) {
      (void)!::send(channel_.get(), "g", 1, MSG_NOSIGNAL);
      return;
    }
    loop_.forget(channel_.get());
    channel_.close();
    if (count == static_cast<ssize_t>(sizeof report)) {
      report.text[sizeof report.text - 1] = '\0';
      const bool command = report.stage == static_cast<uint32_t>(wire::StartStage::execute);
      failure_code_ = !command ? -1 : report.error == ENOENT ? 127 : 126;
      return fail({report.error, report.text});
    }
    client_.send_started();
  }

  void fail(const Failure& failure) {
    wire::ExitFrame exit{};
    exit.exit_code = failure_code_;
    exit.cause = static_cast<uint32_t>(wire::ExitCause::none);
    client_.finish(exit, failure.text);
    failed_ = true;
  }

  void reap() {
    int status = 0;
    if (pid_ == 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return;
    pid_ = 0;
    while (channel_ && !failed_) on_channel();
    if (failed_) return;
    wire::ExitFrame exit{};
    exit.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    exit.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    exit.cause =
        static_cast<uint32_t>(WIFSIGNALED(status) ? wire::ExitCause::signalled : wire::ExitCause::exited);
    client_.finish(exit, "");
  }

  // What the client started ends with it, as at the end of a login.
  void hang_up(uint64_t grace_ns) {
    send_signal(SIGHUP);
    send_signal(SIGCONT);
    timer_.arm(boot_time_ns() + grace_ns);
    if (pid_ == 0) done_ = true;
  }

  void send_signal(int signal) {
    if (pid_ == 0) return;
    if (client_.terminal() >= 0 && signal != SIGKILL && ::ioctl(client_.terminal(), TIOCSIG, signal) == 0)
      return;
    ::kill(-pid_, signal);  // not yet waited for, so the number is still that process's and its group's
  }

  const LauncherHost& host_;
  ExecPlan exec_;
  EventLoop loop_;
  BootTimer timer_;
  ClientStream client_;
  LaunchBlock block_;
  TaskProcessesPointer processes_;
  FileDescriptor signals_;
  FileDescriptor channel_;
  FileDescriptor process_;  // pidfd
  int pid_ = 0;             // 0: none, or waited for
  int failure_code_ = -1;
  bool failed_ = false;
  bool done_ = false;
};

}  // namespace

Outcome<void> open_main_process(const wire::TaskRecord& record, bool namespaces, ExecPlan& exec) {
  const int pid = record.task_pid;
  exec.process = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!exec.process) return call_failed("opening the task's main process");
  if (namespaces) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/ns/";
    exec.mount_namespace = FileDescriptor(::open((folder + "mnt").c_str(), O_RDONLY | O_CLOEXEC));
    exec.ipc_namespace = FileDescriptor(::open((folder + "ipc").c_str(), O_RDONLY | O_CLOEXEC));
    if (!exec.mount_namespace || !exec.ipc_namespace) return call_failed("opening the task's namespaces");
  }
  // Seen after they were opened: the number was still that process's.
  if (pid <= 0 || process_start_ticks(pid) != record.task_start_ticks)
    return failed(ESRCH, "the task has ended");
  return {};
}

void run_exec_session(const LauncherHost& host, ExecPlan exec) {
  ::prctl(PR_SET_NAME, "tranche-exec");
  ::setsid();
  ExecSession(host, std::move(exec)).run();
  ::_exit(0);
}

}  // namespace tranche::launcher
