// tranche-launcher: the one program of Tranche that is root and starts tasks. Links libc only, so that
// nothing a library does at load or at fork is part of the trusted code.
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "base/failpoint.h"
#include "isolation/process_state.h"
#include "launcher/hold.h"
#include "launcher/launcher.h"
#include "launcher/personal_task.h"

namespace tranche::launcher {
namespace {

constexpr const char* kUsage =
    "usage: tranche-launcher [--run-dir DIR] [--daemon-user NAME] [--cgroup-root NAME] [--driver-library-dir "
    "DIR]\n"
    "                        [--allow-system-uids-from UID] [--max-tasks N] [--ready-fd N]\n"
    "       tranche-launcher --hold [--cgroup-root NAME] [--ready-fd N]\n"
    "       tranche-launcher --personal --run-dir DIR [--driver-library-dir DIR] [--max-tasks N] [--ready-fd "
    "N]\n"
    "       tranche-launcher --personal --run-dir DIR --end-tasks\n"
    "Starts and supervises tasks for tranched. --hold only keeps the cgroup subtree. --personal: for one "
    "user,\n"
    "without root. --end-tasks ends all tasks of the run folder.\n";

enum Choice : int {
  run_dir = 1,
  daemon_user,
  cgroup_root,
  driver_library_dir,
  system_uids,
  max_tasks,
  ready_fd,
  hold,
  personal,
  end_tasks,
  help,
  version
};

std::optional<uint32_t> read_number(const char* text, uint32_t least, uint32_t most) {
  char* end = nullptr;
  const unsigned long value = ::strtoul(text, &end, 10);
  if (*text == '\0' || *text == '-' || *end != '\0' || value < least || value > most) return std::nullopt;
  return static_cast<uint32_t>(value);
}

int complain(const char* option, const char* wanted) {
  std::fprintf(stderr, "tranche-launcher: %s must be %s\n", option, wanted);
  return 2;
}

// 0: go on; -1: done; otherwise the exit code.
int parse(int count, char** arguments, Options& options) {
  static const option kOptions[] = {
      {"run-dir", required_argument, nullptr, run_dir},
      {"daemon-user", required_argument, nullptr, daemon_user},
      {"cgroup-root", required_argument, nullptr, cgroup_root},
      {"driver-library-dir", required_argument, nullptr, driver_library_dir},
      {"allow-system-uids-from", required_argument, nullptr, system_uids},
      {"max-tasks", required_argument, nullptr, max_tasks},
      {"ready-fd", required_argument, nullptr, ready_fd},
      {"hold", no_argument, nullptr, hold},
      {"personal", no_argument, nullptr, personal},
      {"end-tasks", no_argument, nullptr, end_tasks},
      {"help", no_argument, nullptr, help},
      {"version", no_argument, nullptr, version},
      {nullptr, 0, nullptr, 0},
  };
  int choice = 0;
  while ((choice = ::getopt_long(count, arguments, "", kOptions, nullptr)) != -1) {
    if (choice == run_dir)
      options.run_folder = optarg;
    else if (choice == daemon_user)
      options.daemon_user = optarg;
    else if (choice == cgroup_root)
      options.cgroup_root = optarg;
    else if (choice == driver_library_dir)
      options.driver_library_folder = optarg;
    else if (choice == hold)
      options.hold = true;
    else if (choice == personal)
      options.personal = true;
    else if (choice == end_tasks)
      options.end_tasks = true;
    else if (choice == system_uids) {
      const auto uid = read_number(optarg, 1, isolation::kFirstOrdinaryUid);
      if (!uid) return complain("--allow-system-uids-from", "a uid from 1 to 1000");
      options.first_ordinary_uid = *uid;
    } else if (choice == max_tasks) {
      const auto limit = read_number(optarg, 1, 1'000'000);
      if (!limit) return complain("--max-tasks", "a number from 1 to 1000000");
      options.max_tasks = *limit;
    } else if (choice == ready_fd) {
      const auto file = read_number(optarg, 3, 1023);
      if (!file) return complain("--ready-fd", "an open descriptor from 3 on");
      options.ready_file = static_cast<int>(*file);
      ::fcntl(options.ready_file, F_SETFD, FD_CLOEXEC);
    } else if (choice == help) {
      std::fputs(kUsage, stdout);
      return -1;
    } else if (choice == version) {
      std::puts("tranche-launcher " TRANCHE_VERSION);
      return -1;
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  if (optind == count) return 0;
  std::fprintf(stderr, "tranche-launcher: unexpected argument %s\n%s", arguments[optind], kUsage);
  return 2;
}

int fail_with(const isolation::Failure& failure) {
  std::fprintf(stderr, "tranche-launcher: %s\n", failure.text.c_str());
  return 1;
}

int run(int count, char** arguments) {
  Options options;
  if (const int parsed = parse(count, arguments, options); parsed != 0) return parsed < 0 ? 0 : parsed;
  if (options.personal && (::geteuid() == 0 || options.hold))
    return complain("--personal",
                    "without --hold, and started by the user whose tasks they are, not by root");
  if (!options.personal && (::geteuid() != 0 || options.end_tasks))
    return complain("tranche-launcher", "run as root: it starts tasks under their users' identity");
  if (options.hold) {
    const auto held = hold_subtree(options);
    return held ? 0 : fail_with(held.error());
  }
  isolation::reset_signals();
  arm_failpoints(FailpointRole::launcher);
  auto host = open_host(options);
  if (!host) return fail_with(host.error());
  if (options.end_tasks) {
    const auto ended = end_all_tasks(*host);
    return ended ? 0 : fail_with(ended.error());
  }
  ::umask(0022);
  if (::chdir("/") != 0) return 1;
  Launcher launcher(*host);
  if (const auto opened = launcher.open(); !opened) return fail_with(opened.error());
  tell_ready(options);
  launcher.run();
  return 0;
}

}  // namespace
}  // namespace tranche::launcher

int main(int count, char** arguments) { return tranche::launcher::run(count, arguments); }
