// Who gets how much of the processors while they are short, where cgroup version 2 has the controller.
//
// There siblings share what their parent is given: a task counts against the other tasks of its job, the job
// against the user's other jobs, the user against other users. So each level weighs what the tasks below it
// ask for together; otherwise every user, and every job of a user, would get the same, whatever it asked for.
// In version 1 tasks are siblings of each other, and nothing is needed above them.
#pragma once

#include <cstdint>

#include "isolation/cgroup_tree.h"

namespace tranche::isolation {

// The kernel takes 1 to 10,000 (Documentation/admin-guide/cgroup-v2.rst, cpu.weight): a core is 20, so that a
// user's jobs may ask for 500 cores together before the difference to more is lost; below a twentieth all
// count the same.
uint64_t cpu_weight(uint64_t milli);

// Weighs the job's and the user's level again, after a task of theirs has come, gone or changed. Others may
// do the same at the same time: who writes last has seen what all of them left. Levels that have gone
// meanwhile are passed over.
void weigh_levels(const CgroupTree& tree, uint32_t uid, uint64_t job);

}  // namespace tranche::isolation
