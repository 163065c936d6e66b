#include "isolation/cgroup_sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "isolation/task_cgroup.h"

namespace tranche::isolation {
namespace {

// Names of the folders in `root`/`name` that begin with `prefix`.
std::vector<std::string> folders_of(int root, const std::string& name, char prefix) {
  std::vector<std::string> names;
  const int own = root < 0 ? -1 : ::openat(root, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = own < 0 ? nullptr : ::fdopendir(own);
  if (folder == nullptr) return names;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_type == DT_DIR && entry->d_name[0] == prefix) names.emplace_back(entry->d_name);
  }
  ::closedir(folder);
  return names;
}

void find_unified(int root, std::vector<FoundCgroup>& found) {
  for (const std::string& user : folders_of(root, ".", 'u')) {
    for (const std::string& job : folders_of(root, user, 'j')) {
      const std::string parent = user + "/" + job;
      for (const std::string& task : folders_of(root, parent, 't')) {
        FoundCgroup one;
        const std::string name = parent + "/" + task;
        if (parse_task_cgroup("/" + name, "", one.key, one.uid) &&
            task_cgroup_name(one.uid, one.key) == name) {
          found.push_back(one);
        }
      }
    }
  }
}

void find_v1(int root, std::vector<FoundCgroup>& found) {
  for (const std::string& name : folders_of(root, ".", 'u')) {
    // u2001.j5.t0.1: the first two dots stand for slashes.
    std::string path = name;
    for (int level = 0; level < 2; ++level) {
      const size_t dot = path.find('.');
      if (dot != std::string::npos) path[dot] = '/';
    }
    FoundCgroup one;
    if (parse_task_cgroup("/" + path, "", one.key, one.uid) && task_cgroup_v1_name(one.uid, one.key) == name)
      found.push_back(one);
  }
}

bool is_less(const FoundCgroup& a, const FoundCgroup& b) {
  if (a.uid != b.uid) return a.uid < b.uid;
  if (a.key.job != b.key.job) return a.key.job < b.key.job;
  if (a.key.rank != b.key.rank) return a.key.rank < b.key.rank;
  return a.key.attempt < b.key.attempt;
}

}  // namespace

std::vector<FoundCgroup> find_task_cgroups(const CgroupTree& tree) {
  std::vector<FoundCgroup> found;
  find_unified(tree.unified(), found);
  for (const int root : {tree.v1_memory(), tree.v1_cpu(), tree.v1_pids()}) find_v1(root, found);
  std::sort(found.begin(), found.end(), is_less);
  const auto is_same = [](const FoundCgroup& a, const FoundCgroup& b) {
    return !is_less(a, b) && !is_less(b, a);
  };
  found.erase(std::unique(found.begin(), found.end(), is_same), found.end());
  return found;
}

void remove_empty_levels(const CgroupTree& tree) {
  for (const std::string& user : folders_of(tree.unified(), ".", 'u')) {
    for (const std::string& job : folders_of(tree.unified(), user, 'j'))
      ::unlinkat(tree.unified(), (user + "/" + job).c_str(), AT_REMOVEDIR);
    ::unlinkat(tree.unified(), user.c_str(), AT_REMOVEDIR);
  }
}

}  // namespace tranche::isolation
