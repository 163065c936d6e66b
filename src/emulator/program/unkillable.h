// Processes that do not end, not even by SIGKILL, as one that waits inside a driver which never answers.
//
// A task in a frozen cgroup of the version 1 freezer keeps a SIGKILL pending until it is thawed, which is as
// close as user space comes to it (the freezer of version 2 lets a SIGKILL through). Needs root and that
// controller, which hosts with a pure version 2 hierarchy do not have.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace tranche::emulator {

Result<void> make_unkillable(int32_t pid);
// Those that were made so here, whether or not they live.
std::vector<int32_t> unkillable_processes();
// Lets them all go; what was sent to them takes effect.
void release_unkillable();

}  // namespace tranche::emulator
