// Applying decisions: what a decision changes in the state, whether it was just taken or comes from a
// journal. A decision that contradicts the state (a job that is not there) is ignored: the record wins, and
// a difference is the caller's to report.
#include <algorithm>

#include "scheduler/state.h"

namespace tranche::scheduler {

void State::apply(const Decision& decision) {
  if (const auto* start = std::get_if<Start>(&decision)) apply_start(*start);
  if (const auto* stop = std::get_if<Stop>(&decision)) apply_stop(*stop);
  if (const auto* end = std::get_if<End>(&decision)) apply_end(*end);
  if (const auto* requeue = std::get_if<Requeue>(&decision)) apply_requeue(*requeue);
  if (const auto* wake_at = std::get_if<WakeAt>(&decision)) wake = wake_at->time;
}

void State::apply_start(const Start& start) {
  Job* job = find(start.task.job);
  if (job == nullptr || job->attempt != start.task.attempt || capacity.node(start.node) == nullptr) return;
  if (job->is_waiting()) {
    leave_group(*job);
    job->state = JobState::starting;
    job->started = now;
    job->requeued_for.reset();
    Queue& queue = queues.at(job->queue);
    --queue.jobs_waiting;
    ++queue.jobs_running;
    if (job->array.is_set()) ++arrays[job->array].running;
  }
  job->tasks.push_back(Task{.start = start});
  const JobSpec& spec = *job->spec;
  Holding holding;
  holding.uid = spec.owner.uid;
  holding.queue = job->queue;
  holding.preemptible = spec.preemptible;
  holding.node = start.node;
  holding.cpu = spec.task.cpu;
  holding.memory = spec.task.memory;
  holding.latest_end = latest_end(*job);
  for (const Slice& slice : start.slices) {
    const GpuRoom* room = capacity.gpu(slice.gpu);
    if (room == nullptr) continue;
    holding.slices.push_back(slice);
    holding.charges.push_back(charge_of(slice, room->memory_usable));
    gpus.at(slice.gpu).tasks.push_back(start.task);
  }
  capacity.take({holding.uid, holding.node, holding.slices, holding.cpu, holding.memory});
  queues.charge(holding.queue, holding.charge(), holding.preemptible, now);
  holdings.emplace(start.task, std::move(holding));
  tell_dependents(job->id);
}

void State::apply_stop(const Stop& stop) {
  Task* task = live_task(stop.task);
  if (task == nullptr || task->phase == TaskPhase::exited) return;
  Job& job = *find(stop.task.job);
  task->stop_sent = true;
  job.state = JobState::stopping;
  if (!job.stop_reason) {
    job.stop_reason = stop.reason;
    job.stop_time = now;
  }
  const auto holding = holdings.find(stop.task);
  if (holding != holdings.end()) {
    holding->second.latest_end = std::min(holding->second.latest_end, now + job.spec->grace);
  }
  if (!stop.beneficiary.is_set()) return;
  auto claim = std::find_if(claims.begin(), claims.end(),
                            [&](const Claim& c) { return c.beneficiary == stop.beneficiary; });
  // One without victims has come to its end; it counts as made anew.
  if (claim != claims.end() && claim->victims.empty()) claim = claims.erase(claim);
  if (claim == claims.end() || claim->beneficiary != stop.beneficiary) {
    claim = claims.insert(claims.end(), Claim{.beneficiary = stop.beneficiary, .victims = {}});
    for (const auto& [key, leaving] : holdings) {
      if (is_leaving(key, leaving)) claim->victims.insert(key);
    }
  }
  claim->victims.insert(stop.task);
}

void State::apply_requeue(const Requeue& requeue) {
  Job* job = find(requeue.job);
  if (job == nullptr || job->is_waiting()) return;
  const bool start_failed =
      std::any_of(job->tasks.begin(), job->tasks.end(), [](const Task& task) { return task.never_executed; });
  if (start_failed) ++job->failed_starts;
  if (requeue.reason == StopReason::retried) ++retries_of(job->retried, job->failure);
  job->requeue_requested = false;
  job->attempt = requeue.attempt;
  job->state = job->held ? JobState::held : JobState::pending;
  job->started = Time();
  job->stop_time = Time();
  job->stop_reason.reset();
  job->failure.reset();
  job->tasks.clear();
  job->requeued_for = requeue.reason;
  Queue& queue = queues.at(job->queue);
  ++queue.jobs_waiting;
  --queue.jobs_running;
  if (job->array.is_set()) --arrays[job->array].running;
  if (requeue.begin.is_set()) wait_until_begin(*job, requeue.begin);
  update_ready(*job);
}

void State::apply_end(const End& end) {
  Job* job = find(end.job);
  if (job == nullptr) return;
  leave_group(*job);
  Queue& queue = queues.at(job->queue);
  if (job->is_waiting()) {
    --queue.jobs_waiting;
  } else {
    --queue.jobs_running;
    if (job->array.is_set()) --arrays[job->array].running;
  }
  if (job->array.is_set() && --arrays[job->array].live == 0) arrays.erase(job->array);
  begins.erase({job->not_before, job->id});
  const auto user = jobs_of_user.find(job->spec->owner.uid);
  if (--user->second == 0) jobs_of_user.erase(user);
  forget_dependencies(*job);
  ended.add(job->id, end.state, job->attempt > 1 || job->started.is_set());
  const JobId id = job->id;
  jobs.erase(id);
  attention.erase(id);
  tell_dependents(id);
  dependents.erase(id);
}

bool State::settle_claims() {
  return std::erase_if(claims, [&](const Claim& claim) {
           const Job* job = find(claim.beneficiary);
           return claim.victims.empty() || job == nullptr || job->group == 0;
         }) > 0;
}

void State::settle() {
  attention.clear();
  settle_claims();
  std::erase_if(gpus, [&](const auto& entry) {
    if (!entry.second.removed || !entry.second.tasks.empty()) return false;
    capacity.remove_gpu(entry.first);
    return true;
  });
}

}  // namespace tranche::scheduler
