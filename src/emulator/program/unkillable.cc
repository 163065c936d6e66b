#include "emulator/program/unkillable.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

namespace tranche::emulator {
namespace {

constexpr const char* kFreezer = "/sys/fs/cgroup/freezer";

// Process ids are those of a PID namespace, and so are the names.
std::string prefix() {
  struct stat status;
  const uint64_t pid_namespace = stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
  return "tranche-emulator-unkillable-" + std::to_string(pid_namespace) + "-";
}

bool write_text(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(file);
  errno = error;
  return written;
}

std::string folder_of(int32_t pid) { return std::string(kFreezer) + "/" + prefix() + std::to_string(pid); }

// The processes in the cgroup go to the root, so that it can be removed.
void remove_cgroup(const std::string& folder) {
  constexpr int kTries = 200;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 5'000'000};
  for (int i = 0; i < kTries && rmdir(folder.c_str()) != 0 && errno == EBUSY; ++i) {
    const int file = open((folder + "/cgroup.procs").c_str(), O_RDONLY | O_CLOEXEC);
    char text[512];
    const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    const std::string_view first(text, length < 0 ? 0 : static_cast<size_t>(length));
    const size_t end = first.find('\n');
    if (end != std::string_view::npos) {
      write_text(std::string(kFreezer) + "/cgroup.procs", first.substr(0, end));
    } else {
      nanosleep(&kPause, nullptr);
    }
  }
}

}  // namespace

Result<void> make_unkillable(int32_t pid) {
  const std::string folder = folder_of(pid);
  const auto failed = [&](const std::string& what) {
    const std::string reason = std::strerror(errno);
    rmdir(folder.c_str());
    return fail(ErrorCode::unavailable, "cannot " + what + ": " + reason +
                                            "; this fault needs root and the version 1 freezer in " +
                                            kFreezer);
  };
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return failed("make " + folder);
  if (!write_text(folder + "/cgroup.procs", std::to_string(pid))) {
    return failed("move process " + std::to_string(pid));
  }
  if (!write_text(folder + "/freezer.state", "FROZEN"))
    return failed("freeze process " + std::to_string(pid));
  return {};
}

std::vector<int32_t> unkillable_processes() {
  std::vector<int32_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(kFreezer), closedir);
  if (listing == nullptr) return pids;
  const std::string begin = prefix();
  while (const dirent* entry = readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(begin)) continue;
    int32_t pid = 0;
    const auto parsed = std::from_chars(name.data() + begin.size(), name.data() + name.size(), pid);
    if (parsed.ec == std::errc()) pids.push_back(pid);
  }
  return pids;
}

void release_unkillable() {
  for (const int32_t pid : unkillable_processes()) {
    write_text(folder_of(pid) + "/freezer.state", "THAWED");
    remove_cgroup(folder_of(pid));
  }
}

}  // namespace tranche::emulator
