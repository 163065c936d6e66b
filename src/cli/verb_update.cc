// tranche update: what of a job that was submitted is to be otherwise.
#include <algorithm>

#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/dependency_text.h"
#include "cli/job_ids.h"
#include "cli/job_request.h"
#include "cli/job_text.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/verbs.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

Result<void> take_dependencies(Session& session, const Arguments& arguments, api::UpdateRequest& request) {
  const std::string* value = arguments.find("dependency");
  if (value == nullptr) return {};
  if (*value == "none") {
    request.dependencies.emplace();
    return {};
  }
  TRY_OPTION(request.dependencies, "--dependency", resolve_dependencies(session, *value));
  return {};
}

Result<api::UpdateRequest> make_update_request(Session& session, const Arguments& arguments) {
  api::UpdateRequest request;
  if (const std::string* value = arguments.find("time")) {
    TRY_OPTION(request.time_limit, "--time", parse_duration(*value));
  }
  if (const std::string* value = arguments.find("grace")) {
    TRY_OPTION(request.grace, "--grace", parse_duration(*value));
  }
  if (const std::string* value = arguments.find("begin")) {
    TRY_OPTION(request.begin, "--begin", parse_begin(*value, session.setup().now));
  }
  if (const std::string* value = arguments.find("priority")) {
    TRY_OPTION(request.priority, "--priority", parse_priority(*value));
  }
  if (const std::string* value = arguments.find("gpu-mem")) {
    GpuRequest gpu;
    TRY(parse_gpu_memory(*value, gpu));
    request.gpu_memory = gpu.memory;
    if (gpu.memory_limit > gpu.memory) request.gpu_memory_limit = gpu.memory_limit;
  }
  if (const std::string* value = arguments.find("name")) request.name = *value;
  TRY(take_dependencies(session, arguments, request));
  request.first = arguments.has("first");
  if (request == api::UpdateRequest()) {
    return invalid(
        "say what is to be otherwise, such as --time 2h, --priority -5, --gpu-mem 30G, --name NAME or "
        "--first");
  }
  return request;
}

std::string changed_text(const api::JobSummary& job, const api::UpdateRequest& request) {
  std::string text = job_label(job) + " updated";
  if (request.time_limit) text += ", time limit " + format_duration(job.time_limit);
  if (request.priority) text += ", priority " + std::to_string(job.priority);
  if (request.gpu_memory) {
    text += ", " + format_memory(*request.gpu_memory);
    if (request.gpu_memory_limit) text += ".." + format_memory(*request.gpu_memory_limit);
    text += " of each GPU";
  }
  if (request.first) text += ", first of its queue";
  return text + "\n";
}

}  // namespace

Result<int> run_update(Session& session, const Arguments& arguments) {
  TRY_ASSIGN(const api::UpdateRequest request, make_update_request(session, arguments));
  const std::string body = api::encode(request);
  Daemon daemon(session);
  TRY_ASSIGN(const std::vector<api::JobDetail> jobs,
             find_jobs(daemon, session, arguments.words, BareArray::kWhole));
  int worst = 0;
  for (const api::JobDetail& job : jobs) {
    const std::string target = "/v1/jobs/" + std::to_string(job.job.value()) + "/update";
    const Result<std::string> answer = daemon.post(target, body);
    if (!answer) {
      session.warn(answer.error().message());
      worst = std::max(worst, exit_code(answer.error().code()));
      if (answer.error().code() == ErrorCode::unavailable) break;
    } else if (arguments.has("json")) {
      session.print_json(*answer);
    } else {
      TRY_ASSIGN(const api::JobSummary changed, Daemon::decoded<api::JobSummary>(*answer));
      session.print(changed_text(changed, request));
    }
  }
  return worst;
}

}  // namespace tranche::cli
