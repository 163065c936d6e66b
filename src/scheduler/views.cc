// What stands, for listings: jobs, GPUs, queues.
#include <algorithm>

#include "scheduler/implementation.h"

namespace tranche::scheduler {
namespace {

// A job runs over quota when some queue above it has a quota that it does not lie within, or when none has
// one and its queue uses more than it is entitled to.
bool is_over_quota(const State& state, const Pass& pass, const Job& job) {
  if (job.is_waiting() || !job.spec->preemptible) return false;
  bool has_quota = false;
  for (const QueueIndex at : state.queues.path_to_root(job.queue)) {
    const Queue& queue = state.queues.at(at);
    if (!queue.quota) continue;
    has_quota = true;
    if (queue.used <= *queue.quota) return false;
    const auto inside = jobs_inside_quota(state, at);
    if (std::find(inside.begin(), inside.end(), job.id) != inside.end()) return false;
  }
  if (has_quota) return true;
  const auto& shares = pass.shares();
  return job.queue < shares.size() && state.queues.at(job.queue).used > shares[job.queue].entitled;
}

void add_share(const State& state, const std::vector<Share>& shares, QueueIndex index,
               std::vector<QueueShare>& out) {
  const Queue& queue = state.queues.at(index);
  if (index != kRootQueue) {
    QueueShare share;
    share.path = queue.path;
    share.weight = queue.weight;
    share.priority = queue.priority;
    share.has_quota = queue.quota.has_value();
    share.has_limit = queue.limit.has_value();
    share.quota = queue.quota.value_or(MilliGpu());
    share.limit = queue.limit.value_or(MilliGpu());
    share.used = queue.used;
    share.demand = shares[index].demand;
    share.fair_share = shares[index].fair;
    share.usage_milli_gpu_hours = state.queues.usage_milli_gpu_hours(index, state.now);
    share.jobs_waiting = queue.jobs_waiting;
    share.jobs_running = queue.jobs_running;
    out.push_back(std::move(share));
  }
  const size_t own = out.size();
  for (const QueueIndex child : queue.children) {
    const size_t before = out.size();
    add_share(state, shares, child, out);
    if (index == kRootQueue) continue;
    out[own - 1].jobs_waiting += out[before].jobs_waiting;
    out[own - 1].jobs_running += out[before].jobs_running;
  }
}

}  // namespace

Result<JobView> Scheduler::job(JobId id) const {
  const Job* job = state_->find(id);
  if (job == nullptr) {
    return fail(ErrorCode::not_found,
                "job " + std::to_string(id.value()) + " is not live; look in the history");
  }
  JobView view;
  view.job = job->id;
  view.array = job->array;
  view.array_index = job->array_index;
  view.state = job->state;
  view.attempt = job->attempt;
  view.spec = job->spec.get();
  view.submitted = job->submitted;
  view.started = job->started;
  view.over_quota = is_over_quota(*state_, state_->analysis(), *job);
  for (const Task& task : job->tasks) view.tasks.push_back(task.start);
  return view;
}

std::vector<Node> Scheduler::nodes() const {
  std::vector<Node> nodes;
  for (const auto& [id, node] : state_->nodes) nodes.push_back(node);
  return nodes;
}

std::vector<JobId> Scheduler::live_jobs() const {
  std::vector<JobId> ids;
  ids.reserve(state_->jobs.size());
  for (const auto& [id, job] : state_->jobs) ids.push_back(id);
  return ids;
}

std::vector<JobId> Scheduler::waiting_order() const {
  const Pass& pass = state_->analysis();
  std::vector<JobId> order;
  for (const auto& [id, plan] : pass.claims()) order.push_back(id);  // room is being freed for them
  const std::vector<JobId> claimants = order;
  for (const JobId id : order_of_waiting(*state_, pass.shares(), pass.planned())) {
    if (std::find(claimants.begin(), claimants.end(), id) == claimants.end()) order.push_back(id);
  }
  return order;
}

std::vector<GpuView> Scheduler::gpus() const {
  std::vector<GpuView> views;
  for (const auto& [id, record] : state_->gpus) {
    if (record.removed) continue;
    const GpuRoom* room = state_->capacity.gpu(id);
    GpuView view;
    view.gpu = &record.gpu;
    view.health = record.health;
    view.drained = record.drained;
    view.reason = record.drained ? record.drain_reason : record.health_reason;
    view.compute_free = room->compute_free;
    view.memory_free = room->memory_free;
    view.tasks = record.tasks;
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<QueueShare> Scheduler::shares() const {
  std::vector<MilliGpu> waiting(state_->queues.size());
  for (const auto& [id, group] : state_->groups) {
    waiting[group.key.queue] +=
        charge_at_least(group.key.shape, state_->capacity, group.key.shape.tasks_min) *
        static_cast<int64_t>(group.jobs.size());
  }
  const auto shares = compute_shares(state_->queues, waiting, state_->capacity.total_compute(), state_->now);
  std::vector<QueueShare> out;
  add_share(*state_, shares, kRootQueue, out);
  return out;
}

}  // namespace tranche::scheduler
