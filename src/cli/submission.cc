#include "cli/submission.h"

#include <unistd.h>

#include "base/quantity_text.h"
#include "cli/daemon.h"
#include "cli/explanation_text.h"
#include "cli/job_request.h"
#include "cli/job_text.h"
#include "cli/job_wait.h"
#include "cli/option_error.h"
#include "cli/script.h"
#include "cli/session.h"
#include "cli/snapshot.h"
#include "cli/text.h"
#include "codec/limits.h"
#include "linux/files.h"

namespace tranche::cli {
namespace {

Result<void> check_words(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!is_valid_utf8(word)) return invalid("the argument " + in_quotes(word) + " is not UTF-8 text");
  }
  return {};
}

// One `-` is the script from standard input, as in `generate | tranche submit -`.
Result<std::string> read_standard_input(const Session& session) {
  std::string text;
  std::string block(size_t{64} << 10, '\0');
  while (text.size() <= limits::kScriptBytes) {
    const ssize_t got = read(session.setup().input, block.data(), block.size());
    if (got < 0) return invalid("the script cannot be read from standard input");
    if (got == 0) break;
    text.append(block, 0, static_cast<size_t>(got));
  }
  return text;
}

Result<std::string> read_script_file(const Session& session, const std::string& name) {
  if (name == "-") return read_standard_input(session);
  Result<std::string> text = read_file(name, limits::kScriptBytes);
  if (text) return text;
  Error error = std::move(text).error();
  if (error.code() == ErrorCode::not_found) {
    return invalid("there is no script " + in_quotes(name) + "; to run a command write: tranche submit -- " +
                   printable(name));
  }
  return fail(std::move(error));
}

// The daemon's sentence and what follows from it as one.
std::string joined(std::string_view sentence, const std::string& forecast) {
  while (sentence.ends_with('.')) sentence.remove_suffix(1);
  return printable(with_local_times(sentence)) + (forecast.empty() || sentence.empty() ? "" : "; ") +
         forecast;
}

std::string submitted_text(const api::SubmitResponse& response) {
  const std::string id = std::to_string(response.job.value());
  if (response.array) return "job " + id + " (array of " + std::to_string(response.array->count) + ")";
  return "job " + id;
}

void print_submitted(Session& session, const Arguments& arguments, const api::SubmitRequest& request,
                     const api::SubmitResponse& response) {
  if (arguments.has("parsable")) {
    session.print(std::to_string(response.job.value()) + "\n");
    return;
  }
  std::string text = submitted_text(response) + " " + std::string(to_string(response.state));
  // A bare number of minutes is easily mistaken for hours: say what was understood.
  if (request.time_limit) text += ", time limit " + format_duration(*request.time_limit);
  session.print(text + "\n");
  if (response.explanation && response.state == JobState::pending) {
    const std::string forecast = forecast_text(response.explanation->forecast, session.setup().now);
    session.note("  " + joined(response.explanation->reason, forecast) + "\n");
  }
}

Result<int> dry_run(Session& session, const Arguments& arguments, const api::SubmitRequest& request) {
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.post("/v1/jobs?dry_run=true", api::encode(request)));
  if (arguments.has("json")) {
    session.print_json(json);
    return 0;
  }
  TRY_ASSIGN(const api::DryRunResponse response, Daemon::decoded<api::DryRunResponse>(json));
  const std::string forecast = forecast_text(response.forecast, session.setup().now);
  const std::string text =
      response.would_start ? "would start now" : "would wait: " + joined(response.reason, forecast);
  session.print(text + "\n");
  // -G N alone is whole GPUs, so with --gpu-mem it is said that these are not.
  if (arguments.find("gpus") != nullptr && request.gpu && request.gpu->memory.count() > 0) {
    const GpuRequest& gpu = *request.gpu;
    session.note(
        "  asks for " + format_memory(gpu.memory) +
        (gpu.memory_limit > gpu.memory ? ".." + format_memory(gpu.memory_limit) : "") + " of " +
        (gpu.count == 1 ? "one GPU, shared" : "each of " + std::to_string(gpu.count) + " GPUs, shared") +
        " with other jobs; whole GPUs: without --gpu-mem\n");
  }
  return 0;
}

// Not for a dry run, which submits nothing.
Result<void> snapshot_if_asked(Session& session, const Arguments& arguments, api::SubmitRequest& request) {
  if (!arguments.has("snapshot") || arguments.has("dry-run")) return {};
  return take_snapshot(session, request);
}

// The worst exit code of the job, or of an array's elements.
Result<int> wait_for_all(const Session& session, const api::SubmitResponse& response) {
  const uint64_t first = response.job.value();
  const uint64_t count = response.array ? response.array->count : 1;
  int worst = 0;
  for (uint64_t id = first; id < first + count; ++id) {
    TRY_ASSIGN(const api::JobSummary ended, wait_for_job(session.socket_path, JobId(id)));
    worst = std::max(worst, job_exit_code(ended));
  }
  return worst;
}

}  // namespace

Result<api::SubmitRequest> make_command_submission(Session& session, const Arguments& arguments) {
  if (arguments.words.empty())
    return invalid("the command is missing; write: tranche run [options] -- COMMAND");
  TRY(check_words(arguments.words));
  TRY_ASSIGN(api::SubmitRequest request, make_submit_request(session, arguments));
  request.argv = arguments.words;
  TRY(snapshot_if_asked(session, arguments, request));
  return request;
}

Result<api::SubmitRequest> make_submission(Session& session, const Arguments& arguments) {
  if (arguments.words.empty()) {
    return invalid(
        "the job is missing; write: tranche submit [options] SCRIPT, or: tranche submit [options] -- "
        "COMMAND");
  }
  if (arguments.after_dashes) return make_command_submission(session, arguments);
  TRY(check_words(arguments.words));
  const std::string& name = arguments.words.front();
  TRY_ASSIGN(std::string text, read_script_file(session, name));
  TRY_ASSIGN(Script script, read_script_text(std::move(text), name));
  for (const std::string& warning : script.warnings) session.warn(warning);
  Arguments merged = arguments;
  merged.fill_from(script.directives);
  TRY_ASSIGN(api::SubmitRequest request, make_submit_request(session, merged));
  request.script = std::move(script.text);
  request.script_args.assign(arguments.words.begin() + 1, arguments.words.end());
  // A job without a name is called after its script, as with Slurm.
  const std::string file =
      printable_part(std::string_view(name).substr(name.rfind('/') + 1), limits::kNameBytes);
  if (!request.name && name != "-" && !file.empty()) request.name = file;
  TRY(snapshot_if_asked(session, merged, request));
  return request;
}

Result<int> submit_batch(Session& session, const Arguments& arguments, const api::SubmitRequest& request) {
  if (arguments.has("dry-run")) return dry_run(session, arguments, request);
  HttpHeaders headers;
  if (const std::string* key = arguments.find("idempotency-key")) {
    constexpr size_t kKeyMax = 128;
    if (key->size() > kKeyMax || !is_valid_header({"Idempotency-Key", *key})) {
      return invalid("--idempotency-key: write at most 128 printable characters");
    }
    headers.push_back({"Idempotency-Key", *key});
  }
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.post("/v1/jobs", api::encode(request), std::move(headers)));
  TRY_ASSIGN(const api::SubmitResponse response, Daemon::decoded<api::SubmitResponse>(json));
  if (request.snapshot_of) keep_snapshot(session, daemon, request, response);
  if (arguments.has("json")) {
    session.print_json(json);
  } else {
    print_submitted(session, arguments, request, response);
  }
  session.flush();
  return arguments.has("wait") ? wait_for_all(session, response) : 0;
}

Result<void> check_foreground(const Arguments& arguments) {
  struct Unfit {
    std::string_view key;
    std::string_view why;
  };
  constexpr Unfit kUnfit[] = {{"array", "an array has no terminal"},
                              {"sweep", "a sweep has no terminal"},
                              {"param-file", "a sweep has no terminal"},
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

}  // namespace tranche::cli
