// Taking from others: reclaim from queues that are over their share, preemption of lower priority in the
// same queue. Victims are whole jobs, as few as can be found, and only if the job that they make room for
// is then placed.
//
// Why it cannot loop. Where the two queues' paths part, the claimant's side is `a`, the victim's side `b`.
// - Reclaim of quota: `a` stays within its quota with the job, the victim is outside every quota above it.
//   So work inside quotas grows, and nothing ever takes from that.
// - Reclaim of fair share: `a` stays within what it is entitled to, and `b` keeps what it is entitled to
//   after the victim. So the sum of shortfalls strictly falls; entitlements do not move with time.
// - Preemption: the job has strictly higher priority than each victim.
// The first two are asserted on the chosen set.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/fairness.h"
#include "scheduler/gang.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

struct RunningJob {
  const Job* job = nullptr;
  MilliGpu charge;
};

// Jobs that hold something and have not been told to stop, and what they are charged by queue.
struct Running {
  std::vector<RunningJob> jobs;  // by id
  std::vector<MilliGpu> charge;  // by queue, with all below
  explicit Running(const State& state);
};

struct Eviction {
  std::vector<Stop> stops;
  GangPlacement plan;
};

// `base`: what is free once everything that is leaving has left, less what is promised. `wake` is moved
// forward to the time at which a victim that is protected by the minimum runtime loses that protection.
std::optional<Eviction> find_victims(const State& state, const Running& running, const Job& job,
                                     const GroupKey& key, const Capacity& base,
                                     const std::vector<Share>& shares, const std::vector<MilliGpu>& planned,
                                     Time& wake);

// Whether it is worth looking for victims at all: cheap, and false for nearly every waiting job.
bool may_claim(const State& state, const Running& running, const GroupKey& key,
               const std::vector<Share>& shares, const std::vector<MilliGpu>& planned);

// Jobs of the queue (and below) whose use lies within its quota: non-preemptible ones first, then by start.
// Exposed for answers (which job is over quota).
std::vector<JobId> jobs_inside_quota(const State& state, QueueIndex queue);

}  // namespace tranche::scheduler
