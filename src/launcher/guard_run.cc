// tranche-guard-run: runs one command under the guard, as a task with a part of each GPU would be, without
// the rest of Tranche but the arbiter. For administrators who want to see what a program does within a limit,
// and for tests.
//
//   tranche-guard-run [--run-dir DIR] [--driver-library-dir DIR] [--user NAME] [--courtesy]
//     --limit UUID=MIB... -- COMMAND...
//
// Root: it makes a mount namespace and registers with the arbiter. The guard's libraries lie in DIR/guard,
// made to fit the driver by tranche-guard-fit (tranche-up does both). Ends with the command's exit status.
//
// With --courtesy, without root: the guard comes before the driver by LD_PRELOAD and LD_LIBRARY_PATH, and
// finds the arbiter at DIR/task (tranche-courtesy does the rest). It holds programs that leave those
// variables alone.
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "isolation/mount_view.h"
#include "launcher/arbiter_link.h"
#include "wire/guard.h"

namespace tranche::launcher {
namespace {

struct Settings {
  std::string run_folder = "/run/tranche";
  std::string driver_folder;
  std::string user;
  bool courtesy = false;
  wire::StartRequest request{};
};

int complain(const std::string& text) {
  std::fprintf(stderr, "tranche-guard-run: %s\n", text.c_str());
  return 125;
}

bool parse_uuid(const char* text, size_t length, uint8_t (&uuid)[16]) {
  size_t digits = 0;
  const char* end = text + length;
  const char* at = static_cast<const char*>(std::memchr(text, '-', length));
  if (at == nullptr) return false;
  for (++at; at != end; ++at) {
    if (*at == '-') continue;
    const char digit[2] = {*at, '\0'};
    char* rest = nullptr;
    const unsigned long value = std::strtoul(digit, &rest, 16);
    if (*rest != '\0' || digits == 32) return false;
    uuid[digits / 2] = static_cast<uint8_t>(static_cast<unsigned long>(uuid[digits / 2]) << 4 | value);
    ++digits;
  }
  return digits == 32;
}

bool add_limit(const char* text, wire::StartRequest& request) {
  const char* equals = std::strchr(text, '=');
  if (equals == nullptr || request.share_count == wire::kMaxGpusPerTask) return false;
  wire::MemoryShare& share = request.shares[request.share_count++];
  char* end = nullptr;
  const unsigned long long mib = std::strtoull(equals + 1, &end, 10);
  share.limit_bytes = mib << 20;
  return *end == '\0' && mib > 0 && mib < (uint64_t{1} << 24) &&
         parse_uuid(text, static_cast<size_t>(equals - text), share.uuid);
}

isolation::Outcome<void> become(const std::string& name) {
  if (name.empty()) return {};
  const passwd* user = ::getpwnam(name.c_str());
  if (user == nullptr) return isolation::failed(ENOENT, "there is no user " + name);
  if (::initgroups(name.c_str(), user->pw_gid) != 0 || ::setgid(user->pw_gid) != 0 ||
      ::setuid(user->pw_uid) != 0) {
    return isolation::call_failed("becoming " + name);
  }
  return {};
}

// What a mount namespace does for root, as far as variables can.
isolation::Outcome<void> enter_by_courtesy(const Settings& settings, int socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = settings.run_folder + "/task";
  if (path.size() >= sizeof address.sun_path)
    return isolation::failed(ENAMETOOLONG, path + " is too long for a socket");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ::unlink(path.c_str());
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket, 128) != 0) {
    return isolation::call_failed("making the socket " + path);
  }
  const std::string guard = settings.run_folder + "/guard";
  const auto put_before = [](const char* name, const std::string& value) {
    const char* old = std::getenv(name);
    const std::string both = old == nullptr || *old == '\0' ? value : value + ":" + old;
    return ::setenv(name, both.c_str(), 1) == 0;
  };
  if (!put_before("LD_PRELOAD", guard + "/libcuda.so.1:" + guard + "/libnvidia-ml.so.1") ||
      !put_before("LD_LIBRARY_PATH", guard)) {
    return isolation::call_failed("setting the environment");
  }
  return {};
}

isolation::Outcome<void> enter(const Settings& settings, int socket) {
  if (settings.courtesy) return enter_by_courtesy(settings, socket);
  if (::unshare(CLONE_NEWNS) != 0) return isolation::call_failed("making a mount namespace");
  isolation::MountView view;
  view.driver_library_folder = settings.driver_folder;
  view.guard_folder = settings.run_folder + "/guard";
  TRY_ASSIGN(view.library_folder, isolation::find_library_folder());
  TRY(isolation::build_mount_view(view));
  TRY(isolation::name_guard_socket(socket));
  return become(settings.user);
}

[[noreturn]] void live(const Settings& settings, int socket, int channel, char** command) {
  // Whoever ends us by a signal means the command; its ledger ends with us.
  if (settings.courtesy) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const auto entered = enter(settings, socket);
  char word = entered ? 'r' : 'f';
  if (!entered) complain(entered.error().text);
  if (::send(channel, &word, 1, MSG_NOSIGNAL) != 1 || !entered || ::recv(channel, &word, 1, 0) != 1)
    ::_exit(125);
  ::execvp(command[0], command);
  complain(std::string(command[0]) + ": " + std::strerror(errno));
  ::_exit(127);
}

std::string limits_path(const Settings& settings, pid_t child) {
  return (settings.courtesy ? settings.run_folder + "/task"
                            : "/proc/" + std::to_string(child) + "/root" TRANCHE_GUARD_SOCKET) +
         TRANCHE_GUARD_LIMITS_SUFFIX;
}

int run(Settings& settings, char** command) {
  if (!settings.courtesy) {
    if (::geteuid() != 0) return complain("run as root: it makes a mount namespace; or use tranche-courtesy");
    if (const auto made = isolation::make_guard_mount_point(); !made) return complain(made.error().text);
  }
  EventLoop loop;
  ArbiterLink arbiter(loop, settings.run_folder);
  // No job of the daemon's has such a number.
  settings.request.key = {UINT64_MAX - static_cast<uint64_t>(::getpid()), 0, 1};
  if (const auto made = arbiter.make_files(settings.request); !made) return complain(made.error().text);
  int channel[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0) return complain("no socket pair");
  const isolation::FileDescriptor signals = make_signal_file({SIGCHLD});
  const pid_t child = ::fork();
  if (child < 0) return complain("cannot fork");
  if (child == 0) {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::close(channel[0]);
    live(settings, arbiter.socket(), channel[1], command);
  }
  ::close(channel[1]);
  char word = 'f';
  if (::recv(channel[0], &word, 1, 0) == 1 && word == 'r') {
    const std::string limits = limits_path(settings, child);
    if (settings.courtesy) ::unlink(limits.c_str());
    if (const auto written = arbiter.write_limits(limits); !written) complain(written.error().text);
    arbiter.start();
    (void)!::send(channel[0], "g", 1, MSG_NOSIGNAL);
  }
  int status = 0;
  bool ended = false;
  loop.watch(signals.get(), EPOLLIN, [&](uint32_t) {
    drain_signal_file(signals.get());
    ended = ::waitpid(child, &status, WNOHANG) == child;
  });
  while (!ended) loop.run_once();
  loop.forget(signals.get());
  arbiter.forget();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace
}  // namespace tranche::launcher

int main(int argc, char** argv) {
  using tranche::launcher::complain;
  tranche::launcher::Settings settings;
  const option options[] = {
      {"run-dir", required_argument, nullptr, 'r'}, {"driver-library-dir", required_argument, nullptr, 'd'},
      {"user", required_argument, nullptr, 'u'},    {"limit", required_argument, nullptr, 'l'},
      {"courtesy", no_argument, nullptr, 'c'},      {nullptr, 0, nullptr, 0}};
  for (int choice = 0; (choice = ::getopt_long(argc, argv, "+", options, nullptr)) != -1;) {
    if (choice == 'r') settings.run_folder = optarg;
    if (choice == 'd') settings.driver_folder = optarg;
    if (choice == 'c') settings.courtesy = true;
    if (choice == 'u') settings.user = optarg;
    if (choice == 'l' && !tranche::launcher::add_limit(optarg, settings.request)) {
      return complain(std::string("--limit is UUID=MIB, not ") + optarg);
    }
    if (choice == '?') return 125;
  }
  if (optind == argc || settings.request.share_count == 0) {
    return complain(
        "usage: tranche-guard-run --limit UUID=MIB... [--run-dir DIR] [--driver-library-dir DIR] "
        "[--user NAME] [--courtesy] -- COMMAND...");
  }
  return tranche::launcher::run(settings, argv + optind);
}
