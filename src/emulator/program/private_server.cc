#include "emulator/program/private_server.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "emulator/device_model.h"
#include "emulator/device_nodes.h"
#include "emulator/former_bytes.h"
#include "emulator/program/libraries.h"

namespace tranche::emulator {
namespace {

constexpr const char* kStateDirectory = "/run/tranche-emulator";
constexpr const char* kLibraryDirectory = "/run/tranche-emulator/lib";

// What a program expects to find in /dev; those that the machine has are put into the private one.
constexpr std::array<const char*, 20> kUsualDevices{
    "null",   "zero", "full",  "random", "urandom", "tty", "console",   "ptmx", "pts",  "shm",
    "mqueue", "fd",   "stdin", "stdout", "stderr",  "log", "hugepages", "net",  "fuse", "loop-control"};

Error system_error(const std::string& what) {
  return Error(ErrorCode::unavailable, "cannot " + what + ": " + std::strerror(errno));
}

Result<void> write_file(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return fail(system_error(std::string("open ") + path));
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  if (!written) return fail(system_error(std::string("write ") + path));
  return {};
}

// Maps the user to itself, so that files and processes keep their owner.
Result<void> enter_user_namespace() {
  const auto uid = std::to_string(geteuid()), gid = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return fail(ErrorCode::denied,
                std::string("a private server needs root or user namespaces, and making one"
                            " failed (") +
                    std::strerror(errno) + "); run as root, or allow user namespaces");
  }
  TRY(write_file("/proc/self/setgroups", "deny"));
  TRY(write_file("/proc/self/uid_map", uid + " " + uid + " 1"));
  return write_file("/proc/self/gid_map", gid + " " + gid + " 1");
}

Result<void> enter_namespaces() {
  if (unshare(CLONE_NEWNS) != 0) TRY(enter_user_namespace());
  // Mounts of the machine still arrive; none of ours leave.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return fail(system_error("make mounts private"));
  return {};
}

// Puts one entry of `from` into `to`: a link is copied, anything else bound.
Result<void> carry_over(const std::string& from, const std::string& to) {
  struct stat status;
  if (lstat(from.c_str(), &status) != 0) return {};
  if (S_ISLNK(status.st_mode)) {
    std::array<char, PATH_MAX> target;
    const ssize_t length = readlink(from.c_str(), target.data(), target.size() - 1);
    if (length <= 0) return {};
    target[static_cast<size_t>(length)] = '\0';
    if (symlink(target.data(), to.c_str()) != 0) return fail(system_error("make the link " + to));
    return {};
  }
  if (S_ISDIR(status.st_mode)) {
    if (mkdir(to.c_str(), 0755) != 0) return fail(system_error("make " + to));
  } else {
    const int file = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return fail(system_error("make " + to));
    close(file);
  }
  if (mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    return fail(system_error("bind " + from + " to " + to));
  }
  return {};
}

// The kernel looks for pts beside the ptmx that is opened, and beside a bound file it finds nothing: so it is
// made anew, or, in a user namespace, led to the one that lies in pts.
Result<void> make_terminal_node(const std::string& to) {
  if (mknod(to.c_str(), S_IFCHR | 0666, makedev(5, 2)) == 0) {
    if (chmod(to.c_str(), 0666) == 0) return {};
    return fail(system_error("open " + to + " for all"));
  }
  if (symlink("pts/ptmx", to.c_str()) != 0) return fail(system_error("make the link " + to));
  return {};
}

std::vector<std::string> entries_of(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(directory.c_str()), closedir);
  if (listing == nullptr) return names;
  while (const dirent* entry = readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

// Replaces `directory` by a tmpfs that holds `names` of the old one. It is built at /tmp, which every
// machine has and which is only covered for a moment.
Result<void> rebuild(const std::string& directory, const std::vector<std::string>& names) {
  const std::string workshop = "/tmp";
  const bool in_workshop = mount("tmpfs", workshop.c_str(), "tmpfs", MS_NOSUID, "mode=755,size=50%") == 0;
  if (!in_workshop) return fail(system_error("mount a tmpfs"));
  Result<void> carried;
  for (const std::string& name : names) {
    const std::string to = workshop + "/" + name;
    carried = name == "ptmx" ? make_terminal_node(to) : carry_over(directory + "/" + name, to);
    if (!carried) break;
  }
  if (carried && mount(workshop.c_str(), directory.c_str(), nullptr, MS_MOVE, nullptr) != 0) {
    carried = fail(system_error("put the private " + directory + " in place"));
  }
  if (!carried) umount2(workshop.c_str(), MNT_DETACH);
  return carried;
}

Result<void> build_state(const ServerDescription& server) {
  std::vector<std::string> names = entries_of("/run");
  std::erase(names, "tranche-emulator");
  TRY(rebuild("/run", names));
  if (mkdir(kStateDirectory, 0755) != 0 || mkdir(kLibraryDirectory, 0755) != 0) {
    return fail(system_error(std::string("make ") + kStateDirectory));
  }
  TRY(install_libraries(kLibraryDirectory, server.driver_version));
  TRY_ASSIGN(const auto model, DeviceModel::create(kStateDirectory, server));
  return make_former_bytes(kStateDirectory, model->gpu_count());
}

// In a user namespace no device can be made; /dev/null, bound under the names, can be opened too.
Result<void> bind_stand_ins(uint32_t gpu_count) {
  for (const DeviceNode& node : server_nodes(gpu_count)) {
    TRY(carry_over("/dev/null", "/dev/" + node.name));
  }
  return {};
}

Result<void> build_nodes(uint32_t gpu_count) {
  TRY(rebuild("/dev", std::vector<std::string>(kUsualDevices.begin(), kUsualDevices.end())));
  // Servers side by side have loop devices of their own: one that ends takes its devices with it.
  const uint32_t server_number = 1 + static_cast<uint32_t>(getpid()) % (kServerNumbers - 1);
  if (make_nodes("/dev", gpu_count, server_number)) return {};
  return bind_stand_ins(gpu_count);
}

// Lays the libraries over the loader's own folder, so that they are found without any variable, by any user.
Result<void> show_libraries() {
  TRY_ASSIGN(const std::string directory, loader_directory());
  const std::string layers = std::string("lowerdir=") + kLibraryDirectory + ":" + directory;
  if (mount("overlay", directory.c_str(), "overlay", MS_RDONLY, layers.c_str()) != 0) {
    return fail(
        system_error("lay the emulated driver over " + directory +
                     " (overlay file systems must be allowed; a root on overlay needs a kernel from 5.11)"));
  }
  return {};
}

pid_t g_command = 0;

// A signal of the terminal has reached the command already: only those that a process sent are passed on.
void pass_on(int number, siginfo_t* information, void*) {
  if (g_command > 0 && information->si_code <= 0) kill(g_command, number);
}

constexpr std::array<int, 6> kPassedOn{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

[[noreturn]] void execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  std::fprintf(stderr, "tranche-emulator: cannot run %s: %s\n", arguments[0], std::strerror(error));
  _exit(error == ENOENT ? 127 : 126);
}

Result<int> run_and_wait(const std::vector<std::string>& command) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  g_command = fork();
  if (g_command < 0) return fail(system_error("start a process"));
  if (g_command == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    execute(command);
  }
  struct sigaction action = {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (int number : kPassedOn) sigaction(number, &action, nullptr);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = 0;
  while (waitpid(g_command, &status, 0) < 0) {
    if (errno != EINTR) return fail(system_error("wait for the command"));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<int> run_on_private_server(const ServerDescription& server, const std::vector<std::string>& command) {
  std::array<char, PATH_MAX> directory;
  const bool has_directory = getcwd(directory.data(), directory.size()) != nullptr;
  TRY(enter_namespaces());
  TRY(build_state(server));
  const auto gpu_count = static_cast<uint32_t>(server.gpus.size());
  TRY(build_nodes(gpu_count));
  TRY(show_libraries());
  unsetenv("TRANCHE_EMULATOR");
  // The path may lead to one of the folders that were replaced.
  if (has_directory && chdir(directory.data()) != 0)
    return fail(system_error("return to the current folder"));
  TRY_ASSIGN(const int code, run_and_wait(command));
  forget_loop_devices("/dev");
  return code;
}

}  // namespace tranche::emulator
