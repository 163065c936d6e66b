// tranche run: a job in the foreground, as if it ran here.
#include "cli/daemon.h"
#include "cli/interactive_session.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/snapshot.h"
#include "cli/submission.h"
#include "cli/verbs.h"

namespace tranche::cli {
Result<int> run_run(Session& session, const Arguments& arguments) {
  if (arguments.words.empty())
    return invalid("the command is missing; write: tranche run [options] -- COMMAND");
  const bool batch = arguments.has("detach") || arguments.has("dry-run");
  if (!batch) TRY(check_foreground(arguments));
  TRY_ASSIGN(api::SubmitRequest request, make_command_submission(session, arguments));
  if (batch) return submit_batch(session, arguments, request);
  const bool possible = can_show_terminal(session);
  if (arguments.has("pty") && !possible)
    return invalid("--pty: standard input and output are not a terminal");
  request.pty = possible && !arguments.has("no-pty");

  const auto note_snapshot = [&](JobId job) {
    Daemon another(session);  // the first one's connection is the job's now
    api::SubmitResponse response;
    response.job = job;
    if (request.snapshot_of) keep_snapshot(session, another, request, response);
  };
  return run_interactive(session, "/v1/run", api::encode(request),
                         {.terminal = request.pty, .accepted = note_snapshot});
}

}  // namespace tranche::cli
