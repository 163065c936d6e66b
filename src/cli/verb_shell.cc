// tranche shell: an interactive job that is one's own shell.
#include "cli/arguments.h"
#include "cli/interactive_session.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/submission.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_shell(Session& session, const Arguments& arguments) {
  if (!can_show_terminal(session)) {
    return invalid("a shell needs a terminal; for a script write: tranche run -- COMMAND");
  }
  TRY(check_foreground(arguments));
  Arguments with_command = arguments;
  const std::string shell = session.variable("SHELL");
  with_command.words = {shell.empty() ? "/bin/sh" : shell};
  TRY_ASSIGN(api::SubmitRequest request, make_command_submission(session, with_command));
  request.pty = true;
  if (!request.name) request.name = "shell";
  if (!request.job_class) request.job_class = JobClass::interactive;
  return run_interactive(session, "/v1/run", api::encode(request), {.terminal = true});
}

}  // namespace tranche::cli
