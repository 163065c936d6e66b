// tranche-emulator mig: cuts the standing server's GPUs into instances, as nvidia-smi mig does on a real one.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::emulator {

// `words` follow "mig". invalid_argument: not understood; anything else: it could not be done.
Result<void> run_mig(const std::vector<std::string>& words);

}  // namespace tranche::emulator
