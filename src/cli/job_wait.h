// Waiting for the end of a job, across restarts of the daemon.
#pragma once

#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "codec/api.h"

namespace tranche::cli {

// Blocks until the job is final. A daemon that goes away is waited for (kDaemonPatience): jobs outlive it.
Result<api::JobSummary> wait_for_job(const std::string& socket_path, JobId job);

inline constexpr Duration kDaemonPatience = 120 * kSecond;

}  // namespace tranche::cli
