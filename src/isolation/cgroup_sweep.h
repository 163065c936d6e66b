// What an earlier life of the launcher left in the delegated subtrees: every task's cgroup that exists, in
// whichever hierarchy.
#pragma once

#include <cstdint>
#include <vector>

#include "isolation/cgroup_tree.h"
#include "wire/launcher.h"

namespace tranche::isolation {

struct FoundCgroup {
  uint32_t uid = 0;
  wire::TaskKey key{};
};

// Each once, in no particular order. What is not named as a task's cgroup is not ours and not listed.
std::vector<FoundCgroup> find_task_cgroups(const CgroupTree& tree);

// Removes the users' and jobs' folders of the unified hierarchy that have nothing in them.
void remove_empty_levels(const CgroupTree& tree);

}  // namespace tranche::isolation
