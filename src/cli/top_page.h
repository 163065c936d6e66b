// What `tranche top` shows: the GPUs with bars, and the jobs, in as many lines as there is room for.
#pragma once

#include <cstddef>
#include <string>

#include "base/units.h"
#include "cli/session.h"
#include "codec/api.h"

namespace tranche::cli {

struct TopState {
  Time now;
  api::StatusReport status;
  api::GpuList gpus;
  std::vector<api::JobSummary> jobs;
};

// Lines with newlines, at most `rows` of them; 0: all. Jobs that run come first, then those that wait, one's
// own (`uid`) highlighted; those without room are counted.
std::string top_page(const TopState& state, const Look& look, uid_t uid, size_t rows);

}  // namespace tranche::cli
