// Applying decisions: what a decision changes in the state, whether it was just taken or comes from a
// journal. A decision that contradicts the state (a job that is not there) is ignored: the record wins, and
// a difference is the caller's to report.
#include <algorithm>

#include "model/task_groups.h"
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
  const auto node = capacity.index_of(start.node);
  if (job == nullptr || start.task.attempt < job->attempt || !node) return;
  if (start.task.attempt > job->attempt && !job->spec->elastic) return;
  job->attempt = start.task.attempt;
  const MilliGpu waited = leave_group(*job);
  if (job->is_waiting()) {
    job->state = JobState::starting;
    job->started = now;
    job->requeued_for.reset();
    Queue& queue = queues.at(job->queue);
    --queue.jobs_waiting;
    ++queue.jobs_running;
    if (job->array.is_set()) ++arrays[job->array].running;
    enter_running(*job);
    note_start(*job);
  }
  job->tasks.push_back(Task{.start = start});
  if (gangs_changed.empty() || gangs_changed.back() != job->id) gangs_changed.push_back(job->id);
  const JobSpec& spec = *job->spec;
  const TaskRequest& request = request_of(spec, start.task.rank);
  Holding holding;
  holding.task = start.task;
  holding.uid = spec.owner.uid;
  holding.queue = job->queue;
  holding.preemptible = spec.preemptible;
  holding.node = start.node;
  holding.cpu = request.cpu;
  holding.memory = request.memory;
  holding.latest_end = latest_end(*job);
  for (const Slice& slice : start.slices) {
    const GpuRoom* room = capacity.gpu(slice.gpu);
    if (room == nullptr) continue;
    holding.slices.push_back(slice);
    holding.charges.push_back(charge_of(slice, room->memory_usable));
  }
  capacity.take(holding.footprint());
  queues.start(holding.queue, holding.charge(), waited, holding.preemptible, now);
  queues.add_staying(holding.queue, holding.charge());
  queues.charge_host(holding.queue, holding.host(), holding.preemptible);
  queues.add_host_staying(holding.queue, holding.host());
  holdings_on[*node].push_back(holdings.add(start.task, std::move(holding)));
  if (spec.elastic) {
    // What room was made for is there: what it would take beyond that is not claimed.
    std::erase_if(claims, [&](const Claim& claim) { return claim.beneficiary == start.task.job; });
  }
  step_again(*job);
  tell_dependents(start.task.job);
}

// Whether the job goes on without the task, as an elastic one may.
bool State::goes_on_without(const Job& job, const Stop& stop) const {
  const bool is_taken = stop.reason == StopReason::preempted || stop.reason == StopReason::reclaimed;
  if (!job.spec->elastic || job.stop_reason || !is_taken) return false;
  TaskGroups::RankSet running(job.spec->tasks_max);
  for (const Task& task : job.tasks) {
    const uint32_t rank = task.start.task.rank;
    if (task.phase != TaskPhase::exited && !task.stop_sent && rank < running.size()) running[rank] = true;
  }
  return TaskGroups(*job.spec).is_satisfied(running);
}

void State::apply_stop(const Stop& stop) {
  Task* task = live_task(stop.task);
  if (task == nullptr || task->phase == TaskPhase::exited) return;
  Job& job = *find(stop.task.job);
  task->stop_sent = true;
  const bool goes_on = goes_on_without(job, stop);
  if (goes_on) {
    if (Holding* held = holdings.find(stop.task)) stop_staying(*held);
    step_again(job);
  } else {
    stop_waiting(job);
    job.state = JobState::stopping;
  }
  if (!goes_on && !job.stop_reason) {
    job.stop_reason = stop.reason;
    job.stop_time = now;
    leave_running(job);
    for (const Task& each : job.tasks) {
      if (Holding* held = holdings.find(each.start.task)) stop_staying(*held);
    }
  }
  if (Holding* holding = holdings.find(stop.task)) {
    begin_to_leave(stop.task);
    holding->latest_end = std::min(holding->latest_end, now + job.spec->grace);
    if (const auto node = capacity.index_of(holding->node)) capacity.note_change(*node);
  }
  if (!stop.beneficiary.is_set()) return;
  Claim& claim = claim_for(stop.beneficiary, JobId());
  claim.victims.push_back(stop.task);
  claim.waits_for = last_leave;
  if (stop.reason == StopReason::consolidated) claim_for(job.id, stop.beneficiary);
  // Whoever is moved for the same job waits until all of them have left.
  if (!claims_may_move) return;
  for (Claim& other : claims) {
    if (other.moved_for == stop.beneficiary) other.waits_for = last_leave;
  }
}

Claim& State::claim_for(JobId beneficiary, JobId moved_for) {
  if (claims.empty()) claims_may_move = false;
  claims_may_move = claims_may_move || moved_for.is_set();
  // Nearly always the last one.
  const auto found = std::find_if(claims.rbegin(), claims.rend(),
                                  [&](const Claim& c) { return c.beneficiary == beneficiary; });
  auto claim = found == claims.rend() ? claims.end() : found.base() - 1;
  // One that has come to its end counts as made anew: a step may have forgotten it already.
  if (claim != claims.end() && has_ended(*claim)) {
    claims.erase(claim);
    claim = claims.end();
  }
  if (claim == claims.end()) {
    claims.push_back(
        Claim{.beneficiary = beneficiary, .victims = {}, .moved_for = moved_for, .waits_for = 0});
    claim = claims.end() - 1;
  }
  return *claim;
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
  forget_stale(*job);
  job->stop_reason.reset();
  job->failure.reset();
  job->tasks.clear();
  job->left.clear();
  job->requeued_for = requeue.reason;
  leave_running(*job);
  Queue& queue = queues.at(job->queue);
  ++queue.jobs_waiting;
  --queue.jobs_running;
  if (job->array.is_set()) {
    --arrays[job->array].running;
    waiting.unpark_array(job->array, queues);
  }
  if (requeue.begin.is_set()) wait_until_begin(*job, requeue.begin);
  update_ready(*job);
}

void State::apply_end(const End& end) {
  Job* job = find(end.job);
  if (job == nullptr) return;
  stop_waiting(*job);
  leave_running(*job);
  forget_stale(*job);
  Queue& queue = queues.at(job->queue);
  if (job->is_waiting()) {
    --queue.jobs_waiting;
  } else {
    --queue.jobs_running;
    if (job->array.is_set()) {
      --arrays[job->array].running;
      waiting.unpark_array(job->array, queues);
    }
  }
  if (job->array.is_set() && --arrays[job->array].live == 0) arrays.erase(job->array);
  begins.erase({job->not_before, job->id});
  const auto user = jobs_of_user.find(job->spec->owner.uid);
  if (--user->second == 0) jobs_of_user.erase(user);
  forget_dependencies(*job);
  if (job->started.is_set()) prediction.learn(job->spec->owner.uid, now - job->started);
  ended.add(job->id, end.state, job->attempt > 1 || job->started.is_set());
  const JobId id = job->id;
  jobs.erase(id);
  attention.erase(id);
  tell_dependents(id);
  dependents.erase(id);
}

bool State::has_ended(const Claim& claim) const {
  return leave_numbers.empty() || *leave_numbers.begin() > claim.waits_for;
}

bool State::settle_claims() {
  return std::erase_if(claims, [&](const Claim& claim) {
           const Job* job = find(claim.beneficiary);
           const bool is_on_its_way = job != nullptr && claim.moved_for.is_set() && job->stop_reason;
           return has_ended(claim) || job == nullptr || (job->group == 0 && !is_on_its_way);
         }) > 0;
}

void State::settle() {
  attention.clear();
  note_gangs();
  settle_claims();
  if (removed_gpus == 0) return;
  removed_gpus = 0;
  bool any_gone = false;
  std::erase_if(gpus, [&](const auto& entry) {
    if (!entry.second.removed) return false;
    if (!tasks_on(entry.first).empty()) {
      ++removed_gpus;
      return false;
    }
    capacity.remove_gpu(entry.first);
    any_gone = true;
    return true;
  });
  if (any_gone) refresh_shapes();
}

}  // namespace tranche::scheduler
