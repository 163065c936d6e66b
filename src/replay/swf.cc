#include "replay/swf.h"

#include <algorithm>

#include "replay/trace_file.h"

namespace tranche::replay {

Result<std::vector<SwfJob>> read_swf_jobs(const std::string& path) {
  TRY_ASSIGN(const TraceTable table, TraceTable::read_columns(path, ';'));
  std::vector<SwfJob> jobs;
  for (size_t row = 0; row < table.rows(); ++row) {
    SwfJob job;
    job.id = table.integer(row, 0);
    job.submit_s = table.integer(row, 1);
    job.run_s = table.integer(row, 3);
    job.processors = table.integer(row, 4);
    if (job.processors <= 0) job.processors = table.integer(row, 7);
    job.requested_s = table.integer(row, 8);
    job.user = table.integer(row, 11);
    if (job.run_s <= 0 || job.processors <= 0 || job.submit_s < 0) continue;
    if (job.requested_s <= 0) job.requested_s = job.run_s;
    jobs.push_back(job);
  }
  TRY(table.check());
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const SwfJob& a, const SwfJob& b) { return a.submit_s < b.submit_s; });
  return jobs;
}

}  // namespace tranche::replay
