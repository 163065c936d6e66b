// The emulated driver's two libraries as files: where they were built and how they are put in place.
#pragma once

#include <string>

#include "base/result.h"

namespace tranche::emulator {

// To be called first in main(): after a change of mount namespace inside a chroot, the kernel spells the
// program's path as seen from outside.
void remember_program_path();

// Copies libcuda.so.1 and libnvidia-ml.so.1, with the links that programs look for, into `directory`, which
// exists, without the functions that a driver of `driver_version` lacks. They are found beside the running
// program: ../lib/emulator, or ../lib/tranche/emulator.
Result<void> install_libraries(const std::string& directory, const std::string& driver_version);
// Removes what install_libraries put there.
void remove_libraries(const std::string& directory);
// The folder where the dynamic loader finds libc, and so anything else put there.
Result<std::string> loader_directory();

}  // namespace tranche::emulator
