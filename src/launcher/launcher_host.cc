#include "launcher/launcher_host.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/service_ready.h"
#include "isolation/mount_view.h"

namespace tranche::launcher {
namespace {

using isolation::failed;
using isolation::Outcome;

Outcome<void> find_daemon_user(LauncherHost& host) {
  if (host.options.personal) {
    host.daemon_uid = ::geteuid();
    host.daemon_gid = ::getegid();
    return {};
  }
  const passwd* user = ::getpwnam(host.options.daemon_user.c_str());
  if (user == nullptr) {
    return failed(
        ENOENT,
        "user " + host.options.daemon_user +
            " does not exist; make it (tranche-up start --create-user) or name one with --daemon-user");
  }
  host.daemon_uid = user->pw_uid;
  host.daemon_gid = user->pw_gid;
  return {};
}

// Nobody else has business in it.
Outcome<void> open_personal_run_folder(LauncherHost& host) {
  TRY_ASSIGN(host.run_folder, isolation::make_own_folder_at(AT_FDCWD, host.options.run_folder.c_str(), 0700));
  TRY_ASSIGN(host.tasks_folder, isolation::make_own_folder_at(host.run_folder.get(), "tasks", 0700));
  TRY_ASSIGN(host.jobs_folder, isolation::make_own_folder_at(host.run_folder.get(), "jobs", 0700));
  return {};
}

// Sticky and writable by the daemon's group: it makes its own socket there and cannot replace what root made.
Outcome<void> open_run_folder(LauncherHost& host) {
  if (host.options.personal) return open_personal_run_folder(host);
  TRY_ASSIGN(host.run_folder, isolation::make_own_folder_at(AT_FDCWD, host.options.run_folder.c_str(), 0755));
  if (::fchown(host.run_folder.get(), 0, host.daemon_gid) != 0 ||
      ::fchmod(host.run_folder.get(), 01775) != 0) {
    return isolation::call_failed(host.options.run_folder);
  }
  TRY_ASSIGN(host.tasks_folder, isolation::make_own_folder_at(host.run_folder.get(), "tasks", 0750));
  if (::fchown(host.tasks_folder.get(), 0, host.daemon_gid) != 0) return isolation::call_failed("tasks");
  TRY(isolation::make_own_folder_at(host.run_folder.get(), "jobs", 0700));
  TRY(isolation::make_job_root(host.options.run_folder + "/jobs"));
  TRY_ASSIGN(host.jobs_folder, isolation::open_own_folder_at(host.run_folder.get(), "jobs"));
  return {};
}

Outcome<void> check_driver_folder(LauncherHost& host) {
  const std::string& folder = host.options.driver_library_folder;
  if (folder.empty()) return {};
  if (folder.front() != '/' || folder.find_first_of(":,\\") != std::string::npos) {
    return failed(EINVAL, "--driver-library-dir must be an absolute path without ':' and ','");
  }
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return failed(ENOENT, "--driver-library-dir " + folder + " is not a folder");
  }
  if (host.options.personal) return {};
  TRY_ASSIGN(host.library_folder, isolation::find_library_folder());
  return {};
}

// Made by who starts us (tranche-guard-fit); without it tasks with a part of a GPU are held to nothing.
Outcome<void> find_guard(LauncherHost& host) {
  const std::string folder = host.options.run_folder + "/guard";
  if (::access((folder + "/libcuda.so.1").c_str(), R_OK) != 0) return {};
  TRY(isolation::open_own_folder_at(AT_FDCWD, folder.c_str()));
  if (!host.options.personal) {
    TRY(isolation::make_guard_mount_point());
    TRY_ASSIGN(host.library_folder, isolation::find_library_folder());
  }
  host.guard_folder = folder;
  return {};
}

}  // namespace

Outcome<LauncherHost> open_host(const Options& options) {
  LauncherHost host;
  host.options = options;
  host.inherited = isolation::capture_inherited_state();
  if (options.run_folder.empty() || options.run_folder.front() != '/') {
    return failed(EINVAL, "--run-dir must be an absolute path");
  }
  TRY(find_daemon_user(host));
  TRY(check_driver_folder(host));
  if (!options.personal) {
    TRY_ASSIGN(host.cgroups, isolation::CgroupTree::open(options.cgroup_root));
  }
  TRY(open_run_folder(host));
  TRY(find_guard(host));
  return host;
}

void tell_ready(const Options& options) {
  tell_service_manager_ready();
  if (options.ready_file < 0) return;
  (void)!::write(options.ready_file, "ready\n", 6);
  ::close(options.ready_file);
}

}  // namespace tranche::launcher
