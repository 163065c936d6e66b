// tranche wait: blocks until jobs have ended.
#include <algorithm>

#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_ids.h"
#include "cli/job_text.h"
#include "cli/job_wait.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_wait(Session& session, const Arguments& arguments) {
  Daemon daemon(session);
  TRY_ASSIGN(const std::vector<api::JobDetail> jobs,
             find_jobs(daemon, session, arguments.words, BareArray::kWhole));
  int worst = 0;
  for (const api::JobDetail& job : jobs) {
    TRY_ASSIGN(const api::JobSummary ended, wait_for_job(session.socket_path, job.job));
    worst = std::max(worst, job_exit_code(ended));
    if (arguments.has("json")) {
      session.print_json(api::encode(ended));
    } else {
      session.note(job_label(ended) + " " + std::string(to_string(ended.state)) + "\n");
    }
    session.flush();
  }
  return worst;
}

}  // namespace tranche::cli
