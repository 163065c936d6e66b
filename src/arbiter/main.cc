// tranche-arbiter: the ledger of device memory, a process of its own, so that the daemon's upgrades and the
// jobs' allocations never meet. Runs as the daemon's user, without any capability.
#include <getopt.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "arbiter/server.h"
#include "base/service_ready.h"

namespace tranche::arbiter {
namespace {

constexpr const char* kUsage =
    "usage: tranche-arbiter [--run-dir DIR] [--ready-fd N] [--personal]\n"
    "Keeps the ledger of device memory of tasks that share GPUs. Run as the daemon's user.\n"
    "--personal: for the user's own programs, which need no root to be registered (tranche-courtesy).\n";

volatile sig_atomic_t g_ended = 0;

int listen_on(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return errno = ENAMETOOLONG, -1;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  ::unlink(path.c_str());
  ::umask(0177);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return -1;
  return ::listen(listener, SOMAXCONN) == 0 ? listener : -1;
}

// Every process of every task costs two descriptors.
void allow_many_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int run(const std::string& run_folder, int ready_file, bool personal) {
  struct sigaction action {};
  action.sa_handler = [](int) { g_ended = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  allow_many_files();
  const std::string path = run_folder + "/arbiter.sock";
  OwnedFile control(listen_on(path));
  if (!control) {
    std::fprintf(stderr, "tranche-arbiter: cannot listen on %s: %s; is --run-dir right and writable?\n",
                 path.c_str(), std::strerror(errno));
    return 1;
  }
  Server server(std::move(control), ::geteuid(), run_folder + "/guard/contexts", personal ? ::geteuid() : 0);
  tell_service_manager_ready();
  if (ready_file >= 0) {
    static_cast<void>(!::write(ready_file, "ready\n", 6));
    ::close(ready_file);
  }
  while (g_ended == 0) server.run_once(-1);
  ::unlink(path.c_str());
  return 0;
}

}  // namespace
}  // namespace tranche::arbiter

int main(int argc, char** argv) {
  std::string run_folder = "/run/tranche";
  int ready_file = -1;
  bool personal = false;
  const option options[] = {{"run-dir", required_argument, nullptr, 'r'},
                            {"ready-fd", required_argument, nullptr, 'f'},
                            {"personal", no_argument, nullptr, 'p'},
                            {"help", no_argument, nullptr, 'h'},
                            {nullptr, 0, nullptr, 0}};
  for (int choice = 0; (choice = ::getopt_long(argc, argv, "h", options, nullptr)) != -1;) {
    if (choice == 'r') run_folder = optarg;
    if (choice == 'f') ready_file = std::atoi(optarg);
    if (choice == 'p') personal = true;
    if (choice == 'h' || choice == '?') {
      std::fputs(tranche::arbiter::kUsage, choice == 'h' ? stdout : stderr);
      return choice == 'h' ? 0 : 2;
    }
  }
  return tranche::arbiter::run(run_folder, ready_file, personal);
}
