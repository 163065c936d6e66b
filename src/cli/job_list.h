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

// All jobs of `target` as a table, page by page, in the form that is quick to read; no JSON of them exists.
// Those of the user `me` are highlighted.
Result<Table> fetch_job_table(Daemon& daemon, const std::string& target, uid_t me, Time now);
// The same of jobs that are at hand.
Table job_table(const std::vector<api::JobSummary>& jobs, uid_t me, Time now);

}  // namespace tranche::cli
