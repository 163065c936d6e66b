// What stands at one moment, as plain facts: what a proof speaks about. The scheduler writes it, a checker
// that shares no code with the scheduler reads it (src/proof).
//
// Times are event times. Amounts have the model's units. Every list is ascending by its id, claims excepted:
// they stand in the order in which they were made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/gpu.h"
#include "model/job.h"
#include "model/policy.h"

namespace tranche {

struct GpuFact {
  Gpu gpu;
  Health health = Health::ok;
  bool drained = false;
};

struct QueueFact {
  std::string path;
  std::optional<MilliGpu> quota;
  std::optional<MilliGpu> limit;  // its own, or its parent's limit for users
  std::optional<MilliCpu> quota_cpu;
  std::optional<MilliCpu> limit_cpu;
  std::optional<MiB> quota_memory;
  std::optional<MiB> limit_memory;
};

struct JobFact {
  JobId job;
  ArrayId array;  // unset: not of an array
  std::shared_ptr<const JobSpec> spec;
  JobState state = JobState::pending;
  bool held = false;
  Time submitted;
  Time started;              // of this attempt; unset while waiting
  Time not_before;           // its begin time or the end of a pause before a retry, if it has not come yet
  std::vector<JobId> unmet;  // dependencies that are not satisfied yet
};

// What one task holds: from its start until its GPUs are seen to be free of it.
struct HoldingFact {
  TaskKey task;
  uint32_t uid = 0;
  std::string queue;
  bool preemptible = true;
  NodeId node;
  MilliCpu cpu;  // zero once it has exited
  MiB memory;
  std::vector<Slice> slices;  // not yet released
  Time latest_end;            // by its limit and grace; sooner once it was told to stop
  bool exited = false;
  bool leaving = false;  // will be free without anybody's doing: told to stop, or gone but for its memory
};

struct PlacementFact {
  NodeId node;
  std::vector<Slice> slices;
  uint32_t rank = 0;  // of a job whose tasks differ
};

// Room that is being freed for a job that waits.
struct ClaimFact {
  JobId job;
  std::vector<JobId> leaving;       // whom it waits for
  std::vector<PlacementFact> plan;  // empty: it has no place at the moment
};

// The place and the time that a job which waits will have at the latest.
struct ReservationFact {
  JobId job;
  Time start;
  std::vector<PlacementFact> plan;
};

struct ArrayFact {
  ArrayId array;
  uint32_t running_max = 0;  // zero: no bound
};

struct StateDump {
  Time now;
  Policy policy;
  std::vector<Node> nodes;
  std::vector<GpuFact> gpus;  // without those that were removed
  std::vector<QueueFact> queues;
  std::vector<JobFact> jobs;  // live ones
  std::vector<ArrayFact> arrays;
  std::vector<HoldingFact> holdings;
  std::vector<ClaimFact> claims;
  std::vector<ReservationFact> reservations;
};

}  // namespace tranche
