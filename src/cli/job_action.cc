#include "cli/job_action.h"

#include <algorithm>

#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_ids.h"
#include "cli/job_list.h"
#include "cli/job_text.h"
#include "cli/option_error.h"
#include "cli/session.h"

namespace tranche::cli {
namespace {

Result<std::vector<api::JobSummary>> chosen_jobs(Daemon& daemon, const Session& session,
                                                 const Arguments& arguments) {
  if (!arguments.has("me")) {
    if (arguments.words.empty())
      return invalid("name the jobs, such as 7, 7_3, 7-9 or @, or all of yours with --me");
    TRY_ASSIGN(const std::vector<api::JobDetail> found,
               find_jobs(daemon, session, arguments.words, BareArray::kWhole));
    return std::vector<api::JobSummary>(found.begin(), found.end());
  }
  if (!arguments.words.empty()) return invalid("--me names all your jobs; leave out the ids");
  std::string target = "/v1/jobs";
  add_query(target, "user", session.user());
  TRY_ASSIGN(FetchedJobs fetched, fetch_jobs(daemon, target, SIZE_MAX));
  return std::move(fetched.list.jobs);
}

// A job that runs takes its time to end, up to its grace: until then it holds what it holds.
std::string what_became_of(const std::string& answer, std::string_view done) {
  const auto after = Daemon::decoded<api::JobSummary>(answer);
  if (!after || after->state != JobState::stopping) return std::string(done);
  return done == "requeued" ? "is being stopped, and waits again then" : "is being ended";
}

}  // namespace

Result<int> act_on_jobs(Session& session, const Arguments& arguments, std::string_view action,
                        std::string_view done) {
  Daemon daemon(session);
  TRY_ASSIGN(std::vector<api::JobSummary> jobs, chosen_jobs(daemon, session, arguments));
  // The last ones first: a slice that an ended element gives back goes to one that is not to run either
  // otherwise.
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.job > b.job; });
  if (jobs.empty()) session.note("you have no job that waits or runs\n");
  int worst = 0;
  for (const api::JobSummary& job : jobs) {
    if (arguments.has("dry-run")) {
      session.print("would be " + std::string(done) + ": " + job_label(job) + "\n");
      continue;
    }
    const std::string target = "/v1/jobs/" + std::to_string(job.job.value()) + "/" + std::string(action);
    const Result<std::string> answer = daemon.post(target);
    if (!answer) {
      session.warn(answer.error().message());
      worst = std::max(worst, exit_code(answer.error().code()));
      if (answer.error().code() == ErrorCode::unavailable) break;
    } else if (arguments.has("json")) {
      session.print_json(*answer);
    } else {
      session.print(job_label(job) + " " + what_became_of(*answer, done) + "\n");
    }
  }
  return worst;
}

}  // namespace tranche::cli
