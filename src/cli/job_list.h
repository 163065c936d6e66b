// Lists of jobs: every page of them, as a table or as JSON.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/table.h"
#include "codec/api.h"

namespace tranche::cli {

class Daemon;

struct FetchedJobs {
  api::JobList list;  // of all pages
  std::string json;   // the daemon's own text if it was one page, else the same values in one document
};

// Follows the cursors of `target` until `enough` jobs are there.
Result<FetchedJobs> fetch_jobs(Daemon& daemon, const std::string& target, size_t enough);

// Their columns, those of the user `me` highlighted.
Table job_table(const std::vector<api::JobSummary>& jobs, uid_t me, Time now);

}  // namespace tranche::cli
