#include "linux/send_mail.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "linux/files.h"
#include "linux/system_error.h"
#include "linux/unique_fd.h"

namespace tranche {
namespace {

// A file in memory as its input: no pipe that could fill while nobody reads.
Result<UniqueFd> in_memory(const std::string& text) {
  UniqueFd memory(::memfd_create("mail", MFD_CLOEXEC));
  if (!memory.is_open()) return fail(system_error("making a message"));
  TRY(write_all(memory.get(), text));
  ::lseek(memory.get(), 0, SEEK_SET);
  return memory;
}

Result<pid_t> spawn(const std::string& program, const std::string& recipient, int input) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string words[] = {program, "-i", "--", recipient};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* environment[] = {path, nullptr};
  pid_t pid = 0;
  const int problem = ::posix_spawn(&pid, program.c_str(), &actions, &attributes, arguments, environment);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (problem == 0) return pid;
  errno = problem;
  return fail(system_error("starting " + program));
}

}  // namespace

Result<void> send_mail(const std::string& program, const std::string& recipient, const std::string& message,
                       Duration timeout) {
  TRY_ASSIGN(const UniqueFd input, in_memory(message));
  TRY_ASSIGN(const pid_t pid, spawn(program, recipient, input.get()));
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd watched{process.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&watched, 1, static_cast<int>(timeout.count() / kMillisecond.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (ready == 0) return fail(ErrorCode::timed_out, program + " did not end in time and was ended");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const std::string how = WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                                            : "signal " + std::to_string(WTERMSIG(status));
  return fail(ErrorCode::unavailable, program + " did not take the message: " + how);
}

}  // namespace tranche
