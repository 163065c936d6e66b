// tranche-emulator reset: what nvidia-smi --gpu-reset does on a real server.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::emulator {

// `words` follow "reset". invalid_argument: not understood; conflict: somebody has the GPU open.
Result<void> run_reset(const std::vector<std::string>& words);

}  // namespace tranche::emulator
