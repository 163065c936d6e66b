// One daemon, or one restore, at a time for a state directory.
#pragma once

#include <string>

#include "base/result.h"
#include "linux/unique_fd.h"

namespace tranche::machine {

// Holds `<state_directory>/lock` for as long as the descriptor is open; the kernel lets go of it with the
// process. `conflict` if another process has it.
Result<UniqueFd> lock_state(const std::string& state_directory);

}  // namespace tranche::machine
