#include "machine/job_update.h"

#include <algorithm>

#include "base/quantity_text.h"

namespace tranche::machine {
namespace {

bool is_waiting(const JobRecord& job) {
  return job.state == JobState::pending || job.state == JobState::held;
}

Result<void> check_state(const JobRecord& job, const api::UpdateRequest& request) {
  if (is_final(job.state)) {
    return fail(ErrorCode::conflict,
                "job " + job.display() + " has ended already (" + std::string(to_string(job.state)) + ")");
  }
  if (is_waiting(job)) return {};
  api::UpdateRequest rest = request;
  rest.time_limit.reset();
  rest.name.reset();
  if (job.state == JobState::running) {
    rest.gpu_memory.reset();
    rest.gpu_memory_limit.reset();
  }
  if (rest == api::UpdateRequest()) return {};
  return fail(ErrorCode::conflict,
              "job " + job.display() + " is " + std::string(to_string(job.state)) +
                  ": only its time limit, its name and, while it runs, its memory of shared GPUs can "
                  "be changed now");
}

// Less than it holds is taken from nobody: what is above the guarantee is borrowed then, but for the limit.
Result<void> check_gpu_memory(const JobRecord& job, const api::UpdateRequest& request, const MemoryHeld& held,
                              const scheduler::Scheduler& scheduler) {
  const GpuRequest& gpu = job.spec->task.gpu;
  if (!job.spec->groups.empty()) {
    return fail(
        ErrorCode::conflict,
        "job " + job.display() + " has parts that ask for GPUs each for itself: submit it again instead");
  }
  if (gpu.kind != SliceKind::fraction || gpu.count == 0) {
    return fail(ErrorCode::conflict,
                "job " + job.display() +
                    (gpu.count == 0 ? " has no GPU" : " has whole GPUs, with all their memory") +
                    ": submit it again with --gpu-mem");
  }
  const MiB memory = *request.gpu_memory;
  const MiB most = request.gpu_memory_limit.value_or(memory);
  if (!is_waiting(job) && most < std::max(gpu.memory_limit, held.part)) {
    if (!held.charged) {
      return fail(ErrorCode::unavailable,
                  "what job " + job.display() +
                      " holds is not known now, so its part cannot be made smaller: try again soon");
    }
    if (*held.charged > most) {
      return fail(ErrorCode::conflict,
                  "job " + job.display() + " holds " + format_memory(*held.charged) +
                      " of a GPU now: it has to give memory back first, or keep that as its "
                      "limit, such as --gpu-mem " +
                      format_memory(memory) + ".." + format_memory(*held.charged));
    }
  }
  return scheduler.check_gpu_memory(job.id, memory, most > memory ? most : MiB());
}

Result<void> check_time_limit(const JobRecord& job, Duration limit, const Caller& caller,
                              const Policy& policy, Time now) {
  const JobSpec& spec = *job.spec;
  const Duration most = policy.for_class(spec.job_class).time_limit_max;
  if (limit > most && !caller.is_operator) {
    return fail(ErrorCode::over_limit,
                "a time limit of " + format_duration(limit) + " is above the " + format_duration(most) +
                    " that class " + std::string(to_string(spec.job_class)) + " may have: ask for less");
  }
  if (is_waiting(job)) return {};
  if (limit > spec.time_limit && !caller.is_operator) {
    return fail(ErrorCode::denied, "job " + job.display() +
                                       " runs, and others count on its end: its limit of " +
                                       format_duration(spec.time_limit) +
                                       " can only be made shorter; an operator can make it longer");
  }
  if (job.started.is_set() && job.started + limit <= now) {
    return fail(ErrorCode::invalid_argument, "job " + job.display() + " has run longer than " +
                                                 format_duration(limit) +
                                                 " already: `tranche cancel` ends it");
  }
  return {};
}

Result<void> check_priority(const JobRecord& job, int32_t priority, const Caller& caller,
                            const Policy& policy) {
  const int32_t most = policy.for_class(job.spec->job_class).priority;
  if (priority <= most || caller.is_operator) return {};
  return fail(ErrorCode::denied, "priority " + std::to_string(priority) + " is above that of the class " +
                                     std::string(to_string(job.spec->job_class)) + " (" +
                                     std::to_string(most) +
                                     "): ask for at most that, or have an operator raise it");
}

// Jobs wait for earlier ones only, so that no two ever wait for each other.
Result<void> check_dependencies(const JobRecord& job, const std::vector<Dependency>& dependencies,
                                const JobTable& jobs) {
  for (const Dependency& dependency : dependencies) {
    const std::string number = std::to_string(dependency.job.value());
    if (jobs.find(dependency.job) == nullptr) {
      return fail(ErrorCode::not_found,
                  "job " + number + " of the dependency was never submitted: check its number");
    }
    if (dependency.job >= job.id) {
      return fail(ErrorCode::invalid_argument,
                  "job " + job.display() + " can wait for jobs that were submitted before it, and job " +
                      number + " was not: submit it again instead");
    }
  }
  return {};
}

}  // namespace

Result<JobUpdated> checked_update(const JobRecord& job, const api::UpdateRequest& request,
                                  const Caller& caller, const MemoryHeld& held,
                                  const scheduler::Scheduler& scheduler, const JobTable& jobs, Time now) {
  const Policy& policy = scheduler.policy();
  TRY(check_state(job, request));
  if (request.gpu_memory) TRY(check_gpu_memory(job, request, held, scheduler));
  if (request.time_limit) TRY(check_time_limit(job, *request.time_limit, caller, policy, now));
  if (request.priority) TRY(check_priority(job, *request.priority, caller, policy));
  if (request.dependencies) TRY(check_dependencies(job, *request.dependencies, jobs));
  const Duration limit = request.time_limit.value_or(job.spec->time_limit);
  if (is_waiting(job) && job.spec->signal.number != 0 && job.spec->signal.before >= limit) {
    return fail(ErrorCode::invalid_argument, "the job's signal comes " +
                                                 format_duration(job.spec->signal.before) +
                                                 " before its time limit: ask for a longer one");
  }
  JobUpdated updated;
  updated.job = job.id;
  updated.by = caller.user;
  updated.time_limit = request.time_limit;
  updated.grace = request.grace;
  updated.priority = request.priority;
  updated.begin = request.begin;
  updated.dependencies = request.dependencies;
  updated.first = request.first;
  updated.gpu_memory = request.gpu_memory.value_or(MiB());
  updated.gpu_memory_limit = request.gpu_memory_limit.value_or(MiB());
  return updated;
}

}  // namespace tranche::machine
