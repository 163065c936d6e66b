// The state's digest. Derived indices (groups, dependents) are left out: they follow from the rest.
#include "scheduler/state.h"

namespace tranche::scheduler {
namespace {

void add_wide(StateHash& hash, Wide value) {
  hash.add(static_cast<uint64_t>(value));
  hash.add(static_cast<uint64_t>(value >> 64));
}

void add_key(StateHash& hash, const TaskKey& key) {
  hash.add(key.job.value());
  hash.add(uint64_t{key.rank});
  hash.add(uint64_t{key.attempt});
}

void add_optional(StateHash& hash, const std::optional<MilliGpu>& value) {
  hash.add(value ? value->count() : int64_t{-1});
}

// Nothing is added for what is not used, so that the hashes of older logs stay what they were.
void add_newer_policy(StateHash& hash, const Policy& policy) {
  for (const QueuePolicy& queue : policy.queues) {
    if (!queue.quota_cpu && !queue.limit_cpu && !queue.quota_memory && !queue.limit_memory) continue;
    hash.add(queue.path);
    for (const auto& cpu : {queue.quota_cpu, queue.limit_cpu}) hash.add(cpu ? cpu->count() : int64_t{-1});
    for (const auto& memory : {queue.quota_memory, queue.limit_memory})
      hash.add(memory ? memory->count() : int64_t{-1});
  }
  const Policy none;
  if (policy.no_head_reservation) hash.add(std::string_view("no head reservation"));
  const auto add = [&](std::string_view name, int64_t value, int64_t unset) {
    if (value == unset) return;
    hash.add(name);
    hash.add(value);
  };
  add("backfill order", static_cast<int64_t>(policy.backfill_order), 0);
  add("placement", static_cast<int64_t>(policy.placement), 0);
  add("placement of fractions", static_cast<int64_t>(policy.gpu_placement), 0);
  add("share unit", policy.share_unit.count(), 0);
  add("reclaim surplus", policy.reclaim_surplus ? policy.reclaim_surplus->count() : -1, -1);
  add("consolidation moves", policy.consolidation_moves, 0);
  add("only action", static_cast<int64_t>(policy.only_action), 0);
  for (const std::string& level : policy.topology_levels) hash.add(level);
  for (const GpuId gpu : policy.users_share_gpus) add("users share GPU", gpu.value(), 0);
}

void add_policy(StateHash& hash, const Policy& policy) {
  for (const QueuePolicy& queue : policy.queues) {
    hash.add(queue.path);
    add_optional(hash, queue.quota);
    add_optional(hash, queue.limit);
    add_optional(hash, queue.user_limit);
    hash.add(queue.weight);
    hash.add(int64_t{queue.priority});
  }
  hash.add(policy.default_queue);
  for (const ClassPolicy& job_class : policy.classes) {
    hash.add(int64_t{job_class.priority});
    hash.add(uint64_t{job_class.preemptible});
    hash.add(job_class.time_limit_default.count());
    hash.add(job_class.time_limit_max.count());
  }
  hash.add(policy.usage_half_life.count());
  hash.add(policy.minimum_runtime.count());
  hash.add(policy.grace_default.count());
  hash.add(uint64_t{policy.backfill});
  hash.add(uint64_t{policy.users_share_gpu});
  hash.add(uint64_t{policy.jobs_per_user_max});
  add_newer_policy(hash, policy);
}

void add_texts(StateHash& hash, const std::vector<std::string>& texts) {
  hash.add(uint64_t{texts.size()});
  for (const std::string& text : texts) hash.add(text);
}

void add_newer_spec(StateHash& hash, const JobSpec& spec) {
  if (spec.elastic) hash.add(std::string_view("elastic"));
  if (spec.task.gpu.count_max > 0) hash.add(~uint64_t{spec.task.gpu.count_max});
  if (spec.task.gpu.topology != GpuTopology::any) hash.add(to_string(spec.task.gpu.topology));
  if (spec.gang_grace > Duration{}) hash.add(spec.gang_grace.count());
  if (spec.preemption_delay > Duration{}) hash.add(-spec.preemption_delay.count());
  if (spec.groups.empty() && !spec.topology.is_set() && spec.nodes.empty()) return;
  hash.add(uint64_t{spec.groups_min});
  hash.add(spec.topology.required);
  hash.add(spec.topology.preferred);
  add_texts(hash, spec.nodes);
  for (const TaskGroup& group : spec.groups) {
    for (const uint32_t value :
         {group.parent, group.tasks_min, group.tasks_max, group.groups_min, group.task.gpu.count})
      hash.add(uint64_t{value});
    hash.add(static_cast<uint64_t>(group.task.gpu.kind));
    hash.add(group.task.gpu.compute.count());
    hash.add(group.task.gpu.memory.count());
    hash.add(group.task.gpu.type);
    hash.add(group.task.cpu.count());
    hash.add(group.task.memory.count());
    hash.add(group.topology.required);
    hash.add(group.topology.preferred);
    add_texts(hash, group.nodes);
  }
}

void add_spec(StateHash& hash, const JobSpec& spec) {
  hash.add(uint64_t{spec.owner.uid});
  hash.add(spec.queue);
  hash.add(static_cast<uint64_t>(spec.job_class));
  hash.add(int64_t{spec.priority});
  hash.add(uint64_t{spec.preemptible});
  hash.add(uint64_t{spec.requeue});
  hash.add(uint64_t{spec.task.gpu.count});
  hash.add(static_cast<uint64_t>(spec.task.gpu.kind));
  hash.add(spec.task.gpu.compute.count());
  hash.add(spec.task.gpu.memory.count());
  hash.add(spec.task.gpu.type);
  hash.add(spec.task.cpu.count());
  hash.add(spec.task.memory.count());
  hash.add(uint64_t{spec.tasks_min});
  hash.add(uint64_t{spec.tasks_max});
  hash.add(spec.time_limit.count());
  hash.add(spec.grace.count());
  hash.add(spec.begin.nanoseconds());
  hash.add(spec.node_pool);
  for (const Dependency& dependency : spec.dependencies) {
    hash.add(static_cast<uint64_t>(dependency.kind));
    hash.add(dependency.job.value());
  }
  add_newer_spec(hash, spec);
}

void add_job(StateHash& hash, const Job& job) {
  hash.add(job.id.value());
  hash.add(job.array.value());
  hash.add(uint64_t{job.array_index});
  hash.add(static_cast<uint64_t>(job.state));
  hash.add(uint64_t{job.attempt});
  hash.add(job.submitted.nanoseconds());
  hash.add(job.started.nanoseconds());
  hash.add(job.stop_time.nanoseconds());
  hash.add(uint64_t{job.failed_starts});
  // Nothing is added for what an older log cannot hold, so that its hashes stay what they were.
  if (job.first != 0) hash.add(job.first);
  if (job.not_before != job.spec->begin) hash.add(job.not_before.nanoseconds());
  if (job.stale_until.is_set()) {
    hash.add(std::string_view("stale until"));
    hash.add(job.stale_until.nanoseconds());
  }
  if (job.requeue_requested) hash.add(std::string_view("requeue requested"));
  if (job.spec->retry != RetryPolicy()) {
    for (const RetryPolicy& retries : {job.spec->retry, job.retried}) {
      hash.add(uint64_t{retries.error});
      hash.add(uint64_t{retries.out_of_memory});
      hash.add(uint64_t{retries.infrastructure});
      hash.add(retries.delay.count());
    }
  }
  hash.add(uint64_t{job.held} | uint64_t{job.begin_passed} << 1 | uint64_t{job.cancel_requested} << 2 |
           uint64_t{job.doomed} << 3 | uint64_t{job.group != 0} << 4);
  hash.add(job.stop_reason ? static_cast<uint64_t>(*job.stop_reason) : UINT64_MAX);
  for (const uint32_t rank : job.left) hash.add(uint64_t{rank});
  hash.add(job.failure ? static_cast<uint64_t>(*job.failure) : UINT64_MAX);
  for (const Task& task : job.tasks) {
    hash.add(static_cast<uint64_t>(task.phase));
    hash.add(uint64_t{task.stop_sent} | uint64_t{task.never_executed} << 1 | uint64_t{task.may_retry} << 2);
    hash.add(static_cast<uint64_t>(task.cause));
    hash.add(int64_t{task.code});
  }
}

void add_holding(StateHash& hash, const TaskKey& key, const Holding& holding) {
  add_key(hash, key);
  hash.add(uint64_t{holding.node.value()});
  hash.add(uint64_t{holding.exited});
  hash.add(holding.latest_end.nanoseconds());
  hash.add(holding.cpu.count());
  hash.add(holding.memory.count());
  for (const Slice& slice : holding.slices) {
    hash.add(uint64_t{slice.gpu.value()});
    hash.add(static_cast<uint64_t>(slice.kind));
    hash.add(slice.compute.count());
    hash.add(slice.memory.count());
  }
}

}  // namespace

uint64_t State::hash() const {
  StateHash hash;
  hash.add(now.nanoseconds());
  hash.add(last_event.value());
  hash.add(wake.nanoseconds());
  add_policy(hash, policy);
  for (const NodeRoom& room : capacity.nodes()) {
    hash.add(uint64_t{room.id.value()});
    hash.add(room.pool);
    hash.add(uint64_t{room.present});
    hash.add(room.cpu_free.count());
    hash.add(room.memory_free.count());
    for (const GpuRoom& gpu : room.gpus) {
      hash.add(uint64_t{gpu.id.value()});
      hash.add(capacity.type_name(gpu.type));
      hash.add(gpu.memory_usable.count());
      hash.add(uint64_t{gpu.open} | uint64_t{gpu.installed} << 1 | uint64_t{gpu.degraded} << 2);
      hash.add(gpu.compute_free.count());
      hash.add(gpu.memory_free.count());
    }
  }
  for (QueueIndex i = 0; i < queues.size(); ++i) {
    const Queue& queue = queues.at(i);
    hash.add(queue.path);
    hash.add(queue.used.count());
    hash.add(queue.used_not_preemptible.count());
    add_wide(hash, queue.usage);
    add_wide(hash, queue.accrued);
    add_wide(hash, queue.usage_seen);
  }
  hash.add(queues.looks());
  const std::vector<JobId> ids = jobs.keys();
  for (const JobId id : ids) add_job(hash, *find(id));
  // Elements of an array share one spec, which is hashed where it first occurs.
  const JobSpec* last_spec = nullptr;
  for (const JobId id : ids) {
    const Job& job = *find(id);
    if (job.spec.get() != last_spec) add_spec(hash, *job.spec);
    last_spec = job.spec.get();
  }
  for (const TaskKey& key : holdings.keys()) add_holding(hash, key, *holdings.find(key));
  scores.add_to(hash);
  for (const auto& [array, record] : arrays) {
    hash.add(array.value());
    hash.add(uint64_t{record.running_max});
    hash.add(uint64_t{record.running});
    hash.add(uint64_t{record.live});
  }
  for (const Claim& claim : claims) {
    hash.add(claim.beneficiary.value());
    hash.add(claim.waits_for);
    if (claim.moved_for.is_set()) hash.add(claim.moved_for.value());
    for (const TaskKey& victim : claim.victims) add_key(hash, victim);
  }
  for (const auto& [key, number] : leaving) {
    add_key(hash, key);
    hash.add(number);
  }
  hash.add(ended.digest());
  if (policy.backfill_order == BackfillOrder::shortest) {
    prediction.add_to(hash);
    for (const JobId id : ids) hash.add(find(id)->expected.count());
  }
  return hash.digest();
}

}  // namespace tranche::scheduler
