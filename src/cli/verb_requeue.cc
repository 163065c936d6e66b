// tranche requeue.
#include "cli/job_action.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_requeue(Session& session, const Arguments& arguments) {
  return act_on_jobs(session, arguments, "requeue", "requeued");
}

}  // namespace tranche::cli
