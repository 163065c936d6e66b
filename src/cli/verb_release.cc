// tranche release.
#include "cli/job_action.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_release(Session& session, const Arguments& arguments) {
  return act_on_jobs(session, arguments, "release", "released");
}

}  // namespace tranche::cli
