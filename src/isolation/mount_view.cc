#include "isolation/mount_view.h"

#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "isolation/file.h"
#include "wire/guard.h"

namespace tranche::isolation {
namespace {

constexpr const char* kSharedMemoryOptions = "mode=1777";
constexpr long kTmpfsMagic = 0x01021994;

Outcome<void> mount_shared_memory(const std::string& shared_folder) {
  const int done = shared_folder.empty()
                       ? ::mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, kSharedMemoryOptions)
                       : ::mount(shared_folder.c_str(), "/dev/shm", nullptr, MS_BIND, nullptr);
  if (done != 0) return call_failed("mounting the job's /dev/shm");
  // POSIX message queues belong to the IPC namespace; a host that shows them gets the task's own shown.
  struct statfs status {};
  constexpr long kQueueMagic = 0x19800202;
  if (::statfs("/dev/mqueue", &status) == 0 && status.f_type == kQueueMagic) {
    if (::mount("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
      return call_failed("mounting /dev/mqueue");
    }
  }
  return {};
}

struct GuardedLibrary {
  const char* name;          // of the driver, and of the guard in its place
  const char* private_name;  // of the driver's, in TRANCHE_GUARD_FOLDER; the guard folder has a link to it
};
constexpr GuardedLibrary kGuardedLibraries[] = {{"libcuda.so.1", "driver-cuda.so"},
                                                {"libnvidia-ml.so.1", "driver-nvml.so"}};

Outcome<void> bind_file(const std::string& source, const std::string& target) {
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return call_failed("binding " + source + " on " + target);
  }
  return {};
}

// The driver's own file of that name, whatever links lead to it.
Outcome<std::string> driver_file(const MountView& view, const GuardedLibrary& library) {
  const std::string folder =
      view.driver_library_folder.empty() ? view.library_folder : view.driver_library_folder;
  char real[PATH_MAX];
  if (::realpath((folder + "/" + library.name).c_str(), real) == nullptr) {
    return call_failed("finding the driver's " + std::string(library.name) + " in " + folder);
  }
  return std::string(real);
}

// The driver's libraries under their private names, before anything covers them.
Outcome<void> keep_driver_libraries(const MountView& view) {
  if (::mount("tmpfs", TRANCHE_GUARD_FOLDER, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k") != 0) {
    return call_failed("mounting " TRANCHE_GUARD_FOLDER);
  }
  for (const GuardedLibrary& library : kGuardedLibraries) {
    TRY_ASSIGN(const std::string real, driver_file(view, library));
    const std::string kept = std::string(TRANCHE_GUARD_FOLDER "/") + library.private_name;
    TRY(open_at(AT_FDCWD, kept.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644));
    TRY(bind_file(real, kept));
  }
  return {};
}

Outcome<void> lay_libraries(const MountView& view) {
  std::string layers = "lowerdir=";
  for (const std::string& folder : {view.guard_folder, view.driver_library_folder}) {
    if (!folder.empty()) layers += folder + ":";
  }
  layers += view.library_folder;
  if (::mount("overlay", view.library_folder.c_str(), "overlay", MS_RDONLY, layers.c_str()) != 0) {
    return call_failed("laying the driver's libraries over " + view.library_folder);
  }
  return {};
}

// Programs that name the driver's file by its full path get the guard as well.
Outcome<void> cover_driver_files(const MountView& view) {
  for (const GuardedLibrary& library : kGuardedLibraries) {
    TRY_ASSIGN(const std::string real, driver_file(view, library));
    if (real == view.library_folder + "/" + library.name) continue;  // the guard's own already
    TRY(bind_file(view.guard_folder + "/" + library.name, real));
  }
  return {};
}

int report_libc(dl_phdr_info* info, size_t, void* result) {
  const char* name = strrchr(info->dlpi_name, '/');
  if (name == nullptr || strcmp(name, "/libc.so.6") != 0) return 0;
  *static_cast<std::string*>(result) = info->dlpi_name;
  return 1;
}

// A file descriptor's path for mount(2), which knows no descriptors.
std::string path_of(int folder, const std::string& name) {
  return "/proc/self/fd/" + std::to_string(folder) + "/" + name;
}

// Pins a fresh IPC namespace at `path`. The caller's own is restored.
Outcome<void> pin_ipc_namespace(const std::string& path) {
  const FileDescriptor own(::open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC));
  if (!own) return call_failed("opening the host's IPC namespace");
  if (::unshare(CLONE_NEWIPC) != 0) return call_failed("making the job's IPC namespace");
  const bool bound = ::mount("/proc/self/ns/ipc", path.c_str(), nullptr, MS_BIND, nullptr) == 0;
  const int error = errno;
  if (::setns(own.get(), CLONE_NEWIPC) != 0) return call_failed("returning to the host's IPC namespace");
  if (!bound) return tl::unexpected<Failure>(system_failure(error, "keeping the job's IPC namespace"));
  return {};
}

}  // namespace

Outcome<void> build_mount_view(const MountView& view) {
  // Slave, not private: an automounter's homes must keep appearing; nothing of ours may reach the host.
  if (::mount(nullptr, "/", nullptr, MS_SLAVE | MS_REC, nullptr) != 0)
    return call_failed("detaching mounts from the host");
  TRY(mount_shared_memory(view.shared_memory_folder));
  if (!view.guard_folder.empty()) TRY(keep_driver_libraries(view));
  if (!view.driver_library_folder.empty() || !view.guard_folder.empty()) TRY(lay_libraries(view));
  if (!view.guard_folder.empty()) TRY(cover_driver_files(view));
  if (!view.hidden_folder.empty()) ::umount2(view.hidden_folder.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  return {};
}

Outcome<void> make_guard_mount_point() {
  if (::mkdir(TRANCHE_GUARD_FOLDER, 0755) != 0 && errno != EEXIST)
    return call_failed("making " TRANCHE_GUARD_FOLDER);
  TRY(open_own_folder_at(AT_FDCWD, TRANCHE_GUARD_FOLDER));
  return {};
}

Outcome<void> name_guard_socket(int file) {
  constexpr int kQueue = 128;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, TRANCHE_GUARD_SOCKET, sizeof TRANCHE_GUARD_SOCKET);
  if (::bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(TRANCHE_GUARD_SOCKET, 0666) != 0 || ::listen(file, kQueue) != 0) {
    return call_failed("making the task's socket to the arbiter");
  }
  return {};
}

Outcome<std::string> find_library_folder() {
  std::string libc;
  ::dl_iterate_phdr(report_libc, &libc);
  char resolved[PATH_MAX];
  if (libc.empty() || ::realpath(libc.c_str(), resolved) == nullptr) {
    return failed(ENOENT, "the system's library folder was not found");
  }
  const std::string path = resolved;
  return path.substr(0, path.rfind('/'));
}

Outcome<void> make_job_root(const std::string& path) {
  struct statfs status {};
  struct stat own {};
  struct stat parent {};
  if (::stat(path.c_str(), &own) == 0 && ::stat((path + "/..").c_str(), &parent) == 0 &&
      own.st_dev != parent.st_dev && ::statfs(path.c_str(), &status) == 0 && status.f_type == kTmpfsMagic) {
    return {};
  }
  if (::mount("tmpfs", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "mode=0700,size=1m,nr_inodes=32k") != 0) {
    return call_failed("mounting " + path);
  }
  return {};
}

Outcome<void> make_job_space(int jobs_folder, const std::string& job) {
  if (::mkdirat(jobs_folder, job.c_str(), 0700) != 0) {
    return errno == EEXIST ? Outcome<void>() : Outcome<void>(call_failed("making the job's shared folder"));
  }
  Outcome<void> made = [&]() -> Outcome<void> {
    TRY_ASSIGN(const FileDescriptor folder, open_at(jobs_folder, job.c_str(), O_RDONLY | O_DIRECTORY));
    if (::mkdirat(folder.get(), "shm", 01777) != 0) return call_failed("making the job's shm");
    const std::string shm = path_of(folder.get(), "shm");
    if (::mount("tmpfs", shm.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, kSharedMemoryOptions) != 0) {
      return call_failed("mounting the job's shm");
    }
    TRY(open_at(folder.get(), "ipc", O_WRONLY | O_CREAT | O_EXCL, 0600));
    return pin_ipc_namespace(path_of(folder.get(), "ipc"));
  }();
  if (!made) remove_job_space(jobs_folder, job);
  return made;
}

void remove_job_space(int jobs_folder, const std::string& job) {
  {
    const FileDescriptor folder(
        ::openat(jobs_folder, job.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!folder) return;
    ::umount2(path_of(folder.get(), "shm").c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    ::umount2(path_of(folder.get(), "ipc").c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    ::unlinkat(folder.get(), "ipc", 0);
    ::unlinkat(folder.get(), "shm", AT_REMOVEDIR);
  }
  ::unlinkat(jobs_folder, job.c_str(), AT_REMOVEDIR);
}

}  // namespace tranche::isolation
