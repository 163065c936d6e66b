// tranche cancel.
#include "cli/job_action.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_cancel(Session& session, const Arguments& arguments) {
  return act_on_jobs(session, arguments, "cancel", "cancelled");
}

}  // namespace tranche::cli
