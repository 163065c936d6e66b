// tranche run: a job in the foreground, as if it ran here.
#include "cli/interactive_session.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/submission.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

Result<void> check_foreground(const Arguments& arguments) {
  struct Unfit {
    std::string_view key;
    std::string_view why;
  };
  constexpr Unfit kUnfit[] = {{"array", "an array has no terminal"},
                              {"hold", "a held job would wait for ever here"},
                              {"output", "its output comes here"},
                              {"error", "its output comes here"},
                              {"input", "its input comes from here"},
                              {"parsable", "there is no id to print"},
                              {"idempotency-key", "a session cannot be repeated"}};
  for (const Unfit& unfit : kUnfit) {
    if (arguments.has(unfit.key)) {
      return invalid("--" + std::string(unfit.key) + " does not go with 'run': " + std::string(unfit.why) +
                     "; use --detach, or 'tranche submit'");
    }
  }
  if (arguments.has("pty") && arguments.has("no-pty"))
    return invalid("--pty and --no-pty contradict each other");
  return {};
}

}  // namespace

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

  return run_interactive(session, "/v1/run", api::encode(request), request.pty);
}

}  // namespace tranche::cli
