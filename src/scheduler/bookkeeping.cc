// Who is ready, who holds what, and who waits for whom: the parts of the state that follow from the rest.
#include <algorithm>

#include "base/assert.h"
#include "base/quantity_text.h"
#include "model/task_groups.h"
#include "scheduler/state.h"
#include "scheduler/task_step.h"

namespace tranche::scheduler {

HeadKey head_key(const GroupKey& key, JobId job) {
  return {-key.first, -int64_t{key.priority}, key.grows, key.expected, job};
}

uint32_t& retries_of(RetryPolicy& retries, std::optional<JobState> failure) {
  if (failure == JobState::failed) return retries.error;
  if (failure == JobState::out_of_memory) return retries.out_of_memory;
  return retries.infrastructure;
}

MilliGpu Holding::charge() const {
  MilliGpu sum;
  for (const MilliGpu charge : charges) sum += charge;
  return sum;
}

void EndedJobs::add(JobId job, JobState state, bool had_started) {
  TRANCHE_ASSERT(is_final(state) && job.value() < (uint64_t{1} << 40));
  if (job.value() >= by_id_.size()) by_id_.resize(job.value() + job.value() / 2 + 1);
  const auto byte = static_cast<uint8_t>(static_cast<unsigned>(state) * 2 + (had_started ? 1 : 0));
  by_id_[job.value()] = byte;
  StateHash one;
  one.add(job.value());
  one.add(uint64_t{byte});
  digest_ += one.digest();
}

std::optional<JobState> EndedJobs::state(JobId job) const {
  if (job.value() >= by_id_.size() || by_id_[job.value()] == 0) return std::nullopt;
  return static_cast<JobState>(by_id_[job.value()] / 2);
}

bool EndedJobs::had_started(JobId job) const {
  return job.value() < by_id_.size() && (by_id_[job.value()] & 1) != 0;
}

Job* State::find(JobId job) { return jobs.find(job); }
const Job* State::find(JobId job) const { return jobs.find(job); }

std::vector<TaskKey> State::tasks_on(GpuId gpu) const {
  std::vector<TaskKey> tasks;
  const auto node = capacity.node_of(gpu);
  if (!node || *node >= holdings_on.size()) return tasks;
  for (const uint32_t position : holdings_on[*node]) {
    const Holding& holding = holdings.at(position);
    for (const Slice& slice : holding.slices) {
      if (slice.gpu == gpu) tasks.push_back(holding.task);
    }
  }
  return tasks;
}

// An hour ahead for each step of priority; clamped so that the sum stays within 64 bits.
int64_t State::aged(const Job& job) const {
  constexpr int64_t kStepsMost = 100'000;
  const int64_t steps = std::clamp<int64_t>(job.spec->priority, -kStepsMost, kStepsMost);
  return job.submitted.nanoseconds() - steps * kHour.count();
}

const Claim* State::claim_of(JobId beneficiary) const {
  for (const Claim& claim : claims) {
    if (claim.beneficiary == beneficiary) return &claim;
  }
  return nullptr;
}

bool State::is_leaving(const TaskKey& key, const Holding&) const { return leaving.contains(key); }

Time State::latest_end(const JobSpec& spec, Time start) {
  const Duration most = spec.time_limit + spec.grace;
  return start.nanoseconds() > kNever.nanoseconds() - most.count() ? kNever : start + most;
}

Time State::latest_end(const Job& job) { return latest_end(*job.spec, job.started); }

Task* State::live_task(const TaskKey& key) {
  Job* job = find(key.job);
  if (job == nullptr) return nullptr;
  if (key.rank < job->tasks.size() && job->tasks[key.rank].start.task == key) return &job->tasks[key.rank];
  const auto found = std::find_if(job->tasks.begin(), job->tasks.end(),
                                  [&](const Task& task) { return task.start.task == key; });
  return found == job->tasks.end() ? nullptr : &*found;
}

// A job is ready when nothing of its own keeps it: it is in its queue's order then.
void State::update_ready(Job& job) {
  const bool ready = job.state == JobState::pending && job.begin_passed && !job.doomed &&
                     job.unmet_dependencies == 0 && !job.cancel_requested;
  if (!ready && !may_grow(job)) return stop_waiting(job);
  if (job.group != 0) return;
  const JobSpec& spec = *job.spec;
  const auto step = next_step_of(*this, job);
  if (step == nullptr && is_structured(spec)) return;
  Shape wanted = step != nullptr ? step->first_shape() : shape_of(spec, policy);
  if (step != nullptr) wanted.structure = job.id.value();
  const ShapeId shape = waiting.intern(wanted, capacity);
  if (step != nullptr) waiting.set_step(shape, step);
  GroupKey key{.queue = job.queue,
               .first = job.first,
               .priority = spec.priority,
               .preemptible = spec.preemptible,
               .time_limit = spec.time_limit.count(),
               .grace = spec.grace.count(),
               .grows = step != nullptr && step->grows(),
               .expected = policy.backfill_order == BackfillOrder::shortest ? job.expected.count() : 0,
               .capped_array = {},
               .shape = shape};
  if (job.array.is_set() && arrays.at(job.array).running_max > 0) key.capped_array = job.array;
  job.group = waiting.group_for(key);
  waiting.join(job.group, job.id, aged(job), queues);
  queues.add_waiting(job.queue, waiting.shape(shape).demand);
  ++times_ready;
}

// An elastic job takes on more tasks as long as nothing has begun to end it.
bool State::may_grow(const Job& job) const {
  if (!job.spec->elastic || job.is_waiting() || job.stop_reason || job.failure) return false;
  if (job.cancel_requested || job.requeue_requested || job.held || job.doomed) return false;
  // A task that has done its part shows that the job is coming to its end.
  return std::none_of(job.tasks.begin(), job.tasks.end(),
                      [](const Task& task) { return task.phase == TaskPhase::exited; });
}

// What its next step is has changed.
void State::step_again(Job& job) {
  if (!job.spec->elastic) return;
  stop_waiting(job);
  update_ready(job);
}

MilliGpu State::leave_group(Job& job) {
  if (job.group == 0) return MilliGpu();
  const MilliGpu charge = waiting.shape(waiting.group(job.group).key.shape).demand;
  waiting.leave(
      job.group, job.id, [this](JobId id) { return aged(*find(id)); }, queues);
  job.group = 0;
  return charge;
}

void State::stop_waiting(Job& job) {
  const MilliGpu charge = leave_group(job);
  if (charge.count() != 0) queues.add_waiting(job.queue, -charge);
}

void State::regroup_all() {
  const std::vector<JobId> ids = jobs.keys();
  for (const JobId id : ids) stop_waiting(*find(id));
  for (const JobId id : ids) update_ready(*find(id));
}

// What is installed has changed: where shapes may go, and the least that they are charged.
void State::refresh_shapes() {
  std::vector<MilliGpu> before;
  const BitSet& live = waiting.live_shapes();
  for (uint32_t id = live.next(0); id != BitSet::kNone; id = live.next(id + 1)) {
    before.resize(id + 1);
    before[id] = waiting.shape(id).demand;
  }
  waiting.refresh_shapes(capacity);
  for (const Group& group : waiting.groups()) {
    if (group.jobs.empty() || waiting.shape(group.key.shape).step == nullptr) continue;
    if (auto step = next_step_of(*this, *find(group.jobs.front())))
      waiting.set_step(group.key.shape, std::move(step));
  }
  for (const Group& group : waiting.groups()) {
    if (group.jobs.empty()) continue;
    const MilliGpu change = waiting.shape(group.key.shape).demand - before[group.key.shape];
    if (change.count() != 0)
      queues.add_waiting(group.key.queue, change * static_cast<int64_t>(group.jobs.size()));
  }
}

void State::refresh_derived() { queues.divide(capacity.total_compute()); }

void State::enter_running(Job& job) {
  Queue& queue = queues.at(job.queue);
  job.place_in_running = static_cast<uint32_t>(queue.running.size());
  queue.running.push_back(job.id);
  if (job.spec->preemptible) ++queue.running_priorities[gives_way_below(*job.spec)];
  queues.priorities_changed(job.queue);
}

void State::leave_running(Job& job) {
  if (job.place_in_running == UINT32_MAX) return;
  Queue& queue = queues.at(job.queue);
  const JobId last = queue.running.back();
  queue.running[job.place_in_running] = last;
  queue.running.pop_back();
  if (last != job.id) find(last)->place_in_running = job.place_in_running;
  job.place_in_running = UINT32_MAX;
  if (!job.spec->preemptible) return;
  const auto priority = queue.running_priorities.find(gives_way_below(*job.spec));
  if (--priority->second == 0) queue.running_priorities.erase(priority);
  queues.priorities_changed(job.queue);
}

void State::note_start(const Job& job) {
  if (!job.spec->preemptible) return;
  constexpr size_t kGoneMost = 4096;  // entries that are kept beyond twice the jobs that may stand
  if (started.size() > 2 * jobs.size() + kGoneMost) {
    started.erase(started.begin(), started.begin() + static_cast<std::ptrdiff_t>(started_from));
    started_from = 0;
    std::erase_if(started, [&](const auto& start) { return !stands(start); });
  }
  started.push_back({job.started, job.id});
}

bool State::stands(const std::pair<Time, JobId>& start) const {
  const Job* job = find(start.second);
  return job != nullptr && job->place_in_running != UINT32_MAX && job->started == start.first;
}

std::optional<Time> State::longest_running() {
  while (started_from < started.size() && !stands(started[started_from])) ++started_from;
  if (started_from == started.size()) return std::nullopt;
  return started[started_from].first;
}

void State::begin_to_leave(const TaskKey& key) {
  if (!leaving.emplace(key, last_leave + 1).second) return;
  leave_numbers.insert(++last_leave);
}

void State::stop_staying(Holding& holding) {
  if (!holding.stays) return;
  holding.stays = false;
  queues.add_staying(holding.queue, -holding.charge());
  queues.add_host_staying(holding.queue, -holding.host());
}

void State::pass_begin_times() {
  while (!begins.empty() && begins.begin()->first <= now) {
    Job* job = find(begins.begin()->second);
    begins.erase(begins.begin());
    if (job == nullptr) continue;
    job->begin_passed = true;
    update_ready(*job);
  }
}

bool is_broken(const Job& job) {
  if (job.is_waiting() || job.stop_reason) return false;
  const JobSpec& spec = *job.spec;
  uint32_t live = 0;
  bool any_done = false;
  for (const Task& task : job.tasks) {
    const bool is_gone = task.phase == TaskPhase::exited;
    live += is_gone ? 0 : 1;
    any_done =
        any_done || (is_gone && !task.never_executed && task.cause == ExitCause::exited && task.code == 0);
  }
  if (live == 0) return false;
  if (job.failure && !spec.elastic) return true;
  // Whoever has done its part has not left the others alone.
  if (any_done) return false;
  if (spec.groups.empty()) return live < spec.tasks_min;
  TaskGroups::RankSet running(spec.tasks_max);
  for (const Task& task : job.tasks) {
    const uint32_t rank = task.start.task.rank;
    if (task.phase != TaskPhase::exited && rank < running.size()) running[rank] = true;
  }
  return !TaskGroups(spec).is_satisfied(running);
}

void State::note_gangs() {
  for (const JobId id : gangs_changed) {
    Job* job = find(id);
    if (job == nullptr) continue;
    if (!is_broken(*job)) {
      forget_stale(*job);
    } else if (!job->stale_until.is_set()) {
      const Duration grace = job->spec->gang_grace;
      job->stale_until = grace >= kDurationMax ? kNever : now + grace;
      if (job->stale_until != kNever) stale.insert({job->stale_until, id});
    }
  }
  gangs_changed.clear();
}

void State::forget_stale(Job& job) {
  stale.erase({job.stale_until, job.id});
  job.stale_until = Time();
}

void State::pass_stale_times() {
  for (const auto& [time, id] : stale) {
    if (time > now) return;
    attention.insert(id);
  }
}

// The job is not ready before `begin`, if that is still to come.
void State::wait_until_begin(Job& job, Time begin) {
  begins.erase({job.not_before, job.id});
  job.not_before = begin;
  job.begin_passed = begin <= now;
  if (!job.begin_passed) begins.insert({begin, job.id});
}

// Processors and host memory are free when the processes are gone, GPUs only when their memory is.
void State::release_host(const TaskKey& key) {
  Holding* holding = holdings.find(key);
  if (holding == nullptr || holding->exited) return;
  stop_staying(*holding);
  holding->exited = true;
  begin_to_leave(key);
  capacity.give_host(holding->node, holding->cpu, holding->memory);
  queues.charge_host(holding->queue, -holding->host(), holding->preemptible);
  for (const QueueIndex at : queues.path_to_root(holding->queue)) waiting.unpark_bound(at, queues);
  holding->cpu = MilliCpu();
  holding->memory = MiB();
  release_slices(key, GpuId());
}

// Releases the slice on `only`, or all of them; the holding goes with its last one.
void State::release_slices(const TaskKey& key, std::optional<GpuId> only) {
  Holding* holding = holdings.find(key);
  if (holding == nullptr) return;
  for (size_t i = holding->slices.size(); i-- > 0;) {
    const Slice slice = holding->slices[i];
    if (only && slice.gpu != *only) continue;
    capacity.give_slice(holding->uid, slice);
    queues.charge(holding->queue, -holding->charges[i], holding->preemptible, now);
    holding->slices.erase(holding->slices.begin() + static_cast<std::ptrdiff_t>(i));
    holding->charges.erase(holding->charges.begin() + static_cast<std::ptrdiff_t>(i));
    for (const QueueIndex at : queues.path_to_root(holding->queue)) waiting.unpark_bound(at, queues);
  }
  if (!holding->slices.empty() || !holding->exited) return;
  if (const auto node = capacity.index_of(holding->node))
    std::erase(holdings_on[*node], *holdings.position(key));
  const auto left = leaving.find(key);
  leave_numbers.erase(left->second);
  leaving.erase(left);
  holdings.erase(key);
}

DependencyStatus status_of(const Dependency& dependency, const State& state) {
  using enum DependencyStatus;
  if (const Job* job = state.find(dependency.job)) {
    const bool has_started = job->attempt > 1 || job->started.is_set();
    return dependency.kind == DependencyKind::after_start && has_started ? satisfied : waiting;
  }
  const auto final_state = state.ended.state(dependency.job);
  if (!final_state) return impossible;  // never submitted
  switch (dependency.kind) {
    case DependencyKind::after_ok:
      return *final_state == JobState::completed ? satisfied : impossible;
    case DependencyKind::after_not_ok:
      return *final_state != JobState::completed ? satisfied : impossible;
    case DependencyKind::after_any:
      return satisfied;
    case DependencyKind::after_start:
      return state.ended.had_started(dependency.job) ? satisfied : impossible;
  }
  return impossible;
}

void State::register_dependencies(Job& job) {
  if (job.spec->dependencies.empty()) return;
  for (const Dependency& dependency : job.spec->dependencies) {
    if (status_of(dependency, *this) == DependencyStatus::waiting)
      dependents[dependency.job].push_back(job.id);
  }
  dependency_changed(job);
}

void State::forget_dependencies(const Job& job) {
  for (const Dependency& dependency : job.spec->dependencies) {
    const auto list = dependents.find(dependency.job);
    if (list == dependents.end()) continue;
    std::erase(list->second, job.id);
    if (list->second.empty()) dependents.erase(list);
  }
}

void State::tell_dependents(JobId target) {
  const auto found = dependents.find(target);
  if (found == dependents.end()) return;
  const std::vector<JobId> told = found->second;
  for (const JobId id : told) {
    if (Job* job = find(id)) dependency_changed(*job);
  }
}

void State::dependency_changed(Job& job) {
  job.unmet_dependencies = 0;
  for (const Dependency& dependency : job.spec->dependencies) {
    const DependencyStatus status = status_of(dependency, *this);
    if (status == DependencyStatus::waiting) ++job.unmet_dependencies;
    if (status == DependencyStatus::impossible) job.doomed = true;
  }
  if (job.doomed) attention.insert(job.id);
  update_ready(job);
}

}  // namespace tranche::scheduler
