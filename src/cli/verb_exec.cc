// tranche exec: a command inside one's own running job.
#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/interactive_session.h"
#include "cli/job_ids.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

Result<api::ExecRequest> make_exec_request(const Session& session, const Arguments& arguments) {
  api::ExecRequest request;
  request.argv.assign(arguments.words.begin() + 1, arguments.words.end());
  if (!request.argv.empty() && request.argv.front() == "--") request.argv.erase(request.argv.begin());
  if (request.argv.empty()) return invalid("the command is missing; write: tranche exec ID -- COMMAND");
  for (const std::string& word : request.argv) {
    if (!is_valid_utf8(word)) return invalid("the argument " + in_quotes(word) + " is not UTF-8 text");
  }
  if (const std::string* value = arguments.find("task")) {
    TRY_OPTION(const int64_t rank, "--task",
               parse_integer(*value, 0, limits::kTasksMax - 1, "a task's rank"));
    request.rank = static_cast<uint32_t>(rank);
  }
  if (const std::string* value = arguments.find("chdir")) request.directory = *value;
  if (arguments.has("pty") && arguments.has("no-pty"))
    return invalid("--pty and --no-pty contradict each other");
  const bool possible = can_show_terminal(session);
  if (arguments.has("pty") && !possible)
    return invalid("--pty: standard input and output are not a terminal");
  request.pty = possible && !arguments.has("no-pty");
  // The job may have been submitted from another terminal, or from none.
  const std::string terminal = session.variable("TERM");
  if (request.pty && !terminal.empty()) request.environment.emplace_back("TERM", terminal);
  return request;
}

}  // namespace

Result<int> run_exec(Session& session, const Arguments& arguments) {
  if (arguments.words.empty()) return invalid("ID is missing; write: tranche exec ID -- COMMAND");
  TRY_ASSIGN(const api::ExecRequest request, make_exec_request(session, arguments));
  Daemon daemon(session);
  TRY_ASSIGN(const api::JobDetail job, find_job(daemon, session, arguments.words.front()));
  const std::string target = "/v1/jobs/" + std::to_string(job.job.value()) + "/exec";
  return run_interactive(session, target, api::encode(request), {.terminal = request.pty, .inside = true});
}

}  // namespace tranche::cli
