#include "cli/job_list.h"

#include <iterator>

#include "cli/daemon.h"

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

}  // namespace tranche::cli
