// Who is ready, who holds what, and who waits for whom: the parts of the state that follow from the rest.
#include <algorithm>

#include "base/assert.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

HeadKey head_key(const GroupKey& key, JobId job) { return {-key.first, -int64_t{key.priority}, job}; }

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

Job* State::find(JobId job) {
  const auto found = jobs.find(job);
  return found == jobs.end() ? nullptr : &found->second;
}

const Job* State::find(JobId job) const {
  const auto found = jobs.find(job);
  return found == jobs.end() ? nullptr : &found->second;
}

const Claim* State::claim_of(JobId beneficiary) const {
  for (const Claim& claim : claims) {
    if (claim.beneficiary == beneficiary) return &claim;
  }
  return nullptr;
}

bool State::is_leaving(const TaskKey& key, const Holding& holding) const {
  if (holding.exited) return true;
  const Job* job = find(key.job);
  return job == nullptr || job->attempt != key.attempt || job->tasks[key.rank].stop_sent;
}

Time State::latest_end(const JobSpec& spec, Time start) {
  const Duration most = spec.time_limit + spec.grace;
  return start.nanoseconds() > kNever.nanoseconds() - most.count() ? kNever : start + most;
}

Time State::latest_end(const Job& job) { return latest_end(*job.spec, job.started); }

Task* State::live_task(const TaskKey& key) {
  Job* job = find(key.job);
  if (job == nullptr || job->attempt != key.attempt || key.rank >= job->tasks.size()) return nullptr;
  return &job->tasks[key.rank];
}

// A job is ready when nothing of its own keeps it: it is in its queue's order then.
void State::update_ready(Job& job) {
  const bool ready = job.state == JobState::pending && job.begin_passed && !job.doomed &&
                     job.unmet_dependencies == 0 && !job.cancel_requested;
  if (!ready) return leave_group(job);
  if (job.group != 0) return;
  const JobSpec& spec = *job.spec;
  GroupKey key{.queue = job.queue,
               .first = job.first,
               .priority = spec.priority,
               .preemptible = spec.preemptible,
               .time_limit = spec.time_limit.count(),
               .grace = spec.grace.count(),
               .capped_array = {},
               .shape = shape_of(spec, policy.users_share_gpu)};
  if (job.array.is_set() && arrays.at(job.array).running_max > 0) key.capped_array = job.array;
  const auto [entry, is_new] = group_of.try_emplace(key, last_group + 1);
  if (is_new) groups.emplace(++last_group, Group{.key = key, .jobs = {}});
  Group& group = groups.at(entry->second);
  auto& heads = queues.at(job.queue).heads;
  if (!group.jobs.empty()) heads.erase(head_key(key, *group.jobs.begin()));
  group.jobs.insert(job.id);
  heads.emplace(head_key(key, *group.jobs.begin()), entry->second);
  job.group = entry->second;
  ++times_ready;
}

void State::leave_group(Job& job) {
  if (job.group == 0) return;
  const auto found = groups.find(job.group);
  Group& group = found->second;
  const GroupKey key = group.key;
  auto& heads = queues.at(job.queue).heads;
  heads.erase(head_key(key, *group.jobs.begin()));
  group.jobs.erase(job.id);
  if (group.jobs.empty()) {
    group_of.erase(group.key);
    groups.erase(found);
  } else {
    heads.emplace(head_key(key, *group.jobs.begin()), job.group);
  }
  job.group = 0;
}

void State::regroup_all() {
  for (auto& [id, job] : jobs) leave_group(job);
  for (auto& [id, job] : jobs) update_ready(job);
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

// The job is not ready before `begin`, if that is still to come.
void State::wait_until_begin(Job& job, Time begin) {
  begins.erase({job.not_before, job.id});
  job.not_before = begin;
  job.begin_passed = begin <= now;
  if (!job.begin_passed) begins.insert({begin, job.id});
}

// Processors and host memory are free when the processes are gone, GPUs only when their memory is.
void State::release_host(const TaskKey& key) {
  const auto found = holdings.find(key);
  if (found == holdings.end() || found->second.exited) return;
  Holding& holding = found->second;
  holding.exited = true;
  capacity.give_host(holding.node, holding.cpu, holding.memory);
  holding.cpu = MilliCpu();
  holding.memory = MiB();
  release_slices(key, GpuId());
}

// Releases the slice on `only`, or all of them; the holding goes with its last one.
void State::release_slices(const TaskKey& key, std::optional<GpuId> only) {
  const auto found = holdings.find(key);
  if (found == holdings.end()) return;
  Holding& holding = found->second;
  for (size_t i = holding.slices.size(); i-- > 0;) {
    const Slice slice = holding.slices[i];
    if (only && slice.gpu != *only) continue;
    capacity.give_slice(holding.uid, slice);
    queues.charge(holding.queue, -holding.charges[i], holding.preemptible, now);
    std::erase(gpus.at(slice.gpu).tasks, key);
    holding.slices.erase(holding.slices.begin() + static_cast<std::ptrdiff_t>(i));
    holding.charges.erase(holding.charges.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (!holding.slices.empty() || !holding.exited) return;
  for (Claim& claim : claims) claim.victims.erase(key);
  holdings.erase(found);
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
  const std::vector<JobId> waiting = found->second;
  for (const JobId id : waiting) {
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
