// The least that a part of a GPU is good for: a program's first context has to fit into it. What a context
// takes was measured on each GPU when Tranche was started (tranche-up, into guard/contexts of the run
// directory); where it was not, kLeastContext is taken, which no driver is known to stay below.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model/gpu.h"
#include "model/job.h"

namespace tranche::machine {

inline constexpr MiB kLeastContext{64};

// What one context takes on each GPU, in the order of `gpus`.
std::vector<MiB> context_sizes(const std::string& run_dir, const std::vector<const Gpu*>& gpus);

// Refuses a request for parts in which no context fits on any GPU that would do (invalid_argument).
Result<void> check_least_part(const GpuRequest& request, const std::vector<const Gpu*>& gpus,
                              const std::vector<MiB>& contexts);

}  // namespace tranche::machine
