#include "launcher/courtesy_guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "isolation/task_descendants.h"
#include "launcher/personal_task.h"
#include "launcher/record_file.h"
#include "wire/guard.h"
#include "wire/launcher.h"

namespace tranche::launcher {
namespace {

using isolation::call_failed;
using isolation::failed;
using isolation::FileDescriptor;
using isolation::Outcome;

constexpr const char* kFolders = "courtesy";
constexpr const char* kSocket = "task";
constexpr const char* kGuards[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
constexpr const char* kLinks[] = {"libcuda.so", "libnvidia-ml.so", "libtranche-driver-cuda.so.1",
                                  "libtranche-driver-nvml.so.1"};
constexpr size_t kMaxLibrary = size_t{16} << 20;

std::string courtesy_folder(const LauncherHost& host) { return host.options.run_folder + "/" + kFolders; }

std::string folder_of(const LauncherHost& host, const wire::TaskKey& key) {
  return courtesy_folder(host) + "/" + record_name(key);
}

Outcome<std::string> read_library(const std::string& path) {
  TRY_ASSIGN(const FileDescriptor file, isolation::open_at(AT_FDCWD, path.c_str(), O_RDONLY));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return call_failed(path);
  if (!S_ISREG(status.st_mode) || static_cast<size_t>(status.st_size) > kMaxLibrary)
    return failed(EINVAL, path + " is no library of the guard's");
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count <= 0) return call_failed(path);
    done += static_cast<size_t>(count);
  }
  return bytes;
}

// As tranche-guard-fit --socket does it: the path lies behind a mark in the library itself.
Outcome<void> copy_guard(const std::string& from, const std::string& to, const std::string& socket) {
  TRY_ASSIGN(std::string bytes, read_library(from));
  constexpr std::string_view kMark = TRANCHE_GUARD_SOCKET_MARK;
  const size_t at = bytes.find(std::string(kMark) + "/");
  const size_t place = at + kMark.size();
  if (at == std::string::npos || bytes.size() - place < TRANCHE_GUARD_SOCKET_ROOM)
    return failed(EINVAL, from + " has no place for a socket's path");
  bytes.replace(place, TRANCHE_GUARD_SOCKET_ROOM, TRANCHE_GUARD_SOCKET_ROOM, '\0');
  bytes.replace(place, socket.size(), socket);
  TRY_ASSIGN(const FileDescriptor file,
             isolation::open_at(AT_FDCWD, to.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600));
  return isolation::write_text(file.get(), bytes, to);
}

// Only what make_courtesy_guard makes: a name that is not known stays, and its folder with it.
void remove_folder(const std::string& folder) {
  for (const char* name : kGuards) ::unlink((folder + "/" + name).c_str());
  for (const char* name : kLinks) ::unlink((folder + "/" + name).c_str());
  ::unlink((folder + "/" + kSocket).c_str());
  ::unlink((folder + "/" + kSocket + TRANCHE_GUARD_LIMITS_SUFFIX).c_str());
  ::rmdir(folder.c_str());
}

Outcome<void> listen_in(const std::string& path, int socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  constexpr int kBacklog = 128;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket, kBacklog) != 0) {
    return call_failed("making the socket " + path);
  }
  return {};
}

}  // namespace

std::string courtesy_socket(const LauncherHost& host, const wire::TaskKey& key) {
  return folder_of(host, key) + "/" + kSocket;
}

Outcome<void> make_courtesy_guard(const LauncherHost& host, const wire::TaskKey& key, int socket) {
  const std::string folder = folder_of(host, key);
  const std::string path = folder + "/" + kSocket;
  if (path.size() >= TRANCHE_GUARD_SOCKET_ROOM || path.size() >= sizeof sockaddr_un::sun_path)
    return failed(ENAMETOOLONG, path + " is too long for a socket; set XDG_RUNTIME_DIR to a shorter path");
  if (::mkdir(courtesy_folder(host).c_str(), 0700) != 0 && errno != EEXIST)
    return call_failed(courtesy_folder(host));
  remove_folder(folder);
  if (::mkdir(folder.c_str(), 0700) != 0) return call_failed(folder);
  for (const char* name : kGuards) {
    TRY(copy_guard(host.guard_folder + "/" + name, folder + "/" + name, path));
  }
  for (const char* name : kLinks) {
    char target[4096] = {};
    const ssize_t size = ::readlink((host.guard_folder + "/" + name).c_str(), target, sizeof target - 1);
    if (size <= 0 || ::symlink(target, (folder + "/" + name).c_str()) != 0)
      return call_failed(folder + "/" + name);
  }
  return listen_in(path, socket);
}

void remove_courtesy_guard(const LauncherHost& host, const wire::TaskKey& key) {
  remove_folder(folder_of(host, key));
}

void sweep_courtesy_guards(const LauncherHost& host) {
  DIR* folder = ::opendir(courtesy_folder(host).c_str());
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.starts_with('.') || ::faccessat(host.tasks_folder.get(), name.c_str(), F_OK, 0) == 0) continue;
    remove_folder(courtesy_folder(host) + "/" + name);
  }
  ::closedir(folder);
}

std::vector<std::string> courtesy_variables(const LauncherHost& host, const wire::TaskKey& key,
                                            const std::string& old_path) {
  std::vector<std::string> variables = {std::string(wire::kTaskMarkVariable) + "=" + task_mark(host, key)};
  std::string path;
  const auto add = [&path](const std::string& part) {
    if (!part.empty()) path += (path.empty() ? "" : ":") + part;
  };
  const std::string folder = folder_of(host, key);
  if (::access((folder + "/" + kGuards[0]).c_str(), R_OK) == 0) {
    variables.push_back("LD_PRELOAD=" + folder + "/" + kGuards[0] + ":" + folder + "/" + kGuards[1]);
    add(folder);
  }
  add(host.options.driver_library_folder);
  add(old_path);
  if (!path.empty()) variables.push_back("LD_LIBRARY_PATH=" + path);
  return variables;
}

}  // namespace tranche::launcher
