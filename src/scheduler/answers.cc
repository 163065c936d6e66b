// Answers for people: the proof as a sentence that names jobs and users, and what would help.
#include <algorithm>

#include "base/quantity_text.h"
#include "scheduler/check.h"
#include "scheduler/implementation.h"
#include "scheduler/proof.h"
#include "scheduler/text.h"

namespace tranche::scheduler {
namespace {

std::string job_text(const State& state, JobId id) {
  std::string text = "job " + std::to_string(id.value());
  if (const Job* job = state.find(id)) text += " of " + job->spec->owner.user;
  return text;
}

std::string jobs_text(const State& state, const std::vector<JobId>& ids) {
  std::vector<std::string> names;
  for (const JobId id : ids) names.push_back(job_text(state, id));
  return listed(names);
}

std::string joined_text(const GpuRequest& gpu) {
  if (gpu.count < 2) return "";
  switch (gpu.topology) {
    case GpuTopology::any:
      break;
    case GpuTopology::numa_node:
      return " on one NUMA node";
    case GpuTopology::nvlink:
      return " joined by NVLink";
  }
  return "";
}

// What the job asks for, to be put after "Waits for".
std::string request_text(const Job& job) {
  const TaskRequest& task = job.spec->task;
  if (task.gpu.count == 0)
    return format_thousandths(task.cpu.count()) + (task.cpu.count() == 1000 ? " CPU" : " CPUs");
  std::string text;
  if (task.gpu.kind == SliceKind::whole) {
    text = counted(task.gpu.count, "GPU");
  } else if (task.gpu.compute.count() > 0) {
    text = format_thousandths(task.gpu.compute.count()) + " of a GPU";
  } else {
    text = format_memory(task.gpu.memory) + " of a GPU";
  }
  if (!task.gpu.type.empty()) text += " of type " + task.gpu.type;
  return text + joined_text(task.gpu);
}

// "job 12 of alice ends by 2026-11-30 14:30:00 UTC at the latest": the blocker that must go first.
std::string earliest_end_text(const State& state, const std::vector<JobId>& blockers) {
  const Job* first = nullptr;
  Time end;
  for (const JobId id : blockers) {
    const Job* job = state.find(id);
    if (job == nullptr || !job->started.is_set()) continue;
    Time until = State::latest_end(*job);
    if (job->stop_time.is_set()) until = std::min(until, job->stop_time + job->spec->grace);
    if (first == nullptr || until < end) {
      first = job;
      end = until;
    }
  }
  if (first == nullptr) return {};
  return job_text(state, first->id) + " ends by " + clock_text(end) + " at the latest";
}

// "; GPU 0 has room for it, but carries a fraction of another user, ...": nothing if that is not what keeps
// it.
std::string strangers_text(const State& state, const Job& job) {
  const Shape shape = shape_of(*job.spec, state.policy);
  if (shape.gpu_count == 0 || shape.kind == SliceKind::whole || shape.share_with_others) return {};
  std::vector<std::string> names;
  for (const GpuRoom* room : usable_gpus(state, job)) {
    const auto slice = slice_on(shape, *room);
    const bool has_room = room->open && !room->whole && !room->for_all &&
                          room->compute_free >= slice->compute && room->memory_free >= slice->memory;
    if (has_room) names.push_back("GPU " + std::to_string(room->index));
  }
  if (names.empty()) return {};
  return "; " + listed(names) + (names.size() == 1 ? " has" : " have") +
         " room for it, but for a fraction of another user, and fractions of different users meet on one GPU "
         "only "
         "where users_share_gpu is set";
}

std::string busy_text(const State& state, const Job& job, const Proof& proof) {
  if (state.claim_of(job.id) != nullptr) {
    return "Starts soon: " + jobs_text(state, proof.blockers) +
           (proof.blockers.size() == 1 ? " is" : " are") + " being stopped to make room";
  }
  std::string text = "Waits for " + request_text(job);
  const auto rooms = usable_gpus(state, job);
  if (!rooms.empty() && job.spec->task.gpu.kind == SliceKind::whole) {
    const auto idle =
        std::count_if(rooms.begin(), rooms.end(), [](const GpuRoom* r) { return r->open && r->is_idle(); });
    const bool enough = idle >= job.spec->task.gpu.count;
    text += ": " + std::to_string(idle) + " of " + std::to_string(rooms.size()) +
            (idle == 1 ? " is free" : " are free");
    if (enough && !joined_text(job.spec->task.gpu).empty()) {
      text += ", but not so many that are joined";
    } else if (enough) {
      text += ", but not with the CPUs and memory that it needs on one machine";
    }
  }
  text += strangers_text(state, job);
  const std::string end = earliest_end_text(state, proof.blockers);
  if (!end.empty()) return text + "; " + end;
  if (!proof.blockers.empty())
    text += "; the memory of " + jobs_text(state, proof.blockers) + " is not released yet";
  return text;
}

std::string amount_text(BoundResource resource, int64_t amount) {
  switch (resource) {
    case BoundResource::gpu:
      break;
    case BoundResource::cpu:
      return format_thousandths(amount) + (amount == 1000 ? " CPU" : " CPUs");
    case BoundResource::memory:
      return format_memory(MiB(amount)) + " of memory";
  }
  return gpus_text(MilliGpu(amount));
}

std::string bound_text(const Proof& proof) {
  if (proof.queue.empty()) {
    return "Waits because " + std::to_string(proof.used) + " of its array run and at most " +
           std::to_string(proof.bound) + " may";
  }
  const std::string queue = "queue '" + proof.queue + "'";
  if (proof.kind == ProofKind::limit) {
    return "Waits because " + queue + " uses " + amount_text(proof.resource, proof.used) +
           " of its limit of " + amount_text(proof.resource, proof.bound);
  }
  return "Waits because it cannot be preempted, so it must fit the quota of " + queue + ": " +
         amount_text(proof.resource, proof.used) + " of " + amount_text(proof.resource, proof.bound) +
         " are taken by such jobs";
}

std::string drained_text(const State& state, const Proof& proof) {
  std::vector<std::string> names;
  for (const GpuId id : proof.gpus) {
    const GpuRecord& record = state.gpus.at(id);
    const std::string& reason = record.drained ? record.drain_reason : record.health_reason;
    names.push_back("GPU " + std::to_string(record.gpu.index) + (reason.empty() ? "" : " (" + reason + ")"));
  }
  if (names.empty()) return "Waits because the machines that it needs take no new work";
  return "Waits because " + listed(names) + (names.size() == 1 ? " takes" : " take") + " no new work";
}

std::string reserved_text(const State& state, const Proof& proof) {
  std::string text = "Waits because the free room is kept for " + jobs_text(state, proof.blockers);
  if (proof.until.is_set()) text += ", planned to start by " + clock_text(proof.until);
  return text;
}

// What a job has of what it may have.
std::string extent_text(const Job& job) {
  const JobSpec& spec = *job.spec;
  const auto tasks =
      static_cast<size_t>(std::count_if(job.tasks.begin(), job.tasks.end(), [](const Task& task) {
        return task.phase != TaskPhase::exited && !task.stop_sent;
      }));
  if (spec.tasks_max > spec.tasks_min) {
    const std::string text = " with " + std::to_string(tasks) + " of " + std::to_string(spec.tasks_min) +
                             " to " + std::to_string(spec.tasks_max) + " tasks";
    if (!spec.elastic) return text + ", as many as there was room for when it started";
    if (tasks >= spec.tasks_max) return text;
    return text + (job.failure ? "; since a task has failed it takes no more"
                               : "; it takes more when there is room that its queue may use");
  }
  if (!spec.task.gpu.is_moldable() || job.tasks.empty()) return "";
  return " with " + std::to_string(job.tasks.front().start.slices.size()) + " of " +
         std::to_string(spec.task.gpu.count) + " to " + std::to_string(spec.task.gpu.count_max) +
         " GPUs, as many as there was room for when it started";
}

std::string state_text(const Job& job) {
  switch (job.state) {
    case JobState::starting:
      return "Is being started";
    case JobState::running:
      return "Runs" + extent_text(job);
    case JobState::stopping:
      return "Is being stopped";
    case JobState::suspended:
      return "Is suspended";
    case JobState::pending:
    case JobState::held:
      return "Starts with the next decision";
    case JobState::completed:
    case JobState::failed:
    case JobState::cancelled:
    case JobState::timed_out:
    case JobState::out_of_memory:
    case JobState::node_failed:
    case JobState::unknown:
      break;
  }
  return "Has ended";
}

std::string reason_text(const State& state, const Job& job, const Proof& proof) {
  std::string text = sentence(state, job, proof);
  if (job.requeued_for && job.is_waiting()) {
    text += " It ran before and was " + std::string(to_string(*job.requeued_for)) + ".";
  }
  return text;
}

}  // namespace

std::string sentence(const State& state, const Job& job, const Proof& proof) {
  switch (proof.kind) {
    case ProofKind::none:
      return state_text(job) + ".";
    case ProofKind::never_fits: {
      const auto fits = check_fits(state, *job.spec);
      return "Cannot run on what is installed now: " + (fits ? std::string() : fits.error().message()) + ".";
    }
    case ProofKind::limit:
    case ProofKind::quota:
      return bound_text(proof) + ".";
    case ProofKind::busy:
      return busy_text(state, job, proof) + ".";
    case ProofKind::reserved:
      return reserved_text(state, proof) + ".";
    case ProofKind::gang:
      return "Waits for " + counted(proof.needed, "task") + " at once: only " +
             std::to_string(proof.available) + (proof.available == 1 ? " fits now." : " fit now.");
    case ProofKind::dependency:
      return "Waits for " + jobs_text(state, proof.blockers) + ".";
    case ProofKind::held:
      return proof.until.is_set() ? "Does not start before " + clock_text(proof.until) + "."
                                  : "Is held; somebody has to release it.";
    case ProofKind::drained:
      return drained_text(state, proof) + ".";
  }
  return {};
}

// Whole GPUs are counted one by one, fractions in thousandths.
MilliGpu available_of(const Job& job, const Proof& proof) {
  return job.spec->task.gpu.kind == SliceKind::whole ? kWholeGpu * proof.available
                                                     : MilliGpu(proof.available);
}

std::vector<std::string> helps(const Job& job, const Proof& proof) {
  std::vector<std::string> help;
  const std::string id = std::to_string(job.id.value());
  switch (proof.kind) {
    case ProofKind::held:
      if (!proof.until.is_set()) help.push_back("Release it: tranche release " + id + ".");
      break;
    case ProofKind::busy:
      if (proof.available > 0 && proof.needed > proof.available && job.spec->task.gpu.count > 0)
        help.push_back("Less may fit now: " + gpus_text(available_of(job, proof)) + " at most on one " +
                       (job.spec->task.gpu.kind == SliceKind::whole ? "machine." : "GPU."));
      if (!job.spec->task.gpu.type.empty())
        help.push_back("Without a GPU type it could use any that is free.");
      break;
    case ProofKind::reserved:
      help.push_back("A shorter time limit may let it start around what is planned.");
      if (!job.spec->task.gpu.type.empty())
        help.push_back("Without a GPU type it could use any that is free.");
      break;
    case ProofKind::gang:
      help.push_back("Fewer tasks at once would start earlier.");
      break;
    case ProofKind::limit:
      if (proof.queue.empty()) {
        help.push_back("It starts when another of its array ends.");
        break;
      }
      help.push_back("It starts when another job of the queue ends; fewer GPUs may fit now.");
      break;
    case ProofKind::quota:
      help.push_back("A preemptible job may also use what others leave.");
      break;
    case ProofKind::drained:
      help.push_back("An operator can let the GPU take work again (undrain).");
      break;
    case ProofKind::never_fits:
      help.push_back("Cancel it and ask for less: tranche cancel " + id + ".");
      break;
    case ProofKind::none:
    case ProofKind::dependency:
      break;
  }
  return help;
}

Result<Proof> Scheduler::proof(JobId id) const {
  const Job* job = state_->find(id);
  if (job == nullptr) {
    return fail(ErrorCode::not_found,
                "job " + std::to_string(id.value()) + " is not live; look in the history");
  }
  return prove(*state_, state_->analysis(), *job);
}

Result<std::string> Scheduler::reason(JobId id) const {
  TRY_ASSIGN(const Proof proof, Scheduler::proof(id));
  return reason_text(*state_, *state_->find(id), proof);
}

Result<Explanation> Scheduler::why(JobId id, uint32_t places) const {
  TRY_ASSIGN(Proof proof, Scheduler::proof(id));
  const Job& job = *state_->find(id);
  Explanation explanation;
  explanation.job = id;
  explanation.state = job.state;
  explanation.reason = reason_text(*state_, job, proof);
  explanation.helps = helps(job, proof);
  explanation.proof = std::move(proof);
  TRY_ASSIGN(explanation.forecast, forecast(id, places));
  return explanation;
}

}  // namespace tranche::scheduler
