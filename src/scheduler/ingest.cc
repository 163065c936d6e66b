// Taking events in: the state afterwards says what happened, and nothing is decided.
#include <algorithm>

#include "base/assert.h"
#include "scheduler/state.h"

namespace tranche::scheduler {
namespace {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// The final state that a task's exit means for its job; none: no failure.
std::optional<JobState> failure_of(const TaskExited& exit) {
  switch (exit.cause) {
    case ExitCause::exited:
      return exit.code == 0 ? std::nullopt : std::optional(JobState::failed);
    case ExitCause::signalled:
      return JobState::failed;
    case ExitCause::time_limit:
      return JobState::timed_out;
    case ExitCause::killed:
      return std::nullopt;
    case ExitCause::out_of_memory:
      return JobState::out_of_memory;
    case ExitCause::node_failed:
      return JobState::node_failed;
    case ExitCause::lost:
      return JobState::unknown;
  }
  return std::nullopt;
}

}  // namespace

void State::take_in(const Event& event) {
  TRANCHE_ASSERT(event.time > now);
  now = event.time;
  last_event = event.seq;
  queues.advance(now);
  pass_begin_times();
  pass_stale_times();
  const uint64_t machine = capacity.machine_version();
  std::visit(Overloaded{
                 [&](const PolicyChanged& e) { take_in_policy(e); },
                 [&](const NodeAdded&) { take_in_machine(event); },
                 [&](const NodeRemoved&) { take_in_machine(event); },
                 [&](const GpuAdded&) { take_in_machine(event); },
                 [&](const GpuRemoved&) { take_in_machine(event); },
                 [&](const HealthChanged&) { take_in_machine(event); },
                 [&](const GpuFaulted&) {},  // its consequences are events of their own
                 [&](const GpuDrained&) { take_in_machine(event); },
                 [&](const GpuUndrained&) { take_in_machine(event); },
                 [&](const Tick&) { wake = Time(); },
                 [&](const WallClockStepped&) {},  // calendars only, and there are none yet
                 [&](const JobSubmitted& e) { submit(e); },
                 [&](const JobCancelled& e) { cancel(e); },
                 [&](const JobHeld& e) { hold(e); },
                 [&](const JobReleased& e) { release(e); },
                 [&](const JobUpdated& e) { update(e); },
                 [&](const JobRequeued& e) {
                   Job* job = find(e.job);
                   if (job == nullptr || job->is_waiting()) return;
                   job->requeue_requested = true;
                   attention.insert(job->id);
                 },
                 [&](const TaskStarted& e) { task_started(e); },
                 [&](const TaskStartFailed& e) { task_start_failed(e); },
                 [&](const TaskExited& e) { task_exited(e); },
                 [&](const SliceReleased& e) { slice_released(e); },
             },
             event.payload);
  if (capacity.machine_version() != machine) refresh_shapes();
  scores.settle(capacity);
}

void State::cancel(const JobCancelled& event) {
  for (uint64_t i = 0; i <= event.more; ++i) {
    Job* job = find(JobId(event.job.value() + i));
    if (job == nullptr) continue;
    job->cancel_requested = true;
    attention.insert(job->id);
  }
}

void State::hold(const JobHeld& event) {
  for (uint64_t i = 0; i <= event.more; ++i) {
    Job* job = find(JobId(event.job.value() + i));
    if (job == nullptr || (event.more > 0 && !job->is_waiting())) continue;
    job->held = true;
    if (job->state == JobState::pending) job->state = JobState::held;
    update_ready(*job);
  }
}

void State::release(const JobReleased& event) {
  for (uint64_t i = 0; i <= event.more; ++i) {
    Job* job = find(JobId(event.job.value() + i));
    if (job == nullptr) continue;
    job->held = false;
    if (job->state == JobState::held) job->state = JobState::pending;
    update_ready(*job);
  }
}

bool State::is_for_all(GpuId gpu) const {
  return std::binary_search(policy.users_share_gpus.begin(), policy.users_share_gpus.end(), gpu);
}

void State::take_in_policy(const PolicyChanged& event) {
  const bool regroup = event.policy.users_share_gpu != policy.users_share_gpu ||
                       event.policy.users_share_gpus != policy.users_share_gpus ||
                       event.policy.placement != policy.placement ||
                       event.policy.gpu_placement != policy.gpu_placement ||
                       event.policy.backfill_order != policy.backfill_order;
  policy = event.policy;
  queues.configure(policy, now);
  know_nothing = true;
  for (const auto& [id, record] : gpus) capacity.set_for_all(id, is_for_all(id));
  if (regroup) regroup_all();
}

void State::submit(const JobSubmitted& event) {
  const auto spec = std::make_shared<const JobSpec>(event.spec);
  const QueueIndex queue = queues.ensure(spec->queue);
  const size_t count = std::max<size_t>(event.array.indices.size(), 1);
  const bool is_array = !event.array.indices.empty();
  if (is_array) {
    ArrayRecord& array = arrays[ArrayId(event.job.value())];
    array.running_max = event.array.running_max;
    array.live = static_cast<uint32_t>(count);
  }
  jobs_of_user[spec->owner.uid] += static_cast<uint32_t>(count);
  scores.learn(*spec, static_cast<uint32_t>(count));
  queues.at(queue).jobs_waiting += static_cast<uint32_t>(count);
  for (size_t i = 0; i < count; ++i) {
    Job job;
    job.id = JobId(event.job.value() + i);
    if (is_array) {
      job.array = ArrayId(event.job.value());
      job.array_index = event.array.indices[i];
    }
    job.spec = spec;
    job.submitted = now;
    job.expected = prediction.expected(spec->owner.uid, spec->time_limit);
    job.queue = queue;
    job.held = spec->held;
    job.state = spec->held ? JobState::held : JobState::pending;
    wait_until_begin(job, spec->begin);
    const JobId id = job.id;
    TRANCHE_ASSERT(find(id) == nullptr);
    Job& added = jobs.at(jobs.add(id, std::move(job)));
    register_dependencies(added);
    update_ready(added);
  }
}

// The elements of an array share what they were submitted with: one that is changed gets its own.
void State::update(const JobUpdated& event) {
  Job* job = find(event.job);
  if (job == nullptr) return;
  stop_waiting(*job);
  const bool is_running = job->place_in_running != UINT32_MAX;
  if (is_running) leave_running(*job);
  const auto spec = std::make_shared<JobSpec>(*job->spec);
  if (event.time_limit) spec->time_limit = *event.time_limit;
  if (event.grace) spec->grace = *event.grace;
  if (event.priority) spec->priority = *event.priority;
  if (event.begin) spec->begin = *event.begin;
  if (!event.payload_hash.empty()) spec->payload_hash = event.payload_hash;
  if (!event.name_hash.empty()) spec->name_hash = event.name_hash;
  if (event.dependencies) {
    forget_dependencies(*job);
    spec->dependencies = *event.dependencies;
  }
  job->spec = spec;
  if (event.gpu_memory.count() > 0) resize(*job, event);
  if (is_running) enter_running(*job);
  if (event.first) job->first = static_cast<int64_t>(last_event.value());
  if (job->is_waiting()) {
    if (event.begin) wait_until_begin(*job, *event.begin);
    if (event.dependencies) {
      job->unmet_dependencies = 0;
      register_dependencies(*job);
    }
    return update_ready(*job);
  }
  for (const Task& task : job->tasks) {
    Holding* holding = holdings.find(task.start.task);
    if (holding == nullptr || holding->exited || task.stop_sent) continue;
    holding->latest_end = latest_end(*job);
    if (const auto node = capacity.index_of(holding->node)) capacity.note_change(*node);
  }
}

void State::take_in_machine(const Event& event) {
  std::visit(Overloaded{
                 [&](const NodeAdded& e) {
                   queues.add_host({e.node.cpu, e.node.memory});
                   if (const NodeRoom* known = capacity.node(e.node.id); known != nullptr && known->present)
                     queues.add_host({-known->cpu, -known->memory});
                   nodes[e.node.id] = e.node;
                   capacity.add_node(e.node);
                   holdings_on.resize(capacity.nodes().size());
                 },
                 [&](const NodeRemoved& e) {
                   if (const NodeRoom* known = capacity.node(e.node); known != nullptr && known->present)
                     queues.add_host({-known->cpu, -known->memory});
                   capacity.remove_node(e.node);
                   for (auto& [id, record] : gpus) {
                     if (record.gpu.node != e.node) continue;
                     record.removed = true;
                     refresh_gpu(id);
                   }
                 },
                 [&](const GpuAdded& e) {
                   const bool is_held = gpus.contains(e.gpu.id) && !tasks_on(e.gpu.id).empty();
                   gpus[e.gpu.id] = GpuRecord{.gpu = e.gpu, .health_reason = {}, .drain_reason = e.drained};
                   gpus[e.gpu.id].drained = !e.drained.empty();
                   // What is on it stays on it.
                   if (is_held) return refresh_gpu(e.gpu.id);
                   capacity.remove_gpu(e.gpu.id);
                   capacity.add_gpu(e.gpu);
                   capacity.set_for_all(e.gpu.id, is_for_all(e.gpu.id));
                   if (!e.drained.empty()) refresh_gpu(e.gpu.id);
                 },
                 [&](const GpuRemoved& e) {
                   if (!gpus.contains(e.gpu)) return;
                   gpus[e.gpu].removed = true;
                   refresh_gpu(e.gpu);
                 },
                 [&](const HealthChanged& e) {
                   if (!gpus.contains(e.gpu)) return;
                   gpus[e.gpu].health = e.health;
                   gpus[e.gpu].health_reason = e.reason;
                   refresh_gpu(e.gpu);
                 },
                 [&](const GpuDrained& e) {
                   if (!gpus.contains(e.gpu)) return;
                   gpus[e.gpu].drained = true;
                   gpus[e.gpu].drain_reason = e.reason;
                   refresh_gpu(e.gpu);
                 },
                 [&](const GpuUndrained& e) {
                   if (!gpus.contains(e.gpu)) return;
                   gpus[e.gpu].drained = false;
                   gpus[e.gpu].drain_reason.clear();
                   refresh_gpu(e.gpu);
                 },
                 [](const auto&) {},
             },
             event.payload);
}

// Brings the room's flags in line with the record; tasks on a GPU that is gone come to attention, and what
// exited tasks hold there is free at once, since nobody can see that memory any more.
void State::refresh_gpu(GpuId id) {
  const GpuRecord& record = gpus.at(id);
  if (capacity.gpu(id) == nullptr) return;
  const bool gone = record.removed || record.health == Health::lost;
  if (record.removed) ++removed_gpus;
  capacity.set_condition(id, !gone && !record.drained && record.health != Health::failed, !gone,
                         record.health == Health::degraded);
  if (!gone) return;
  for (const TaskKey& key : tasks_on(id)) {
    attention.insert(key.job);
    if (holdings.find(key)->exited) release_slices(key, id);
  }
}

void State::task_started(const TaskStarted& event) {
  Task* task = live_task(event.task);
  if (task == nullptr || task->phase != TaskPhase::starting) return;
  task->phase = TaskPhase::running;
  Job& job = *find(event.task.job);
  if (job.state != JobState::starting) return;
  job.state = JobState::running;
  job.started = now;
  note_start(job);
  queues.add_staying(job.queue, MilliGpu());  // as much, but since another time (givers.h)
  for (const Task& each : job.tasks) {
    Holding* holding = holdings.find(each.start.task);
    if (holding == nullptr || holding->exited) continue;
    holding->latest_end = latest_end(job);
    if (const auto node = capacity.index_of(holding->node)) capacity.note_change(*node);
  }
}

void State::task_start_failed(const TaskStartFailed& event) {
  Task* task = live_task(event.task);
  if (task == nullptr || task->phase != TaskPhase::starting) return;
  task->phase = TaskPhase::exited;
  task->never_executed = true;
  task->may_retry = event.retry;
  // It never ran, so no GPU can hold memory of it.
  release_host(event.task);
  release_slices(event.task, std::nullopt);
  step_again(*find(event.task.job));
  attention.insert(event.task.job);
}

void State::task_exited(const TaskExited& event) {
  Task* task = live_task(event.task);
  if (task == nullptr || task->phase == TaskPhase::exited) return;
  task->phase = TaskPhase::exited;
  task->cause = event.cause;
  task->code = event.code;
  Job& job = *find(event.task.job);
  // What happens after a Stop is its consequence, unless nobody knows what happened.
  const bool by_itself = !task->stop_sent || event.cause == ExitCause::lost;
  if (by_itself && !job.failure) job.failure = failure_of(event);
  release_host(event.task);
  if (Holding* holding = holdings.find(event.task)) {
    holding->latest_end = now;
    if (const auto node = capacity.index_of(holding->node)) capacity.note_change(*node);
    const std::vector<Slice> slices = holding->slices;
    for (const Slice& slice : slices) {
      const GpuRoom* room = capacity.gpu(slice.gpu);
      if (room != nullptr && !room->installed) release_slices(event.task, slice.gpu);
    }
  }
  if (job.spec->elastic && task->stop_sent && !job.stop_reason && !job.failure) {
    // Taken from a job that goes on without it.
    job.left.push_back(event.task.rank);
    std::erase_if(job.tasks, [&](const Task& each) { return each.start.task == event.task; });
  }
  step_again(job);
  attention.insert(event.task.job);
  gangs_changed.push_back(event.task.job);
}

void State::slice_released(const SliceReleased& event) {
  const Holding* holding = holdings.find(event.task);
  if (holding == nullptr || !holding->exited) return;
  release_slices(event.task, event.gpu);
}

}  // namespace tranche::scheduler
