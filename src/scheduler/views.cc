// What stands, for listings: jobs, GPUs, queues.
#include <algorithm>

#include "scheduler/implementation.h"

namespace tranche::scheduler {
namespace {

// A job runs over quota when some queue above it has a quota that it does not lie within, or when none has
// one and its queue uses more than it is entitled to.
bool is_over_quota(const State& state, const Job& job) {
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
  return state.queues.at(job.queue).used > state.queues.at(job.queue).entitled;
}

void add_share(const State& state, QueueIndex index, std::vector<QueueShare>& out) {
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
    share.demand = queue.demand;
    share.fair_share = queue.fair;
    share.usage_milli_gpu_hours = state.queues.usage_milli_gpu_hours(index, state.now);
    share.jobs_waiting = queue.jobs_waiting;
    share.jobs_running = queue.jobs_running;
    share.used_cpu = queue.host_used.cpu;
    share.used_memory = queue.host_used.memory;
    share.quota_cpu = queue.host_quota.cpu;
    share.limit_cpu = queue.host_limit.cpu;
    share.quota_memory = queue.host_quota.memory;
    share.limit_memory = queue.host_limit.memory;
    out.push_back(std::move(share));
  }
  const size_t own = out.size();
  for (const QueueIndex child : queue.children) {
    const size_t before = out.size();
    add_share(state, child, out);
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
  view.over_quota = is_over_quota(*state_, *job);
  for (const Task& task : job->tasks) view.tasks.push_back(task.start);
  return view;
}

std::vector<Node> Scheduler::nodes() const {
  std::vector<Node> nodes;
  for (const auto& [id, node] : state_->nodes) nodes.push_back(node);
  return nodes;
}

std::vector<JobId> Scheduler::live_jobs() const { return state_->jobs.keys(); }

std::vector<JobId> Scheduler::waiting_order() const {
  const Promises& promises = state_->analysis();
  std::vector<JobId> order;
  // Room is being freed for them. One that runs and would grow does not wait.
  for (const auto& [id, plan] : promises.claims()) {
    const Job* job = state_->find(id);
    if (job != nullptr && job->is_waiting()) order.push_back(id);
  }
  for (const JobId id : order_of_waiting(*state_, promises.planned())) {
    if (!promises.is_claimant(id)) order.push_back(id);
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
    view.tasks = state_->tasks_on(id);
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<QueueShare> Scheduler::shares() const {
  std::vector<QueueShare> out;
  add_share(*state_, kRootQueue, out);
  return out;
}

}  // namespace tranche::scheduler
