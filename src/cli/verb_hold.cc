// tranche hold.
#include "cli/job_action.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_hold(Session& session, const Arguments& arguments) {
  return act_on_jobs(session, arguments, "hold", "held");
}

}  // namespace tranche::cli
