#include "machine/admission.h"

#include <algorithm>

#include "base/quantity_text.h"
#include "base/utf8.h"
#include "codec/sweep.h"
#include "linux/digest.h"
#include "machine/launch_environment.h"

namespace tranche::machine {
namespace {

// What a job is called when nobody named it: the command's last path component as far as it can be
// printed, or "script".
std::string default_name(const api::SubmitRequest& request) {
  if (request.argv.empty()) return "script";
  const std::string& command = request.argv.front();
  constexpr size_t kBytesMax = 64;
  const std::string base =
      printable_part(std::string_view(command).substr(command.rfind('/') + 1), kBytesMax);
  return base.empty() ? "job" : base;
}

// Long enough for a file server or a licence to come back, short enough to be waited for.
constexpr Duration kRetryDelayDefault{10 * kSecond.count()};

// Scripts travel to their interpreter as one argument, and the kernel takes 128 KiB of one at most.
constexpr size_t kScriptBytesMax = 120 * 1024;

Result<Duration> time_limit_of(const api::SubmitRequest& request, const ClassPolicy& job_class) {
  const Duration limit =
      request.time_limit.value_or(std::min(job_class.time_limit_default, job_class.time_limit_max));
  if (limit <= Duration{}) {
    return fail(ErrorCode::invalid_argument,
                "a time limit of zero would end the job at once: ask for at least 1s");
  }
  return limit;
}

}  // namespace

std::string leaf_queue(const std::optional<std::string>& queue, const std::string& user,
                       const Policy& policy) {
  std::string path = queue.value_or(policy.default_queue);
  if (path == user || path.ends_with("/" + user)) return path;
  return path + "/" + user;
}

Result<AdmittedJob> admit(const api::SubmitRequest& request, const Caller& caller, const Policy& policy,
                          bool interactive) {
  if (caller.uid == 0) {
    return fail(ErrorCode::denied, "root runs no jobs: submit as the user whose work it is");
  }
  if (request.script && request.script->size() > kScriptBytesMax) {
    return fail(ErrorCode::too_large,
                "the script is longer than 120 KiB: put it in a file and submit its command");
  }
  if (request.held && interactive) {
    return fail(ErrorCode::invalid_argument, "a job that somebody waits for cannot be held: use submit");
  }
  AdmittedJob job;
  JobSpec& spec = job.spec;
  spec.job_class =
      request.job_class.value_or(interactive && request.pty ? JobClass::interactive : JobClass::training);
  const ClassPolicy& defaults = policy.for_class(spec.job_class);
  spec.owner = {caller.uid, caller.gid, caller.user};
  spec.queue = leaf_queue(request.queue, caller.user, policy);
  spec.priority = request.priority.value_or(defaults.priority);
  if (spec.priority > defaults.priority && !caller.is_operator) {
    return fail(ErrorCode::denied,
                "priority " + std::to_string(spec.priority) + " is above that of the class " +
                    std::string(to_string(spec.job_class)) + " (" + std::to_string(defaults.priority) +
                    "): ask for at most that, or have an operator raise it");
  }
  spec.preemptible = request.preemptible.value_or(defaults.preemptible);
  spec.requeue = request.requeue.value_or(false);
  spec.interactive = interactive;
  if (request.gpu) spec.task.gpu = *request.gpu;
  // A GPU job that names no CPUs must not leave a GPU idle on a machine with few of them; a job without GPU
  // would otherwise not be counted at all.
  spec.task.cpu = request.cpu.value_or(spec.task.gpu.count > 0 ? MilliCpu() : MilliCpu(1000));
  if (request.memory) spec.task.memory = *request.memory;
  if (request.tasks) {
    spec.tasks_min = request.tasks->min;
    spec.tasks_max = request.tasks->max;
    spec.elastic = request.elastic;
  }
  if (interactive && spec.tasks_max > 1) {
    return fail(
        ErrorCode::not_available_yet,
        "a foreground job of several tasks is not available yet: use submit, which starts all of them");
  }
  if (interactive && request.array) {
    return fail(ErrorCode::invalid_argument, "an array cannot run in the foreground: use submit");
  }
  TRY_ASSIGN(spec.time_limit, time_limit_of(request, defaults));
  spec.grace = request.grace.value_or(policy.grace_default);
  if (request.retry) {
    spec.retry = {request.retry->error, request.retry->out_of_memory, request.retry->infrastructure,
                  request.retry->delay.value_or(kRetryDelayDefault)};
    if (interactive) {
      return fail(ErrorCode::invalid_argument,
                  "a foreground job is not tried again, since its client has gone: use submit");
    }
  }
  if (request.signal) {
    if (request.signal->before >= spec.time_limit) {
      return fail(ErrorCode::invalid_argument, "the signal is to come " +
                                                   format_duration(request.signal->before) +
                                                   " before the time limit, which is " +
                                                   format_duration(spec.time_limit) + ": send it later");
    }
    spec.signal = {request.signal->number, request.signal->before};
  }
  if (request.begin) spec.begin = *request.begin;
  spec.dependencies = request.dependencies;
  spec.node_pool = request.node_pool;
  spec.held = request.held;
  if (request.array) job.array = *request.array;
  for (const api::SweepParameter& parameter : request.sweep) {
    if (is_reserved_variable(parameter.name)) {
      return fail(ErrorCode::invalid_argument,
                  "the parameter " + parameter.name +
                      " has the name of a variable that Tranche sets: call it otherwise");
    }
  }
  job.name = api::stored_name(request.name.value_or(default_name(request)), request.sweep);
  spec.name_hash = sha256_hex(job.name);
  return job;
}

}  // namespace tranche::machine
