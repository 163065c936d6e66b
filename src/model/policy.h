// The whole policy that the scheduler works under, parsed, validated and normalised. It changes only as one
// PolicyChanged event, so that any decision can be traced to the policy of its moment.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "model/job.h"

namespace tranche {

// One configured node of the queue tree. Parents are created when a child names them; a user's leaf
// "<path>/<user>" is made on first use, with the defaults below.
struct QueuePolicy {
  std::string path;  // "physics/vision"; components [a-z0-9._-], at most 8 levels
  std::optional<MilliGpu>
      quota;  // deserved: never reclaimed by others while used within it. Unset: by weight only
  std::optional<MilliGpu> limit;  // never above this
  // The same for processors and host memory; unset: not bounded, and not looked at.
  std::optional<MilliCpu> quota_cpu = std::nullopt;
  std::optional<MilliCpu> limit_cpu = std::nullopt;
  std::optional<MiB> quota_memory = std::nullopt;
  std::optional<MiB> limit_memory = std::nullopt;
  int64_t weight = 1;    // share of what is left after quotas; 0: none of it
  int32_t priority = 0;  // of the queue among its siblings, for the surplus: higher is served first
  std::optional<MilliGpu> user_limit;  // for each user's leaf below it
  bool operator==(const QueuePolicy&) const = default;
};

// Where a job goes of the nodes that would do: on the fullest, or on the emptiest.
#define TRANCHE_PLACEMENT_STRATEGY(X) X(pack) X(spread)
TRANCHE_ENUM(PlacementStrategy, TRANCHE_PLACEMENT_STRATEGY)

// Which of the jobs that fit around a reservation is tried first: by the order of queues, or the one that is
// expected to run shortest.
#define TRANCHE_BACKFILL_ORDER(X) X(queue) X(shortest)
TRANCHE_ENUM(BackfillOrder, TRANCHE_BACKFILL_ORDER)

// For tests of single actions only: what a step may do beside concluding jobs. `all` everywhere else.
#define TRANCHE_SCHEDULER_ACTION(X) X(all) X(allocate) X(consolidate) X(reclaim) X(preempt) X(stale_gang)
TRANCHE_ENUM(SchedulerAction, TRANCHE_SCHEDULER_ACTION)

// Defaults that a job's class brings.
struct ClassPolicy {
  int32_t priority = 0;
  bool preemptible = false;
  Duration time_limit_default = kDay;
  Duration time_limit_max{7 * kDay.count()};
  bool operator==(const ClassPolicy&) const = default;
};

inline constexpr size_t kJobClassCount = 3;

struct Policy {
  std::vector<QueuePolicy> queues;        // sorted by path, distinct
  std::string default_queue = "default";  // parent of the user's leaf when a job names no queue
  std::array<ClassPolicy, kJobClassCount> classes = {
      ClassPolicy{.priority = 0, .preemptible = true},      // training
      ClassPolicy{.priority = 50, .preemptible = false},    // inference
      ClassPolicy{.priority = 100, .preemptible = false}};  // interactive
  Duration usage_half_life{7 * kDay.count()};  // decay of past use; zero: past use does not count
  Duration minimum_runtime{10 *
                           kMinute.count()};     // over-quota work runs this long before it can be reclaimed
  Duration grace_default{30 * kSecond.count()};  // TERM to KILL when the job does not say
  bool backfill = true;                          // small jobs may start around the head's reservation
  bool no_head_reservation = false;  // the job that has come furthest is not promised a time and a place
  BackfillOrder backfill_order = BackfillOrder::queue;
  PlacementStrategy placement = PlacementStrategy::pack;      // on nodes
  PlacementStrategy gpu_placement = PlacementStrategy::pack;  // of fractions, on the GPUs of a node
  MilliGpu share_unit;  // fair shares are multiples of it, but for what satisfies a queue; zero: exact
  // A queue is taken from when it is over its fair share by this; unset: one GPU.
  std::optional<MilliGpu> reclaim_surplus = std::nullopt;
  uint32_t consolidation_moves = 0;          // running jobs that one waiting job may have moved; 0: none
  std::vector<std::string> topology_levels;  // node labels that name domains, the widest first
  SchedulerAction only_action = SchedulerAction::all;
  bool users_share_gpu = false;         // fractions of different users may meet on one GPU
  std::vector<GpuId> users_share_gpus;  // or they may on these; ascending
  uint32_t jobs_per_user_max = 20'000;  // live jobs
  bool operator==(const Policy&) const = default;

  const ClassPolicy& for_class(JobClass job_class) const { return classes[static_cast<size_t>(job_class)]; }
};

}  // namespace tranche
