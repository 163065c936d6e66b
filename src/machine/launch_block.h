// Writes the launch block (wire/launch_block.h): what a task executes, in a sealed memfd.
#pragma once

#include <string>

#include "base/result.h"
#include "linux/unique_fd.h"
#include "machine/task_host.h"

namespace tranche::machine {

// The bytes of the block. Fails if the plan is larger than the protocol allows.
Result<std::string> encode_launch_block(const LaunchPlan& plan);
// `bytes` in a memfd sealed against any change.
Result<UniqueFd> seal_in_memory(const std::string& bytes);

}  // namespace tranche::machine
