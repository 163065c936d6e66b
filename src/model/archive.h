// The plain values as bytes (base/archive.h). Each function names every member of its type; one that is added
// to the type and not here does not compile. Whoever adds one raises the format number of what stores it
// (scheduler::kSnapshotFormat, machine::kTablesFormat).
#pragma once

#include "base/archive.h"
#include "model/decision.h"
#include "model/gpu.h"
#include "model/job.h"
#include "model/policy.h"
#include "model/task_groups.h"

namespace tranche {

inline constexpr uint32_t kTasksOfJobMax = 1'000'000;

template <class Archive, OfType<Owner> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [uid, gid, user] = value;
  archive(uid, gid, user);
}
template <class Archive, OfType<GpuRequest> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [count, kind, compute, memory, memory_limit, type, count_max, topology] = value;
  archive(count, kind, compute, memory, memory_limit, type, count_max, topology);
}
template <class Archive, OfType<TaskRequest> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [gpu, cpu, memory] = value;
  archive(gpu, cpu, memory);
}
template <class Archive, OfType<TopologyRequest> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [required, preferred] = value;
  archive(required, preferred);
}
template <class Archive, OfType<TaskGroup> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [parent, tasks_min, tasks_max, groups_min, task, topology, nodes] = value;
  archive(parent, tasks_min, tasks_max, groups_min, task, topology, nodes);
}
template <class Archive, OfType<Dependency> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [kind, job] = value;
  archive(kind, job);
}
template <class Archive, OfType<RetryPolicy> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [error, out_of_memory, infrastructure, delay] = value;
  archive(error, out_of_memory, infrastructure, delay);
}
template <class Archive, OfType<LimitSignal> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [number, before] = value;
  archive(number, before);
}
template <class Archive, OfType<JobSpec> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [owner, queue, job_class, priority, preemptible, requeue, interactive, task, tasks_min, tasks_max,
         elastic, groups, groups_min, topology, nodes, time_limit, grace, gang_grace, preemption_delay, retry,
         signal, begin, deadline, dependencies, reservation, node_pool, held, payload_hash, name_hash] =
      value;
  archive(owner, queue, job_class, priority, preemptible, requeue, interactive, task, tasks_min, tasks_max,
          elastic, groups, groups_min, topology, nodes, time_limit, grace, gang_grace, preemption_delay,
          retry, signal, begin, deadline, dependencies, reservation, node_pool, held, payload_hash,
          name_hash);
  // Groups are numbers of each other: who uses them takes for granted that they fit.
  if constexpr (Archive::kReads) {
    if (tasks_min > tasks_max || tasks_max > kTasksOfJobMax || !check_groups(value).empty()) archive.refuse();
  }
}
template <class Archive, OfType<TaskKey> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [job, rank, attempt] = value;
  archive(job, rank, attempt);
}
template <class Archive, OfType<Slice> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [gpu, kind, compute, memory] = value;
  archive(gpu, kind, compute, memory);
}
template <class Archive, OfType<Start> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [task, node, slices] = value;
  archive(task, node, slices);
}
template <class Archive, OfType<GpuLink> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [peer, kind] = value;
  archive(peer, kind);
}
template <class Archive, OfType<Gpu> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [id, node, uuid, index, minor, type, name, memory_usable, numa_node, mig_capable, links] = value;
  archive(id, node, uuid, index, minor, type, name, memory_usable, numa_node, mig_capable, links);
}
template <class Archive, OfType<Node> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [id, name, pool, cpu, memory, labels] = value;
  archive(id, name, pool, cpu, memory, labels);
}
template <class Archive, OfType<QueuePolicy> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [path, quota, limit, quota_cpu, limit_cpu, quota_memory, limit_memory, weight, priority, user_limit] =
      value;
  archive(path, quota, limit, quota_cpu, limit_cpu, quota_memory, limit_memory, weight, priority, user_limit);
}
template <class Archive, OfType<ClassPolicy> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [priority, preemptible, time_limit_default, time_limit_max] = value;
  archive(priority, preemptible, time_limit_default, time_limit_max);
}
template <class Archive, OfType<Policy> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [queues, default_queue, classes, usage_half_life, minimum_runtime, grace_default, backfill,
         no_head_reservation, backfill_order, placement, gpu_placement, share_unit, reclaim_surplus,
         consolidation_moves, topology_levels, only_action, users_share_gpu, users_share_gpus,
         jobs_per_user_max] = value;
  archive(queues, default_queue, classes, usage_half_life, minimum_runtime, grace_default, backfill,
          no_head_reservation, backfill_order, placement, gpu_placement, share_unit, reclaim_surplus,
          consolidation_moves, topology_levels, only_action, users_share_gpu, users_share_gpus,
          jobs_per_user_max);
}

}  // namespace tranche
