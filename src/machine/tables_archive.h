// The daemon's own tables as bytes (base/archive.h): what the journal's rows made of jobs and of the errors
// of GPUs. Not written: what jobs run and pids, which the journal's store and the root side know, and
// sentences with paths, which stand in no journal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "machine/fault_log.h"
#include "machine/job_table.h"

namespace tranche::machine {

// Raised with every change of what is written: a snapshot of another format is passed over.
inline constexpr uint32_t kTablesFormat = 3;

// Jobs that live, the next id, and faults.
std::string save_tables(const JobTable& jobs, const FaultLog& faults);
// Records by id, ended or not.
std::string save_records(const JobTable& jobs, const std::vector<JobId>& ids);

// Both add to what is there. Errors: corrupt.
Result<void> load_tables(std::string_view bytes, JobTable& jobs, FaultLog& faults);
Result<void> load_records(std::string_view bytes, JobTable& jobs);

}  // namespace tranche::machine
