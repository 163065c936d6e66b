#include "isolation/cgroup_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace tranche::isolation {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool contains(const std::vector<std::string_view>& parts, std::string_view wanted) {
  for (const std::string_view part : parts) {
    if (part == wanted) return true;
  }
  return false;
}

// Opens `mount`/`name`, making one level after the other.
Outcome<FileDescriptor> make_path(const std::string& mount, const std::string& name, bool with_controllers) {
  TRY_ASSIGN(FileDescriptor folder, open_at(AT_FDCWD, mount.c_str(), O_RDONLY | O_DIRECTORY));
  for (const std::string_view part : split(name, '/')) {
    // Best effort above the delegated root: under systemd it is not ours to change and already done.
    if (with_controllers) (void)enable_controllers(folder.get());
    const std::string level(part);
    if (::mkdirat(folder.get(), level.c_str(), 0755) != 0 && errno != EEXIST) {
      return call_failed("making cgroup " + mount + "/" + name);
    }
    TRY_ASSIGN(folder, open_at(folder.get(), level.c_str(), O_RDONLY | O_DIRECTORY));
  }
  return folder;
}

bool is_plain_name(const std::string& name) {
  for (const std::string_view part : split(name, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

}  // namespace

CgroupMounts parse_cgroup_mounts(std::string_view mountinfo) {
  CgroupMounts mounts;
  for (const std::string_view line : split(mountinfo, '\n')) {
    // "36 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    const std::string folder(before[4]);
    if (after[0] == "cgroup2" && mounts.unified.empty()) mounts.unified = folder;
    if (after[0] != "cgroup") continue;
    const auto options = split(after[2], ',');
    if (contains(options, "memory") && mounts.v1_memory.empty()) mounts.v1_memory = folder;
    if (contains(options, "cpu") && mounts.v1_cpu.empty()) mounts.v1_cpu = folder;
    if (contains(options, "pids") && mounts.v1_pids.empty()) mounts.v1_pids = folder;
  }
  return mounts;
}

Outcome<void> enable_controllers(int folder) {
  TRY_ASSIGN(const std::string available, read_text_at(folder, "cgroup.controllers"));
  std::string wanted;
  for (const std::string_view word :
       split(std::string_view(available).substr(0, available.find('\n')), ' ')) {
    if (word == "memory" || word == "cpu" || word == "pids")
      wanted += (wanted.empty() ? "+" : " +") + std::string(word);
  }
  if (wanted.empty()) return {};
  return write_text_at(folder, "cgroup.subtree_control", wanted);
}

Outcome<CgroupTree> CgroupTree::open(const std::string& name) {
  if (!is_plain_name(name)) return failed(EINVAL, "--cgroup-root must be a relative path, as tranche");
  TRY_ASSIGN(const std::string mountinfo, read_text_at(AT_FDCWD, "/proc/self/mountinfo"));
  const CgroupMounts mounts = parse_cgroup_mounts(mountinfo);
  if (mounts.unified.empty()) {
    return failed(
        ENODEV, "no cgroup2 hierarchy is mounted; mount one (mount -t cgroup2 none /sys/fs/cgroup/unified)");
  }
  CgroupTree tree;
  tree.mounts_ = mounts;
  tree.path_ = "/" + name;
  tree.unified_folder_ = mounts.unified + "/" + name;
  TRY_ASSIGN(tree.unified_, make_path(mounts.unified, name, true));
  TRY_ASSIGN(const std::string controllers, read_text_at(tree.unified_.get(), "cgroup.controllers"));
  tree.has_unified_controllers_ = controllers.find("memory") != std::string::npos;
  const std::string* v1_mounts[3] = {&mounts.v1_memory, &mounts.v1_cpu, &mounts.v1_pids};
  FileDescriptor* v1[3] = {&tree.v1_memory_, &tree.v1_cpu_, &tree.v1_pids_};
  for (int i = 0; i < 3; ++i) {
    if (v1_mounts[i]->empty()) continue;
    TRY_ASSIGN(*v1[i], make_path(*v1_mounts[i], name, false));
    tree.v1_folders_[i] = *v1_mounts[i] + "/" + name;
  }
  return tree;
}

Outcome<void> CgroupTree::hold() const {
  for (const int root : {unified(), v1_memory(), v1_cpu(), v1_pids()}) {
    if (root < 0) continue;
    if (::mkdirat(root, "hold", 0755) != 0 && errno != EEXIST)
      return call_failed("making the holder's cgroup");
    TRY(write_text_at(root, "hold/cgroup.procs", "0"));
  }
  if (has_unified_controllers_) TRY(enable_controllers(unified()));
  return {};
}

void CgroupTree::leave_and_remove() const {
  for (const std::string* mount : {&mounts_.unified, &mounts_.v1_memory, &mounts_.v1_cpu, &mounts_.v1_pids}) {
    if (!mount->empty()) (void)write_text_at(AT_FDCWD, (*mount + "/cgroup.procs").c_str(), "0");
  }
  for (const int root : {unified(), v1_memory(), v1_cpu(), v1_pids()}) {
    if (root >= 0) ::unlinkat(root, "hold", AT_REMOVEDIR);
  }
  ::rmdir(unified_folder_.c_str());
  for (const std::string& folder : v1_folders_) {
    if (!folder.empty()) ::rmdir(folder.c_str());
  }
}

}  // namespace tranche::isolation
