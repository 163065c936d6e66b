// tranche run: a job in the foreground, as if it ran here.
#include <unistd.h>

#include "base/quantity_text.h"
#include "cli/attached_job.h"
#include "cli/daemon.h"
#include "cli/job_text.h"
#include "cli/job_wait.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/submission.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

Result<void> check_foreground(const Arguments& arguments) {
  struct Unfit {
    std::string_view key;
    std::string_view why;
  };
  constexpr Unfit kUnfit[] = {
      {"array", "an array has no terminal"},          {"hold", "a held job would wait for ever here"},
      {"output", "its output comes here"},            {"error", "its output comes here"},
      {"input", "its input comes from here"},         {"parsable", "there is no id to print"},
      {"idempotency-key", "a session cannot be repeated"}};
  for (const Unfit& unfit : kUnfit) {
    if (arguments.has(unfit.key)) {
      return invalid("--" + std::string(unfit.key) + " does not go with 'run': " + std::string(unfit.why) +
                     "; use --detach, or 'tranche submit'");
    }
  }
  if (arguments.has("pty") && arguments.has("no-pty")) return invalid("--pty and --no-pty contradict each other");
  return {};
}

Result<bool> wants_terminal(const Session& session, const Arguments& arguments) {
  const bool possible = isatty(session.setup().input) == 1 && isatty(session.setup().output) == 1;
  if (arguments.has("pty") && !possible) return invalid("--pty: standard input and output are not a terminal");
  return possible && !arguments.has("no-pty");
}

// The connection broke without an end: the daemon or its journal knows better than a guess.
Result<int> after_loss(Session& session, JobId job) {
  const std::string label = "job " + std::to_string(job.value());
  Daemon daemon(session);
  const Result<api::JobDetail> found = daemon.get_as<api::JobDetail>("/v1/jobs/" + std::to_string(job.value()));
  if (found && is_final(found->state)) {
    session.warn("the connection to " + label + " broke; it is " + std::string(to_string(found->state)));
    return job_exit_code(*found);
  }
  session.warn("the connection to " + label + " broke; 'tranche show " + std::to_string(job.value()) +
               "' tells what became of it");
  return kExitTrancheFailed;
}

Result<JobId> job_of(const HttpReply& reply) {
  const std::string* header = reply.header("Tranche-Job");
  if (header == nullptr) return fail(ErrorCode::corrupt, "the daemon's answer names no job; see its log");
  TRY_ASSIGN(const int64_t id, parse_integer(*header, 1, limits::kIdMax, "the job in the daemon's answer"));
  return JobId(static_cast<uint64_t>(id));
}

}  // namespace

Result<int> run_run(Session& session, const Arguments& arguments) {
  if (arguments.words.empty()) return invalid("the command is missing; write: tranche run [options] -- COMMAND");
  const bool batch = arguments.has("detach") || arguments.has("dry-run");
  if (!batch) TRY(check_foreground(arguments));
  TRY_ASSIGN(api::SubmitRequest request, make_command_submission(session, arguments));
  if (batch) return submit_batch(session, arguments, request);
  TRY_ASSIGN(request.pty, wants_terminal(session, arguments));

  Daemon daemon(session);
  TRY_ASSIGN(HttpClient::Upgraded upgraded,
             daemon.http().upgrade("POST", "/v1/run", "tranche-attach", {{"Content-Type", "application/json"}},
                                   api::encode(request)));
  if (upgraded.reply.status != 101) return fail(Daemon::error_of(upgraded.reply));
  TRY_ASSIGN(const JobId job, job_of(upgraded.reply));
  const std::string id = std::to_string(job.value());
  AttachedJob attached(session, std::move(upgraded.socket), std::move(upgraded.early_bytes),
                       {.label = "job " + id, .terminal = request.pty, .cancel = [&]() -> Result<void> {
                          Daemon another(session);
                          TRY(another.post("/v1/jobs/" + id + "/cancel"));
                          return {};
                        }});
  TRY_ASSIGN(const AttachedEnd end, attached.run());
  if (end.lost && !end.cancelled) return after_loss(session, job);
  if (!end.text.empty()) session.warn(printable(end.text));
  return end.exit_code;
}

}  // namespace tranche::cli
