// The delegated subtrees that tasks live in: one in the unified hierarchy, which carries identity, device
// filter, freeze and kill, and where the host is hybrid one in each v1 hierarchy of memory, cpu and pids.
//
// All paths are opened once; tasks are made relative to these descriptors.
#pragma once

#include <string>
#include <string_view>

#include "isolation/file.h"

namespace tranche::isolation {

// Where the hierarchies are mounted, from the text of /proc/self/mountinfo. Empty: not mounted.
struct CgroupMounts {
  std::string unified;
  std::string v1_memory;
  std::string v1_cpu;
  std::string v1_pids;
};
CgroupMounts parse_cgroup_mounts(std::string_view mountinfo);

class CgroupTree {
 public:
  // Finds the hierarchies in /proc/self/mountinfo and opens `name` (as "tranche" or
  // "system.slice/tranche-jobs.service") in each, making it if it does not exist.
  static Outcome<CgroupTree> open(const std::string& name);

  int unified() const { return unified_.get(); }
  // -1 where the controller is on the unified hierarchy, or nowhere: see has_unified_controllers.
  int v1_memory() const { return v1_memory_.get(); }
  int v1_cpu() const { return v1_cpu_.get(); }
  int v1_pids() const { return v1_pids_.get(); }
  // memory, cpu and pids are controllers of the unified hierarchy.
  bool has_unified_controllers() const { return has_unified_controllers_; }
  // As /proc/PID/cgroup spells it: "/tranche".
  const std::string& path() const { return path_; }
  // Where the subtree lies: "/sys/fs/cgroup/unified/tranche".
  const std::string& unified_folder() const { return unified_folder_; }

  // Moves the calling process into `<root>/hold` of every hierarchy: what the holder does so that the subtree
  // stays delegated. Inner nodes of v2 may hold no process, hence a folder of its own.
  Outcome<void> hold() const;
  // The end of hold(): moves the calling process to the top and removes what open() made, as far as it is
  // empty.
  void leave_and_remove() const;

 private:
  std::string path_;
  std::string unified_folder_;
  FileDescriptor unified_;
  FileDescriptor v1_memory_;
  FileDescriptor v1_cpu_;
  FileDescriptor v1_pids_;
  std::string v1_folders_[3];
  CgroupMounts mounts_;
  bool has_unified_controllers_ = false;
};

// Enables memory, cpu and pids for the children of a cgroup2 folder, as far as it has them.
Outcome<void> enable_controllers(int folder);

}  // namespace tranche::isolation
