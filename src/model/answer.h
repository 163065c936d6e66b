// The scheduler's answers to people: why not, when, and the checkable reason behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "model/job.h"

namespace tranche {

// Design section 13. `none`: the job runs, or would start now.
#define TRANCHE_PROOF_KIND(X) \
  X(none) X(never_fits) X(limit) X(quota) X(busy) X(reserved) X(gang) X(dependency) X(held) X(drained)
TRANCHE_ENUM(ProofKind, TRANCHE_PROOF_KIND)

// What a queue's bound is of: its amounts are milli-GPU, milli-CPU or MiB.
#define TRANCHE_BOUND_RESOURCE(X) X(gpu) X(cpu) X(memory)
TRANCHE_ENUM(BoundResource, TRANCHE_BOUND_RESOURCE)

// The checkable reason attached to a "no" or "not yet". Which fields are set depends on the kind:
//   never_fits  needed, available: what it asks of one dimension and the most any placement has
//   limit/quota queue, needed, used, bound: the queue whose bound it would pass; no queue: its array's
//   busy        blockers: jobs on the GPUs that it could use; needed, available
//   reserved    blockers: the job that holds the reservation; until: its start
//   gang        needed, available: tasks to place at once, and how many fit now
//   dependency  blockers: the jobs it waits for
//   held        until: its begin time, or unset if somebody holds it
//   drained     gpus: the GPUs that would do and take no new work
struct Proof {
  ProofKind kind = ProofKind::none;
  BoundResource resource = BoundResource::gpu;  // of limit and quota
  JobId job;
  std::string queue;
  int64_t needed = 0;
  int64_t available = 0;
  int64_t used = 0;
  int64_t bound = 0;
  std::vector<JobId> blockers;  // ascending
  std::vector<GpuId> gpus;      // ascending
  Time until;
  bool operator==(const Proof&) const = default;
};

// When a job is expected to start, computed from time limits only: running jobs usually end earlier, so it
// is an upper bound as long as nothing of higher rank arrives, and is labelled so.
struct Forecast {
  bool known = false;
  Time start;             // now, if it runs already
  uint32_t position = 0;  // 1: next of its queue order; 0: not waiting
  bool operator==(const Forecast&) const = default;
};

struct Explanation {
  JobId job;
  JobState state = JobState::pending;
  Proof proof;
  Forecast forecast;
  std::string reason;              // one sentence
  std::vector<std::string> helps;  // what would help, a sentence each
  bool operator==(const Explanation&) const = default;
};

// One queue with its arithmetic, for `tranche share`.
struct QueueShare {
  std::string path;
  int64_t weight = 1;
  int32_t priority = 0;
  bool has_quota = false;
  bool has_limit = false;
  MilliGpu quota;
  MilliGpu limit;
  MilliGpu demand;                    // used + waiting
  MilliGpu used;                      // charged now
  MilliGpu fair_share;                // entitled to now
  int64_t usage_milli_gpu_hours = 0;  // decayed past use
  uint32_t jobs_waiting = 0;
  uint32_t jobs_running = 0;
  // Processors and host memory: what is used, and what bounds it.
  MilliCpu used_cpu{};
  MiB used_memory{};
  std::optional<MilliCpu> quota_cpu{};
  std::optional<MilliCpu> limit_cpu{};
  std::optional<MiB> quota_memory{};
  std::optional<MiB> limit_memory{};
  bool has_host_bound() const { return quota_cpu || limit_cpu || quota_memory || limit_memory; }
  bool operator==(const QueueShare&) const = default;
};

}  // namespace tranche
