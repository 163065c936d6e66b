// tranche-emulator fault: breaks the standing server by command, shows what is broken, puts it right.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::emulator {

// `words` follow "fault". invalid_argument: not understood; anything else: it could not be done.
Result<void> run_fault(const std::vector<std::string>& words);

}  // namespace tranche::emulator
