// The JSON of events, decisions and the policy: schema version 1. docs/journal.md is its description for
// people; a field here is never renamed, never given another meaning, and a new one is `optional`.
#pragma once

#include <array>
#include <string>

#include "codec/json_decoder.h"
#include "codec/json_encoder.h"
#include "codec/model_fields.h"
#include "model/decision.h"
#include "model/event.h"
#include "model/policy.h"
#include "model/task_groups.h"

namespace tranche::json {

inline constexpr Range kQueueCompute{0, limits::kQueueComputeMilliMax};

// --- policy
// -------------------------------------------------------------------------------------------------
template <class Visitor>
void describe(Visitor& v, Of<QueuePolicy>) {
  v.required("path", &QueuePolicy::path, Text{limits::kQueuePathBytes, Content::line, 1});
  v.optional("quota_milli", &QueuePolicy::quota, kQueueCompute);
  v.optional("limit_milli", &QueuePolicy::limit, kQueueCompute);
  v.required("weight", &QueuePolicy::weight, Range{0, limits::kWeightMax});
  v.optional("priority", &QueuePolicy::priority, kPriority);
  v.optional("user_limit_milli", &QueuePolicy::user_limit, kQueueCompute);
  v.optional("quota_cpu_milli", &QueuePolicy::quota_cpu, Range{0, limits::kCpuMilliMax});
  v.optional("limit_cpu_milli", &QueuePolicy::limit_cpu, Range{0, limits::kCpuMilliMax});
  v.optional("quota_memory_mib", &QueuePolicy::quota_memory, kMemoryMib);
  v.optional("limit_memory_mib", &QueuePolicy::limit_memory, kMemoryMib);
}

template <class Visitor>
void describe(Visitor& v, Of<ClassPolicy>) {
  v.required("priority", &ClassPolicy::priority, kPriority);
  v.required("preemptible", &ClassPolicy::preemptible);
  v.required("time_limit_default_ns", &ClassPolicy::time_limit_default, kNanoseconds);
  v.required("time_limit_max_ns", &ClassPolicy::time_limit_max, kNanoseconds);
}

// The classes as an object: {"training":{...},"inference":{...},"interactive":{...}}.
using ClassPolicies = std::array<ClassPolicy, kJobClassCount>;
template <>
struct Custom<ClassPolicies> {
  static void write(Encoder& encoder, const ClassPolicies& classes) {
    encoder.begin_object();
    for (size_t i = 0; i < kJobClassCount; ++i) {
      encoder.key(to_string(static_cast<JobClass>(i)));
      encoder.put(classes[i], kPlain);
    }
    encoder.end_object();
  }
  static bool read(Decoder& decoder, Value value, ClassPolicies& classes) {
    if (value.kind() != Kind::object) return decoder.refuse("must be an object, not " + value.describe());
    MemberFinder finder(value);
    const auto names = detail::enum_texts<JobClass>();
    for (size_t i = 0; i < kJobClassCount; ++i) {
      Value member = value;
      if (!finder.find(names[i], &member)) {
        return decoder.refuse("the field \"" + std::string(names[i]) + "\" is missing");
      }
      if (!decoder.read(member, classes[i], kPlain)) return decoder.in_member(names[i]);
    }
    return finder.found_all() || refuse_unknown(decoder, value, names);
  }
};

template <class Visitor>
void describe(Visitor& v, Of<Policy>) {
  v.required("queues", &Policy::queues, List{limits::kQueues, kPlain});
  v.required("default_queue", &Policy::default_queue, kQueuePath);
  v.required("classes", &Policy::classes);
  v.required("usage_half_life_ns", &Policy::usage_half_life, kNanoseconds);
  v.required("minimum_runtime_ns", &Policy::minimum_runtime, kNanoseconds);
  v.required("grace_default_ns", &Policy::grace_default, kNanoseconds);
  v.required("backfill", &Policy::backfill);
  v.required("users_share_gpu", &Policy::users_share_gpu);
  v.required("jobs_per_user_max", &Policy::jobs_per_user_max, kCount32);
  v.optional("no_head_reservation", &Policy::no_head_reservation);
  v.optional("backfill_order", &Policy::backfill_order);
  v.optional("placement", &Policy::placement);
  v.optional("gpu_placement", &Policy::gpu_placement);
  v.optional("share_unit_milli", &Policy::share_unit, kQueueCompute);
  v.optional("reclaim_surplus_milli", &Policy::reclaim_surplus, kQueueCompute);
  v.optional("consolidation_moves", &Policy::consolidation_moves, Range{0, limits::kTasksMax});
  v.optional("topology_levels", &Policy::topology_levels, List{limits::kTopologyLevels, kName});
  v.optional("only_action", &Policy::only_action);
  v.optional("users_share_gpus", &Policy::users_share_gpus, List{limits::kListItems, kSmallId});
}

// --- what exists
// -----------------------------------------------------------------------------------------------
template <class Visitor>
void describe(Visitor& v, Of<GpuLink>) {
  v.required("peer", &GpuLink::peer, kSmallId);
  v.required("kind", &GpuLink::kind);
}

template <class Visitor>
void describe(Visitor& v, Of<Gpu>) {
  v.required("id", &Gpu::id, kSmallId);
  v.required("node", &Gpu::node, kSmallId);
  v.required("uuid", &Gpu::uuid, kName);
  v.required("index", &Gpu::index, kCount32);
  v.required("minor", &Gpu::minor, kCount32);
  v.required("type", &Gpu::type, kName);
  v.required("name", &Gpu::name, kName);
  v.required("memory_usable_mib", &Gpu::memory_usable, kMemoryMib);
  v.required("numa_node", &Gpu::numa_node, Range{-1, INT32_MAX});
  v.optional("mig_capable", &Gpu::mig_capable);
  v.optional("links", &Gpu::links, List{limits::kGpuLinks, kPlain});
}

template <class Visitor>
void describe(Visitor& v, Of<Node>) {
  v.required("id", &Node::id, kSmallId);
  v.required("name", &Node::name, kName);
  v.optional("pool", &Node::pool, kName);
  v.required("cpu_milli", &Node::cpu, Range{0, limits::kCpuMilliMax});
  v.required("memory_mib", &Node::memory, kMemoryMib);
  v.optional("labels", &Node::labels, Map{limits::kLabels, kName, kName});
}

// --- jobs
// --------------------------------------------------------------------------------------------------------
template <class Visitor>
void describe(Visitor& v, Of<Slice>) {
  v.required("gpu", &Slice::gpu, kSmallId);
  v.required("kind", &Slice::kind);
  v.required("compute_milli", &Slice::compute, Range{0, limits::kComputeMilliMax});
  v.required("memory_mib", &Slice::memory, kMemoryMib);
}

template <class Visitor>
void describe(Visitor& v, Of<TaskRequest>) {
  v.required("gpu", &TaskRequest::gpu);
  v.required("cpu_milli", &TaskRequest::cpu, Range{0, limits::kCpuMilliMax});
  v.optional("memory_mib", &TaskRequest::memory, kMemoryMib);
}

template <class Visitor>
void describe(Visitor& v, Of<Owner>) {
  v.required("uid", &Owner::uid, kCount32);
  v.required("gid", &Owner::gid, kCount32);
  v.required("user", &Owner::user, kName);
}

template <class Visitor>
void describe(Visitor& v, Of<RetryPolicy>) {
  v.optional("error", &RetryPolicy::error, kRetries);
  v.optional("out_of_memory", &RetryPolicy::out_of_memory, kRetries);
  v.optional("infrastructure", &RetryPolicy::infrastructure, kRetries);
  v.optional("delay_ns", &RetryPolicy::delay, kNanoseconds);
}

template <class Visitor>
void describe(Visitor& v, Of<LimitSignal>) {
  v.required("number", &LimitSignal::number, kSignalNumber);
  v.required("before_ns", &LimitSignal::before, kNanoseconds);
}

template <class Visitor>
void describe(Visitor& v, Of<TopologyRequest>) {
  v.optional("required", &TopologyRequest::required, kName);
  v.optional("preferred", &TopologyRequest::preferred, kName);
}

template <class Visitor>
void describe(Visitor& v, Of<TaskGroup>) {
  v.optional("parent", &TaskGroup::parent, Range{0, limits::kTaskGroups});
  v.optional("tasks_min", &TaskGroup::tasks_min, Range{0, limits::kTasksMax});
  v.optional("tasks_max", &TaskGroup::tasks_max, Range{0, limits::kTasksMax});
  v.optional("groups_min", &TaskGroup::groups_min, Range{0, limits::kTaskGroups});
  v.optional("task", &TaskGroup::task);
  v.optional("topology", &TaskGroup::topology);
  v.optional("nodes", &TaskGroup::nodes, List{limits::kAllowedNodes, kName});
}

template <class Visitor>
void describe(Visitor& v, Of<JobSpec>) {
  constexpr Text kHash{64};
  v.required("owner", &JobSpec::owner);
  v.required("queue", &JobSpec::queue, kQueuePath);
  v.required("class", &JobSpec::job_class);
  v.optional("priority", &JobSpec::priority, kPriority);
  v.optional("preemptible", &JobSpec::preemptible);
  v.optional("requeue", &JobSpec::requeue);
  v.optional("interactive", &JobSpec::interactive);
  v.required("task", &JobSpec::task);
  v.required("tasks_min", &JobSpec::tasks_min, Range{1, limits::kTasksMax});
  v.required("tasks_max", &JobSpec::tasks_max, Range{1, limits::kTasksMax});
  v.required("time_limit_ns", &JobSpec::time_limit, Range{1, limits::kDurationNanosecondsMax});
  v.required("grace_ns", &JobSpec::grace, kNanoseconds);
  v.optional("retry", &JobSpec::retry);
  v.optional("signal", &JobSpec::signal);
  v.optional("begin", &JobSpec::begin, kTime);
  v.optional("deadline", &JobSpec::deadline, kTime);
  v.optional("dependencies", &JobSpec::dependencies, List{limits::kDependencies, kPlain});
  v.optional("reservation", &JobSpec::reservation, kId);
  v.optional("node_pool", &JobSpec::node_pool, kName);
  v.optional("held", &JobSpec::held);
  v.optional("payload_hash", &JobSpec::payload_hash, kHash);
  v.optional("name_hash", &JobSpec::name_hash, kHash);
  v.optional("elastic", &JobSpec::elastic);
  v.optional("groups", &JobSpec::groups, List{limits::kTaskGroups, kPlain});
  v.optional("groups_min", &JobSpec::groups_min, Range{0, limits::kTaskGroups});
  v.optional("topology", &JobSpec::topology);
  v.optional("nodes", &JobSpec::nodes, List{limits::kAllowedNodes, kName});
  v.optional("gang_grace_ns", &JobSpec::gang_grace, kNanoseconds);
  v.optional("preemption_delay_ns", &JobSpec::preemption_delay, kNanoseconds);
}

// --- events
// ---------------------------------------------------------------------------------------------------------
template <class Visitor>
void describe(Visitor& v, Of<PolicyChanged>) {
  v.required("policy", &PolicyChanged::policy);
}
template <class Visitor>
void describe(Visitor& v, Of<NodeAdded>) {
  v.required("node", &NodeAdded::node);
}
template <class Visitor>
void describe(Visitor& v, Of<NodeRemoved>) {
  v.required("node", &NodeRemoved::node, kSmallId);
}
template <class Visitor>
void describe(Visitor& v, Of<GpuAdded>) {
  v.required("gpu", &GpuAdded::gpu);
  v.optional("drained", &GpuAdded::drained, kSentence);
}
template <class Visitor>
void describe(Visitor& v, Of<GpuRemoved>) {
  v.required("gpu", &GpuRemoved::gpu, kSmallId);
}
template <class Visitor>
void describe(Visitor& v, Of<HealthChanged>) {
  v.required("gpu", &HealthChanged::gpu, kSmallId);
  v.required("health", &HealthChanged::health);
  v.optional("reason", &HealthChanged::reason, kSentence);
}
template <class Visitor>
void describe(Visitor& v, Of<GpuFaulted>) {
  v.required("gpu", &GpuFaulted::gpu, kSmallId);
  v.required("xid", &GpuFaulted::xid, kCount32);
  v.optional("jobs", &GpuFaulted::jobs, List{limits::kListItems, kId});
}
template <class Visitor>
void describe(Visitor& v, Of<GpuDrained>) {
  v.required("gpu", &GpuDrained::gpu, kSmallId);
  v.required("by", &GpuDrained::by, kName);
  v.optional("reason", &GpuDrained::reason, kSentence);
}
template <class Visitor>
void describe(Visitor& v, Of<GpuUndrained>) {
  v.required("gpu", &GpuUndrained::gpu, kSmallId);
  v.required("by", &GpuUndrained::by, kName);
}
template <class Visitor>
void describe(Visitor&, Of<Tick>) {}
template <class Visitor>
void describe(Visitor& v, Of<WallClockStepped>) {
  v.required("by_ns", &WallClockStepped::by, Range{-INT64_MAX, INT64_MAX});
}
template <class Visitor>
void describe(Visitor& v, Of<JobSubmitted>) {
  v.required("job", &JobSubmitted::job, kId);
  v.required("spec", &JobSubmitted::spec);
  v.optional("array", &JobSubmitted::array);
}
template <class Visitor>
void describe(Visitor& v, Of<JobCancelled>) {
  v.required("job", &JobCancelled::job, kId);
  v.required("by", &JobCancelled::by, kName);
  v.optional("reason", &JobCancelled::reason, kSentence);
  v.optional("more", &JobCancelled::more, Range{0, limits::kArrayElements - 1});
}
template <class Visitor>
void describe(Visitor& v, Of<JobHeld>) {
  v.required("job", &JobHeld::job, kId);
  v.required("by", &JobHeld::by, kName);
  v.optional("more", &JobHeld::more, Range{0, limits::kArrayElements - 1});
}
template <class Visitor>
void describe(Visitor& v, Of<JobReleased>) {
  v.required("job", &JobReleased::job, kId);
  v.required("by", &JobReleased::by, kName);
  v.optional("more", &JobReleased::more, Range{0, limits::kArrayElements - 1});
}
template <class Visitor>
void describe(Visitor& v, Of<JobUpdated>) {
  constexpr Text kHash{64};
  v.required("job", &JobUpdated::job, kId);
  v.required("by", &JobUpdated::by, kName);
  v.optional("time_limit_ns", &JobUpdated::time_limit, Range{1, limits::kDurationNanosecondsMax});
  v.optional("grace_ns", &JobUpdated::grace, kNanoseconds);
  v.optional("priority", &JobUpdated::priority, kPriority);
  v.optional("begin", &JobUpdated::begin, kTime);
  v.optional("dependencies", &JobUpdated::dependencies, List{limits::kDependencies, kPlain});
  v.optional("first", &JobUpdated::first);
  v.optional("gpu_memory_mib", &JobUpdated::gpu_memory, kMemoryMib);
  v.optional("gpu_memory_limit_mib", &JobUpdated::gpu_memory_limit, kMemoryMib);
  v.optional("payload_hash", &JobUpdated::payload_hash, kHash);
  v.optional("name_hash", &JobUpdated::name_hash, kHash);
}
template <class Visitor>
void describe(Visitor& v, Of<JobRequeued>) {
  v.required("job", &JobRequeued::job, kId);
  v.required("by", &JobRequeued::by, kName);
  v.optional("reason", &JobRequeued::reason, kSentence);
}
template <class Visitor>
void describe(Visitor& v, Of<TaskStarted>) {
  v.required("task", &TaskStarted::task);
}
template <class Visitor>
void describe(Visitor& v, Of<TaskStartFailed>) {
  v.required("task", &TaskStartFailed::task);
  v.optional("retry", &TaskStartFailed::retry);
  v.optional("code", &TaskStartFailed::code, Range{0, 255});
  v.optional("reason", &TaskStartFailed::reason, kSentence);
}
template <class Visitor>
void describe(Visitor& v, Of<TaskExited>) {
  v.required("task", &TaskExited::task);
  v.required("cause", &TaskExited::cause);
  v.optional("code", &TaskExited::code, Range{INT32_MIN, INT32_MAX});
  v.optional("signal", &TaskExited::signal, Range{0, 1024});
}
template <class Visitor>
void describe(Visitor& v, Of<SliceReleased>) {
  v.required("task", &SliceReleased::task);
  v.required("gpu", &SliceReleased::gpu, kSmallId);
}

// --- decisions
// --------------------------------------------------------------------------------------------------------
template <class Visitor>
void describe(Visitor& v, Of<Start>) {
  v.required("task", &Start::task);
  v.required("node", &Start::node, kSmallId);
  v.optional("slices", &Start::slices, List{limits::kSlicesPerTask, kPlain});
}
template <class Visitor>
void describe(Visitor& v, Of<Stop>) {
  v.required("task", &Stop::task);
  v.required("reason", &Stop::reason);
  v.optional("beneficiary", &Stop::beneficiary, kId);
}
template <class Visitor>
void describe(Visitor& v, Of<End>) {
  v.required("job", &End::job, kId);
  v.required("state", &End::state);
}
template <class Visitor>
void describe(Visitor& v, Of<Requeue>) {
  v.required("job", &Requeue::job, kId);
  v.required("attempt", &Requeue::attempt, Range{1, UINT32_MAX});
  v.required("reason", &Requeue::reason);
  v.optional("begin", &Requeue::begin, kTime);
}
template <class Visitor>
void describe(Visitor& v, Of<WakeAt>) {
  v.required("time", &WakeAt::time, kTime);
}

}  // namespace tranche::json

namespace tranche {

inline std::string check_decoded(const Policy& policy) {
  for (size_t i = 1; i < policy.queues.size(); ++i) {
    if (policy.queues[i - 1].path >= policy.queues[i].path)
      return "queues must be sorted by path and distinct";
  }
  return "";
}

inline std::string check_decoded(const JobSpec& spec) {
  if (spec.tasks_min > spec.tasks_max) return "tasks_min must not be above tasks_max";
  return check_groups(spec);
}

inline std::string check_decoded(const End& end) {
  return is_final(end.state) ? "" : "state must be a final one";
}

}  // namespace tranche
