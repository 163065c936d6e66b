// tranche attach: back to the terminal of one's own job, after its window was closed.
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/interactive_session.h"
#include "cli/job_ids.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_attach(Session& session, const Arguments& arguments) {
  Daemon daemon(session);
  TRY_ASSIGN(const api::JobDetail job, find_job(daemon, session, arguments.words.front()));
  const std::string target = "/v1/jobs/" + std::to_string(job.job.value()) + "/attach";
  return run_interactive(session, target, {}, {.terminal = can_show_terminal(session)});
}

}  // namespace tranche::cli
