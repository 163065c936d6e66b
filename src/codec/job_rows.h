// Jobs as lines with tabs: what `tranche ls` reads, because 10,000 jobs as JSON objects cost it more than all
// the rest. GET /v1/jobs answers so when asked for text/tab-separated-values; api/openapi.yaml has the
// contract.
//
// The first line names the columns; new ones are only ever added behind the others, and readers pass over
// those that they do not know. Tab, newline, carriage return and backslash stand as \t, \n, \r and \\; an
// empty cell is a value that is not there. Times and durations are integers of nanoseconds. Columns hold what
// a list shows: cause, code and signal of an end are in the JSON.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/api.h"

namespace tranche::api {

inline constexpr std::string_view kJobRowsType = "text/tab-separated-values";
// The line of names, with its newline.
inline constexpr std::string_view kJobRowsHeading =
    "job\tdisplay\tname\tuser\tuid\tqueue\tclass\tstate\tpriority\tgpu\tgpus\ttier\tsubmitted\tstarted\tended"
    "\t"
    "time_limit\tattempt\treason\n";

// Writes the lines of one answer. What jobs ask for is mostly the same: a request that was written last is
// not encoded again.
class JobRowWriter {
 public:
  void append(std::string& output, const JobSummary& job);

 private:
  GpuRequest last_gpu_;
  std::string last_gpu_text_;
};
// One line, for those who have no more.
void append_job_row(std::string& output, const JobSummary& job);

// Gives each job of a whole answer, heading included, to `take`; the same object is filled anew for each, and
// is the callee's only meanwhile. Error: one sentence about the first line that cannot be read; those before
// it were taken.
Result<void> read_job_rows(std::string_view text, const std::function<void(const JobSummary& job)>& take);

}  // namespace tranche::api
