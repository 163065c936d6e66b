// tranche why: why a job waits, what it waits for and what would help.
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/explanation_text.h"
#include "cli/job_ids.h"
#include "cli/job_text.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_why(Session& session, const Arguments& arguments) {
  Daemon daemon(session);
  TRY_ASSIGN(const std::vector<api::JobDetail> jobs,
             find_jobs(daemon, session, arguments.words, BareArray::kFirst));
  for (const api::JobDetail& job : jobs) {
    TRY_ASSIGN(const std::string json, daemon.get("/v1/jobs/" + std::to_string(job.job.value()) + "/why"));
    if (arguments.has("json")) {
      session.print_json(json);
      continue;
    }
    TRY_ASSIGN(const Explanation explanation, Daemon::decoded<Explanation>(json));
    session.print(styled(session.look(), Style::kBold, job_label(job)) + "  " +
                  styled(session.look(), state_style(explanation.state), to_string(explanation.state)) +
                  "\n");
    session.print(explanation_text(explanation, session.setup().now));
    note_array(session, arguments.words, job, "why");
  }
  return 0;
}

}  // namespace tranche::cli
