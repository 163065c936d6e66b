#include "launcher/driver_limits.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "isolation/task_cgroup.h"

namespace tranche::launcher {
namespace {

using isolation::failed;
using isolation::FileDescriptor;
using isolation::Outcome;

constexpr int kLongestWaitMs = 10'000;

std::string uuid_text(const uint8_t (&uuid)[16]) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    text += digits;
  }
  return text;
}

// The GPUs on which the driver was seen to hold a limit.
std::set<std::string> proven_gpus(const LauncherHost& host) {
  std::set<std::string> proven;
  if (host.guard_folder.empty()) return proven;
  const auto folder = isolation::open_own_folder_at(AT_FDCWD, host.guard_folder.c_str());
  if (!folder) return proven;
  const auto text = isolation::read_text_at(folder->get(), "limits");
  if (!text) return proven;
  constexpr std::string_view kEnforced = " enforced";
  std::string_view rest = *text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.starts_with("GPU-") || !line.ends_with(kEnforced)) continue;
    line.remove_suffix(kEnforced.size());
    proven.emplace(line);
  }
  return proven;
}

// Beside this program.
std::string helper_path() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1) + "tranche-memory-limit";
}

Outcome<void> wait_for(pid_t helper, const FileDescriptor& complaint) {
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, helper, 0)));
  pollfd ended{process.get(), POLLIN, 0};
  const bool in_time = process && ::poll(&ended, 1, kLongestWaitMs) == 1;
  if (!in_time) ::kill(helper, SIGKILL);
  int status = 0;
  // One that hangs in the driver does not even die: it is reaped when it does.
  if (::waitpid(helper, &status, in_time ? 0 : WNOHANG) != helper) {
    return failed(ETIMEDOUT, "the driver does not answer about memory limits");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  char text[200];
  const ssize_t length = ::read(complaint.get(), text, sizeof text);
  std::string sentence(text, length > 0 ? static_cast<size_t>(length) : 0);
  while (!sentence.empty() && sentence.back() == '\n') sentence.pop_back();
  return failed(EIO, "the driver's memory limit: " + (sentence.empty() ? "no answer" : sentence));
}

Outcome<void> run_helper(const LauncherHost& host, std::vector<std::string> words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return isolation::call_failed("pipe");
  const FileDescriptor complaint(ends[0]), stderr_end(ends[1]);
  const std::string program = helper_path();
  std::string library_path = "LD_LIBRARY_PATH=" + host.options.driver_library_folder;
  std::vector<char*> arguments, environment;
  words.insert(words.begin(), "tranche-memory-limit");
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  if (!host.options.driver_library_folder.empty()) environment.push_back(library_path.data());
  // Named by root when it started this program (base/failpoint.h).
  const char* const failpoints = std::getenv("TRANCHE_FAILPOINTS");
  std::string armed = std::string("TRANCHE_FAILPOINTS=") + (failpoints == nullptr ? "" : failpoints);
  if (failpoints != nullptr) environment.push_back(armed.data());
  environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, stderr_end.get(), STDERR_FILENO);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  pid_t helper = -1;
  const int error =
      ::posix_spawn(&helper, program.c_str(), &files, &attributes, arguments.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) return failed(error, "starting " + program + ": " + std::strerror(error));
  return wait_for(helper, complaint);
}

std::string folder_of(const LauncherHost& host, uint32_t uid, const wire::TaskKey& key) {
  return host.cgroups.unified_folder() + "/" + isolation::task_cgroup_name(uid, key);
}

}  // namespace

Outcome<bool> set_driver_limits(const LauncherHost& host, const wire::StartRequest& request) {
  if (request.share_count == 0) return false;
  const std::set<std::string> proven = proven_gpus(host);
  if (proven.empty()) return false;
  std::vector<std::string> words = {"set", folder_of(host, request.uid, request.key)};
  bool all = true;
  for (uint32_t i = 0; i < request.share_count; ++i) {
    const std::string uuid = uuid_text(request.shares[i].uuid);
    const uint64_t limit = request.shares[i].limit_bytes;
    if (!proven.contains(uuid) || limit == 0) {
      all = false;
      continue;
    }
    const uint64_t promised = request.guarantee_bytes[i] == 0 ? limit : request.guarantee_bytes[i];
    words.push_back(uuid + "=" + std::to_string(promised) + ":" + std::to_string(limit));
  }
  if (words.size() == 2) return false;
  TRY(run_helper(host, std::move(words)));
  return all;
}

Outcome<void> clear_driver_limits(const LauncherHost& host, uint32_t uid, const wire::TaskKey& key) {
  const std::set<std::string> proven = proven_gpus(host);
  const std::string folder = folder_of(host, uid, key);
  if (proven.empty() || ::access(folder.c_str(), F_OK) != 0) return {};
  std::vector<std::string> words = {"clear", folder};
  words.insert(words.end(), proven.begin(), proven.end());
  // One that was killed has perhaps done half; to clear twice is harmless, and nobody comes later.
  auto cleared = run_helper(host, words);
  if (!cleared && cleared.error().error != ETIMEDOUT) cleared = run_helper(host, std::move(words));
  return cleared;
}

}  // namespace tranche::launcher
