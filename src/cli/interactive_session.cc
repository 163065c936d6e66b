#include "cli/interactive_session.h"

#include <unistd.h>

#include "base/quantity_text.h"
#include "cli/attached_job.h"
#include "cli/daemon.h"
#include "cli/job_text.h"
#include "cli/raw_terminal.h"
#include "cli/session.h"
#include "cli/text.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

// The connection broke without an end: the daemon or its journal knows better than a guess.
Result<int> after_loss(Session& session, JobId job) {
  const std::string label = "job " + std::to_string(job.value());
  Daemon daemon(session);
  const Result<api::JobDetail> found =
      daemon.get_as<api::JobDetail>("/v1/jobs/" + std::to_string(job.value()));
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

bool is_in_background(const Session& session) {
  const int input = session.setup().input;
  return isatty(input) == 1 && tcgetpgrp(input) != getpgrp();
}

bool can_show_terminal(const Session& session) {
  return isatty(session.setup().input) == 1 && isatty(session.setup().output) == 1 &&
         !is_in_background(session);
}

Result<int> run_interactive(Session& session, std::string_view target, std::string_view body,
                            InteractiveOptions options) {
  Daemon daemon(session);
  HttpHeaders headers;
  if (!body.empty()) headers.push_back({"Content-Type", "application/json"});
  if (options.terminal) {
    // In the request, since a waiting client sends nothing: right from the job's first instruction.
    const WindowSize size = window_size(session.setup().input);
    headers.push_back(
        {"Tranche-Terminal-Size", std::to_string(size.rows) + "x" + std::to_string(size.columns)});
  }
  TRY_ASSIGN(HttpClient::Upgraded upgraded,
             daemon.http().upgrade("POST", target, "tranche-attach", headers, body));
  if (upgraded.reply.status != 101) return fail(Daemon::error_of(upgraded.reply));
  TRY_ASSIGN(const JobId job, job_of(upgraded.reply));
  if (options.accepted) options.accepted(job);
  const std::string id = std::to_string(job.value());
  const auto cancel = [&]() -> Result<void> {
    if (options.inside) return {};  // it hears of our end by the hang-up
    Daemon another(session);        // the first one's connection is the session's now
    TRY(another.post("/v1/jobs/" + id + "/cancel"));
    return {};
  };
  TRY_ASSIGN(const AttachedEnd end,
             attend_job(session, std::move(upgraded.socket), std::move(upgraded.early_bytes),
                        {.label = "job " + id,
                         .terminal = options.terminal,
                         .inside = options.inside,
                         .input = !is_in_background(session),
                         .cancel = cancel}));
  if (end.lost && options.inside) {
    session.warn("the connection to the command in job " + id + " broke; it ends with that");
    return kExitTrancheFailed;
  }
  if (end.lost && !end.cancelled) return after_loss(session, job);
  if (!end.text.empty()) session.warn(printable(end.text));
  return end.exit_code;
}

}  // namespace tranche::cli
