#include "cli/job_list.h"

#include <iterator>

#include "cli/daemon.h"
#include "cli/job_text.h"

namespace tranche::cli {

Result<FetchedJobs> fetch_jobs(Daemon& daemon, const std::string& target, size_t enough) {
  FetchedJobs fetched;
  TRY_ASSIGN(fetched.json, daemon.get(target));
  TRY_ASSIGN(fetched.list, Daemon::decoded<api::JobList>(fetched.json));
  std::vector<api::JobSummary>& jobs = fetched.list.jobs;
  if (!fetched.list.next_cursor || jobs.size() >= enough) return fetched;
  constexpr size_t kPagesMax = 10'000;
  for (size_t pages = 1; pages < kPagesMax && fetched.list.next_cursor && jobs.size() < enough; ++pages) {
    std::string next = target;
    add_query(next, "cursor", *fetched.list.next_cursor);
    TRY_ASSIGN(api::JobList page, daemon.get_as<api::JobList>(next));
    jobs.insert(jobs.end(), std::make_move_iterator(page.jobs.begin()),
                std::make_move_iterator(page.jobs.end()));
    fetched.list.next_cursor = std::move(page.next_cursor);
  }
  if (jobs.size() > enough) jobs.resize(enough);
  fetched.json = api::encode(fetched.list);
  return fetched;
}

Table job_table(const std::vector<api::JobSummary>& jobs, uid_t me, Time now) {
  Table table({{.title = "ID", .right = true},
               {.title = "NAME", .width_min = 6},
               {.title = "USER", .width_min = 6},
               {.title = "QUEUE", .width_min = 14, .leaves = 5},
               {.title = "CLASS", .width_min = 9, .leaves = 6},
               {.title = "STATE", .width_min = 7},
               {.title = "GPU", .width_min = 4, .leaves = 1},
               {.title = "GPUS", .width_min = 4, .leaves = 3},
               {.title = "TIME", .right = true, .leaves = 2},
               {.title = "LIMIT", .right = true, .leaves = 4},
               {.title = "REASON", .width_min = 10}});
  for (const api::JobSummary& job : jobs) {
    table.add({{job.display},
               {job.name.value_or("-")},
               {job.user},
               {job.queue},
               {std::string(to_string(job.job_class))},
               {std::string(to_string(job.state)), state_style(job.state)},
               {gpu_text(job)},
               {indices_text(job.gpus)},
               {elapsed_text(job, now)},
               {duration_text(job.time_limit)},
               {with_local_times(job.reason.value_or(""))}},
              job.uid == me ? Style::kBold : Style::kPlain);
  }
  return table;
}

}  // namespace tranche::cli
