// tranche submit: a batch job, from a script or a command.
#include "cli/submission.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_submit(Session& session, const Arguments& arguments) {
  TRY_ASSIGN(const api::SubmitRequest request, make_submission(session, arguments));
  return submit_batch(session, arguments, request);
}

}  // namespace tranche::cli
