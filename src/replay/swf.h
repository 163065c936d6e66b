// Logs in the Standard Workload Format of the Parallel Workloads Archive: 18 columns, comments begin with
// ';'.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::replay {

struct SwfJob {
  int64_t id = 0;
  int64_t submit_s = 0;
  int64_t run_s = 0;
  int64_t processors = 0;   // allocated, or requested where that is unknown
  int64_t requested_s = 0;  // the user's estimate; the run time where there is none
  int64_t user = -1;
};

// Usable records only: a known run time above zero and at least one processor. In order of submission.
Result<std::vector<SwfJob>> read_swf_jobs(const std::string& path);

}  // namespace tranche::replay
