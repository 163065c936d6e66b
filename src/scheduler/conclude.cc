#include "scheduler/conclude.h"

#include <algorithm>

namespace tranche::scheduler {
namespace {

bool all_exited(const Job& job) {
  return std::all_of(job.tasks.begin(), job.tasks.end(),
                     [](const Task& task) { return task.phase == TaskPhase::exited; });
}

bool completed(const Task& task) {
  return !task.never_executed && task.cause == ExitCause::exited && task.code == 0;
}

Decision end_or_retry(const Job& job, JobState state, bool retry) {
  if (retry && !job.cancel_requested)
    return Requeue{job.id, job.attempt + 1, StopReason::node_failed, Time()};
  return End{job.id, job.cancel_requested && retry ? JobState::cancelled : state};
}

// The pause before retry number `done` + 1 of its kind.
Duration pause_before_retry(Duration first, uint32_t done) {
  Duration pause = std::min(first, kRetryDelayMax);
  for (uint32_t i = 0; i < done && pause < kRetryDelayMax; ++i) pause = std::min(pause * 2, kRetryDelayMax);
  return pause;
}

// A failure ends the job unless its owner allowed another try of a job that fails in this way.
Decision end_or_try_again(const Job& job, JobState failure, Time now) {
  const bool counts =
      failure == JobState::failed || failure == JobState::out_of_memory || failure == JobState::node_failed;
  RetryPolicy allowed = job.spec->retry;
  RetryPolicy done = job.retried;
  if (job.cancel_requested || !counts || retries_of(done, failure) >= retries_of(allowed, failure)) {
    return End{job.id, failure};
  }
  const Duration pause = pause_before_retry(allowed.delay, retries_of(done, failure));
  return Requeue{job.id, job.attempt + 1, StopReason::retried, pause > Duration{} ? now + pause : Time()};
}

Decision after_node_failure(const Job& job, Time now) {
  if (job.spec->requeue) return end_or_retry(job, JobState::node_failed, true);
  return end_or_try_again(job, JobState::node_failed, now);
}

// What becomes of a job all of whose tasks are gone. Its own first failure comes before anything that was
// done to it; success of all tasks comes before a Stop that was too late.
Decision outcome(const Job& job, Time now) {
  const auto& tasks = job.tasks;
  if (job.failure == JobState::node_failed) return after_node_failure(job, now);
  if (job.failure) return end_or_try_again(job, *job.failure, now);
  if (std::all_of(tasks.begin(), tasks.end(), completed)) return End{job.id, JobState::completed};
  const bool never_executed =
      std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.never_executed; });
  if (never_executed) {
    if (job.cancel_requested) return End{job.id, JobState::cancelled};
    const bool retry = job.failed_starts < kStartRetries &&
                       std::all_of(tasks.begin(), tasks.end(),
                                   [](const Task& t) { return !t.never_executed || t.may_retry; });
    return end_or_retry(job, JobState::failed, retry);
  }
  if (job.cancel_requested) return End{job.id, JobState::cancelled};
  switch (job.stop_reason.value_or(StopReason::gang)) {
    case StopReason::preempted:
    case StopReason::reclaimed:
    case StopReason::requeued:
    case StopReason::consolidated:
    case StopReason::stale:
      return Requeue{job.id, job.attempt + 1, *job.stop_reason, Time()};
    case StopReason::node_failed:
      return after_node_failure(job, now);
    case StopReason::cancelled:
      return End{job.id, JobState::cancelled};
    case StopReason::gang:
    case StopReason::retried:
      break;  // killed, and nobody asked for it
  }
  return End{job.id, JobState::failed};
}

bool stands_on_lost_ground(const Task& task, const State& state) {
  const NodeRoom* node = state.capacity.node(task.start.node);
  if (node == nullptr || !node->present) return true;
  return std::any_of(task.start.slices.begin(), task.start.slices.end(), [&](const Slice& slice) {
    const GpuRoom* room = state.capacity.gpu(slice.gpu);
    return room == nullptr || !room->installed;
  });
}

std::optional<StopReason> reason_to_stop(const Job& job, const State& state) {
  if (job.cancel_requested) return StopReason::cancelled;
  for (const Task& task : job.tasks) {
    if (task.phase != TaskPhase::exited && stands_on_lost_ground(task, state)) return StopReason::node_failed;
  }
  const bool start_failed =
      std::any_of(job.tasks.begin(), job.tasks.end(), [](const Task& task) { return task.never_executed; });
  if (start_failed) return StopReason::gang;
  const SchedulerAction only = state.policy.only_action;
  const bool is_over = job.stale_until.is_set() && job.stale_until <= state.now &&
                       (only == SchedulerAction::all || only == SchedulerAction::stale_gang);
  if (job.failure && is_broken(job) && (is_over || job.spec->gang_grace <= Duration{}))
    return StopReason::gang;
  if (job.requeue_requested) return StopReason::requeued;
  if (is_over && is_broken(job)) return StopReason::stale;
  return std::nullopt;
}

void conclude_running(const Job& job, const State& state, Commit& commit) {
  if (all_exited(job)) {
    commit.decide(outcome(job, state.now));
    return;
  }
  const auto reason = reason_to_stop(job, state);
  if (!reason) return;
  std::vector<TaskKey> going;
  for (const Task& task : job.tasks) {
    if (task.phase != TaskPhase::exited && !task.stop_sent) going.push_back(task.start.task);
  }
  for (const TaskKey& key : going) commit.decide(Stop{key, *reason, JobId()});
}

}  // namespace

void conclude(State& state, Commit& commit) {
  while (!state.attention.empty()) {
    const JobId id = *state.attention.begin();
    state.attention.erase(state.attention.begin());
    const Job* job = state.find(id);
    if (job == nullptr) continue;
    if (!job->is_waiting()) {
      conclude_running(*job, state, commit);
    } else if (job->cancel_requested || job->doomed) {
      commit.decide(End{id, JobState::cancelled});
    }
  }
}

}  // namespace tranche::scheduler
