// What every task of this launcher has in common: options, open folders, cgroup roots. Made once; shepherds
// inherit it through fork.
#pragma once

#include <string>
#include <vector>

#include "isolation/cgroup_tree.h"
#include "isolation/device_filter.h"
#include "isolation/identity.h"
#include "isolation/process_state.h"
#include "wire/launcher.h"

namespace tranche::launcher {

struct Options {
  std::string run_folder = "/run/tranche";
  std::string daemon_user = "tranche";
  std::string cgroup_root = "tranche";
  std::string driver_library_folder;  // empty: the host has its driver in place
  uint32_t first_ordinary_uid = isolation::kFirstOrdinaryUid;
  uint32_t max_tasks = 4096;
  bool hold = false;
  // Without root: all tasks are of who runs this, and no cgroup, filter or mount is made.
  bool personal = false;
  bool end_tasks = false;
  int ready_file = -1;  // told one line when requests are served
};

struct LauncherHost {
  Options options;
  isolation::FileDescriptor run_folder;
  isolation::FileDescriptor tasks_folder;
  isolation::FileDescriptor jobs_folder;
  isolation::CgroupTree cgroups;
  isolation::InheritedState inherited;
  std::string library_folder;
  std::string
      guard_folder;  // `guard` in the run folder, where there is one that fits this driver; empty: none
  uint32_t daemon_uid = 0;
  uint32_t daemon_gid = 0;
};

// Opens and makes everything above; says which option is wrong.
isolation::Outcome<LauncherHost> open_host(const Options& options);

// Says "ready" to the service manager, if there is one, and on Options::ready_file, which it closes.
void tell_ready(const Options& options);

// One accepted Start, on its way into a shepherd.
struct TaskPlan {
  wire::StartRequest request{};
  isolation::Identity identity;
  std::vector<isolation::DeviceNode> nodes;
  int device_filter = -1;  // for them; the launcher's, which a shepherd has inherited
  isolation::FileDescriptor launch_block;
  isolation::FileDescriptor client;  // with kStartInteractive
};

}  // namespace tranche::launcher
