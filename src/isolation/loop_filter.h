// On an emulated server GPU nodes are unbound loop devices, and whoever can open one can bind a file to it.
// This seccomp filter answers EPERM to every ioctl of the loop driver (0x4Cxx), in every calling convention.
#pragma once

#include "isolation/failure.h"

namespace tranche::isolation {

// For the calling thread and all it will start. As root, or with no_new_privs set.
Outcome<void> refuse_loop_ioctls();

}  // namespace tranche::isolation
