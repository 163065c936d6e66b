// Which processes hold GPU nodes open: every file descriptor of every process, compared by device number.
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "isolation/task_cgroup.h"
#include "launcher/helper.h"
#include "launcher/personal_task.h"

namespace tranche::launcher {
namespace {

using isolation::FileDescriptor;

struct WantedNode {
  uint32_t gpu_minor;
  isolation::DeviceNode node;
};

// Calls `use(name)` for every entry of the folder whose name is a number.
template <class Use>
void for_each_number(int parent, const char* name, const Use& use) {
  const int own = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = own < 0 ? nullptr : ::fdopendir(own);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) != 0) use(::dirfd(folder), entry->d_name);
  }
  ::closedir(folder);
}

bool is_node(int folder, const char* file, const isolation::DeviceNode& node) {
  struct statx status {};
  // DONT_SYNC: a file on a dead file server must not hold up the scan.
  if (::statx(folder, file, AT_STATX_DONT_SYNC, STATX_TYPE, &status) != 0) return false;
  const bool is_block = S_ISBLK(status.stx_mode);
  if (!is_block && !S_ISCHR(status.stx_mode)) return false;
  return is_block == node.is_block && status.stx_rdev_major == node.major &&
         status.stx_rdev_minor == node.minor;
}

// By mark or descent where there is no cgroup to tell it.
void name_personal_task(const LauncherHost& host, wire::ScanEntry& entry) {
  if (const auto key = find_task_of(host, entry.pid)) entry.key = *key;
}

void describe(const LauncherHost& host, int process, const char* pid, wire::ScanEntry& entry) {
  entry.pid = ::atoi(pid);
  entry.start_ticks = process_start_ticks(entry.pid);
  if (const auto text = isolation::read_text_at(process, "status")) {
    const size_t line = text->find("\nUid:\t");
    if (line != std::string::npos)
      entry.uid = static_cast<uint32_t>(::strtoul(text->c_str() + line + 6, nullptr, 10));
  }
  if (const auto text = isolation::read_text_at(process, "comm")) {
    const size_t count = std::min({text->size(), text->find('\n'), sizeof entry.command - 1});
    std::memcpy(entry.command, text->data(), count);
  }
  if (host.options.personal) return name_personal_task(host, entry);
  if (const auto text = isolation::read_text_at(process, "cgroup")) {
    const size_t line = text->find("0::");
    if (line == std::string::npos) return;
    const std::string path = text->substr(line + 3, text->find('\n', line) - line - 3);
    set_text(entry.cgroup, path);
    uint32_t uid = 0;
    wire::TaskKey key{};
    if (isolation::parse_task_cgroup(path, host.cgroups.path(), key, uid)) entry.key = key;
  }
}

}  // namespace

void scan_processes(const LauncherHost& host, const wire::ScanRequest& request, int socket) {
  std::vector<WantedNode> wanted;
  for (uint32_t i = 0; i < request.gpu_count; ++i) {
    const auto node = isolation::find_device_node("/dev/nvidia" + std::to_string(request.gpu_minors[i]));
    if (node) wanted.push_back({request.gpu_minors[i], *node});
  }
  auto reply = make_message<wire::Reply>(wire::LauncherKind::reply, request.header.id);
  const auto send = [socket](const auto& message) {
    (void)::send(socket, &message, sizeof message, MSG_NOSIGNAL);
  };
  for_each_number(AT_FDCWD, "/proc", [&](int proc, const char* pid) {
    const FileDescriptor process(::openat(proc, pid, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::vector<bool> holds(wanted.size());
    for_each_number(process.get(), "fd", [&](int files, const char* file) {
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (!holds[i] && is_node(files, file, wanted[i].node)) holds[i] = true;
      }
    });
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!holds[i]) continue;
      auto entry = make_message<wire::ScanEntry>(wire::LauncherKind::scan_entry, request.header.id);
      entry.gpu_minor = wanted[i].gpu_minor;
      describe(host, process.get(), pid, entry);
      send(entry);
      ++reply.entries;
    }
  });
  send(reply);
}

}  // namespace tranche::launcher
