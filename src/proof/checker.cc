#include "proof/checker.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "proof/amounts.h"
#include "proof/room.h"

namespace tranche::proof {
namespace {

Result<void> wrong(std::string what) { return fail(ErrorCode::invalid_argument, std::move(what)); }

Time latest_end(const JobSpec& spec, Time start) {
  const int64_t most = spec.time_limit.count() + spec.grace.count();
  return start.nanoseconds() > kNever.nanoseconds() - most ? kNever : Time(start.nanoseconds() + most);
}

// Who has come further: submitted longest ago, an hour for each step of priority (docs/policy.md).
std::pair<int64_t, JobId> age_of(const JobFact& job) {
  const int64_t steps = std::clamp<int64_t>(job.spec->priority, -100'000, 100'000);
  return {job.submitted.nanoseconds() - steps * kHour.count(), job.job};
}

class Checker {
 public:
  Checker(const StateDump& dump, const Proof& proof, const JobFact& job)
      : dump_(dump), proof_(proof), job_(job), spec_(*job.spec), share_(dump.policy.users_share_gpu) {}

  Result<void> check() const {
    const bool is_bound = proof_.kind == ProofKind::limit || proof_.kind == ProofKind::quota;
    if (!is_bound && proof_.resource != BoundResource::gpu) return wrong("no bound keeps it");
    const bool may_wait_until = proof_.kind == ProofKind::held || proof_.kind == ProofKind::reserved;
    if (!is_bound && !proof_.queue.empty()) return wrong("no queue keeps it");
    if (proof_.kind != ProofKind::drained && !proof_.gpus.empty()) return wrong("no GPU is to be named");
    if (!may_wait_until && proof_.until.is_set()) return wrong("it does not wait for a time");
    if (!spec_.groups.empty() && is_about_room()) return undecided();
    switch (proof_.kind) {
      case ProofKind::none:
        return wrong("a job that waits is given no reason");
      case ProofKind::held:
        return check_held();
      case ProofKind::dependency:
        return check_dependency();
      case ProofKind::never_fits:
        return check_never_fits();
      case ProofKind::limit:
      case ProofKind::quota:
        return proof_.queue.empty() ? check_array() : check_bound();
      case ProofKind::drained:
        return check_drained();
      case ProofKind::reserved:
        return claim_of(job_.job) != nullptr ? check_earlier_claims() : check_reserved();
      case ProofKind::gang:
        return check_gang();
      case ProofKind::busy:
        return claim_of(job_.job) != nullptr ? check_own_claim() : check_busy();
    }
    return wrong("an unknown kind");
  }

 private:
  // Whether the reason is that there is no place. Of a job whose tasks differ this is not decided here: where
  // its parts could go together is a search of its own, and the scheduler's is not exhaustive.
  bool is_about_room() const {
    switch (proof_.kind) {
      case ProofKind::never_fits:
      case ProofKind::drained:
      case ProofKind::gang:
      case ProofKind::busy:
      case ProofKind::reserved:
        return true;
      case ProofKind::none:
      case ProofKind::held:
      case ProofKind::dependency:
      case ProofKind::limit:
      case ProofKind::quota:
        break;
    }
    return false;
  }
  static Result<void> undecided() {
    return fail(ErrorCode::not_available_yet, "where a job whose tasks differ has room is not decided");
  }

  // Somebody holds it, or its time has not come.
  Result<void> check_held() const {
    TRY(expect_plain(0, 0));
    if (!proof_.until.is_set()) return job_.held ? Result<void>() : wrong("nobody holds the job");
    if (proof_.until != job_.not_before || proof_.until <= dump_.now) return wrong("its time is another");
    return {};
  }

  // All that it waits for, and it does wait for them.
  Result<void> check_dependency() const {
    TRY(expect_figures(0, 0, 0, 0));
    if (job_.unmet.empty()) return wrong("all its dependencies are met");
    return proof_.blockers == job_.unmet ? Result<void>() : wrong("it depends on others");
  }

  // Not even on all that is installed, with nobody there.
  Result<void> check_never_fits() const {
    const Room idle = Room::idle(dump_);
    const int64_t fitting = tasks_that_fit(dump_, spec_, {&idle});
    if (fitting >= int64_t{spec_.tasks_min}) return wrong("it fits when all is idle");
    return expect_plain(spec_.tasks_min, fitting);
  }

  // Whether it is the bound of its array that is claimed.
  bool is_of_array() const {
    return job_.array.is_set() && proof_.needed == 0 && proof_.queue == spec_.queue;
  }

  Result<void> check_array() const {
    const auto array = std::find_if(dump_.arrays.begin(), dump_.arrays.end(),
                                    [&](const ArrayFact& each) { return each.array == job_.array; });
    if (!job_.array.is_set() || array == dump_.arrays.end() || array->running_max == 0)
      return wrong("its array has no bound");
    int64_t active = 0;
    for (const JobFact& other : dump_.jobs) {
      if (other.array == job_.array && other.state != JobState::pending && other.state != JobState::held)
        ++active;
    }
    int64_t promised = 0;
    for (const ClaimFact& claim : dump_.claims) {
      const JobFact* other = find(claim.job);
      if (!claim.plan.empty() && other != nullptr && other->array == job_.array) ++promised;
    }
    if (active + promised < int64_t{array->running_max}) return wrong("another of its array may run");
    if (proof_.kind != ProofKind::limit || proof_.resource != BoundResource::gpu || !proof_.blockers.empty())
      return wrong("an array has a limit only");
    return expect_figures(0, 0, active, array->running_max);
  }

  // The queue is above the job, has the bound, uses what is said, and the job would pass it.
  Result<void> check_bound() const {
    const bool is_quota = proof_.kind == ProofKind::quota;
    const auto queue = std::find_if(dump_.queues.begin(), dump_.queues.end(),
                                    [&](const QueueFact& each) { return each.path == proof_.queue; });
    if (queue == dump_.queues.end() || !is_below(spec_.queue, queue->path))
      return wrong("the job is not in queue '" + proof_.queue + "'");
    if (is_quota && spec_.preemptible) return wrong("a preemptible job may pass the quota");
    const Amounts amounts(dump_, spec_, proof_.resource);
    const auto bound = amounts.bound(*queue, is_quota);
    if (!bound) return wrong("the queue has no such bound");
    TRY(expect_figures(proof_.needed, 0, amounts.used(queue->path, is_quota), *bound));
    const auto [least, most] = amounts.charge();
    if (proof_.needed < least || proof_.needed > most)
      return wrong("it would be charged " + std::to_string(least) + " to " + std::to_string(most) +
                   " and not " + std::to_string(proof_.needed));
    if (proof_.used + proof_.needed <= proof_.bound) return wrong("it fits the bound");
    return proof_.blockers.empty() && proof_.gpus.empty() ? Result<void>() : wrong("a bound names nobody");
  }

  // With all that takes work idle it does not fit; and these are the GPUs that would do and take none.
  Result<void> check_drained() const {
    if (!proof_.blockers.empty()) return wrong("nobody holds what takes no work");
    const Room idle(dump_, [](const HoldingFact&) { return false; });
    if (tasks_that_fit(dump_, spec_, {&idle}) >= int64_t{spec_.tasks_min})
      return wrong("it fits on what takes work");
    std::vector<GpuId> closed;
    for (const GpuFact& fact : dump_.gpus) {
      if (would_do(fact) && !takes_work(fact)) closed.push_back(fact.gpu.id);
    }
    if (proof_.gpus != closed) return wrong("other GPUs take no work");
    return expect_figures(0, 0, 0, 0);
  }

  // Between one task and all: some fit, not enough of them.
  Result<void> check_gang() const {
    const int64_t fitting = fitting_now();
    if (spec_.elastic || spec_.topology.is_set() || !spec_.nodes.empty())
      return wrong("it is not placed task by task");
    if (spec_.tasks_min < 2 || fitting == 0 || fitting >= int64_t{spec_.tasks_min})
      return wrong("it is not the number of tasks that keeps it");
    TRY(expect_figures(spec_.tasks_min, fitting, 0, 0));
    return proof_.blockers == holders() ? Result<void>() : wrong("others hold what it could use");
  }

  // It does not fit into what is free, and these hold what it could use.
  Result<void> check_busy() const {
    if (fitting_now() >= int64_t{spec_.tasks_min}) return wrong("it fits now");
    const auto [needed, available] = narrowest();
    TRY(expect_figures(needed, available, 0, 0));
    return proof_.blockers == holders() ? Result<void>() : wrong("others hold what it could use");
  }

  // Room is being made for it: it waits for those who leave.
  Result<void> check_own_claim() const {
    const ClaimFact& claim = *claim_of(job_.job);
    // Nobody keeps the first one out, so it waits for those that leave even where it fits: for a bound.
    const bool is_first = dump_.claims.front().job == job_.job;
    if (!is_first && fitting_now() >= int64_t{spec_.tasks_min}) return wrong("it fits now");
    for (const JobId leaving : claim.leaving) {
      const bool leaves = std::any_of(
          dump_.holdings.begin(), dump_.holdings.end(),
          [&](const HoldingFact& holding) { return holding.task.job == leaving && holding.leaving; });
      if (!leaves) return wrong("job " + std::to_string(leaving.value()) + " does not leave");
    }
    TRY(expect_figures(0, 0, 0, 0));
    return proof_.blockers == claim.leaving ? Result<void>() : wrong("it waits for others");
  }

  // It would fit, but others were promised room before it.
  Result<void> check_earlier_claims() const {
    if (fitting_now() < int64_t{spec_.tasks_min}) return wrong("it does not fit now");
    std::vector<JobId> earlier;
    for (const ClaimFact& claim : dump_.claims) {
      if (claim.job == job_.job) break;
      earlier.push_back(claim.job);
    }
    if (earlier.empty()) return wrong("nobody was promised room before it");
    std::sort(earlier.begin(), earlier.end());
    TRY(expect_figures(0, 0, 0, 0));
    if (proof_.until.is_set()) return wrong("room that is being made has no time");
    return proof_.blockers == earlier ? Result<void>() : wrong("others were promised room before it");
  }

  // It fits into what is free, and does not next to what is promised: to each of these by itself or, if to
  // none, to all of them together.
  Result<void> check_reserved() const {
    const Room now(dump_, [](const HoldingFact&) { return true; });
    if (tasks_that_fit(dump_, spec_, {&now}) < int64_t{spec_.tasks_min}) return wrong("it does not fit now");
    TRY(expect_figures(0, 0, 0, 0));
    const Room unpromised = without_claims(now);
    std::vector<JobId> claimants;
    for (const ClaimFact& claim : dump_.claims) {
      if (!claim.plan.empty()) claimants.push_back(claim.job);
    }
    std::vector<JobId> keepers;
    if (tasks_that_fit(dump_, spec_, {&now, &unpromised}) < int64_t{spec_.tasks_min}) keepers = claimants;
    std::vector<Room> afters;
    afters.reserve(dump_.reservations.size());
    std::vector<const Room*> together{&now, &unpromised};
    std::vector<JobId> all = claimants;
    Time until;
    Time until_together;
    const Time end = latest_end(spec_, dump_.now);
    for (const ReservationFact& reservation : dump_.reservations) {
      const JobFact* other = find(reservation.job);
      if (other == nullptr || age_of(*other) >= age_of(job_)) continue;
      afters.push_back(after(reservation, *other->spec));
      if (!afters.back().is_consistent()) return wrong("a reservation has no room at its time");
      const bool is_same_kind = !dump_.policy.backfill && same_kind(*other->spec, reservation);
      const bool passes_start = end > reservation.start;
      if (is_same_kind ||
          (passes_start && tasks_that_fit(dump_, spec_, {&now, &afters.back()}) < int64_t{spec_.tasks_min})) {
        keepers.push_back(other->job);
        if (!until.is_set() || reservation.start < until) until = reservation.start;
      }
      if (!passes_start) continue;
      together.push_back(&afters.back());
      all.push_back(other->job);
      if (!until_together.is_set() || reservation.start < until_together) until_together = reservation.start;
    }
    if (keepers.empty() && tasks_that_fit(dump_, spec_, together) < int64_t{spec_.tasks_min}) {
      keepers = all;
      until = until_together;
    }
    if (keepers.empty()) return wrong("it fits next to all that is promised");
    std::sort(keepers.begin(), keepers.end());
    keepers.erase(std::unique(keepers.begin(), keepers.end()), keepers.end());
    if (proof_.until != until) return wrong("the first reservation begins at another time");
    return proof_.blockers == keepers ? Result<void>() : wrong("others are promised the room");
  }

  // --- facts ---------------------------------------------------------------------------------------------
  const JobFact* find(JobId id) const { return find_job(dump_, id); }
  const ClaimFact* claim_of(JobId id) const {
    const auto found = std::find_if(dump_.claims.begin(), dump_.claims.end(),
                                    [&](const ClaimFact& each) { return each.job == id; });
    return found == dump_.claims.end() ? nullptr : &*found;
  }
  const GpuFact* gpu(GpuId id) const { return find_gpu(dump_, id); }
  const Node* node(NodeId id) const { return find_node(dump_, id); }
  bool would_do(const GpuFact& fact) const {
    const Node* home = node(fact.gpu.node);
    return spec_.task.gpu.count > 0 && home != nullptr && is_installed(fact) && may_go_to(spec_, *home) &&
           is_of_type(spec_.task.gpu, fact.gpu.type) && need_on(spec_, fact.gpu).compute > 0;
  }
  int64_t fitting_now() const {
    const Room now(dump_, [](const HoldingFact&) { return true; });
    return tasks_that_fit(dump_, spec_, {&now});
  }

  // Jobs that hold something of a GPU that would do; without GPUs, all whose tasks have not exited.
  std::vector<JobId> holders() const {
    std::set<JobId> jobs;
    for (const HoldingFact& holding : dump_.holdings) {
      if (spec_.task.gpu.count == 0 && !holding.exited) jobs.insert(holding.task.job);
      for (const Slice& slice : holding.slices) {
        const GpuFact* fact = gpu(slice.gpu);
        if (fact != nullptr && would_do(*fact)) jobs.insert(holding.task.job);
      }
    }
    return {jobs.begin(), jobs.end()};
  }

  // What one task needs of the scarcest, and the most that one machine or GPU has of it.
  std::pair<int64_t, int64_t> narrowest() const {
    const Room now(dump_, [](const HoldingFact&) { return true; });
    const GpuRequest& request = spec_.task.gpu;
    int64_t available = 0;
    for (const auto& [id, home] : now.nodes()) {
      if (request.count == 0) available = std::max(available, home.cpu);
      int64_t idle = 0;
      for (const auto& [gpu_id, room] : home.gpus) {
        if (!would_do(*gpu(gpu_id)) || !room.open || room.whole > 0) continue;
        if (room.owners.empty()) ++idle;
        const bool is_alone = room.owners.count(spec_.owner.uid) == room.owners.size();
        if (request.kind == SliceKind::fraction && (share_ || room.for_all || is_alone))
          available = std::max(available, room.compute);
      }
      if (request.count > 0 && request.kind == SliceKind::whole) available = std::max(available, idle);
    }
    if (request.count == 0) return {spec_.task.cpu.count(), available};
    if (request.kind == SliceKind::whole) return {int64_t{request.count}, available};
    return {std::max<int64_t>(request.compute.count(), 1), available};
  }

  // What is free, less what is promised to claims, once those who leave have left. Without claims: what is
  // free.
  Room without_claims(const Room& now) const {
    Room room = now;
    const bool any = std::any_of(dump_.claims.begin(), dump_.claims.end(),
                                 [](const ClaimFact& claim) { return !claim.plan.empty(); });
    if (!any) return room;
    for (const HoldingFact& holding : dump_.holdings) {
      if (holding.leaving) room.give(holding);
    }
    for (const ClaimFact& claim : dump_.claims) {
      for (const PlacementFact& task : claim.plan) room.take(*find(claim.job)->spec, task);
    }
    return room;
  }

  // What is left at the reservation's start, on its nodes, once all that is due has been given back and it
  // has its place. Other nodes are as they are now: it says nothing of them.
  Room after(const ReservationFact& reservation, const JobSpec& spec) const {
    std::set<NodeId> mine;
    for (const PlacementFact& task : reservation.plan) mine.insert(task.node);
    const bool has_claims = std::any_of(dump_.claims.begin(), dump_.claims.end(),
                                        [](const ClaimFact& claim) { return !claim.plan.empty(); });
    Room room(dump_, [&](const HoldingFact& holding) {
      if (!mine.contains(holding.node)) return true;
      if (has_claims && holding.leaving) return false;
      return std::max(holding.latest_end, dump_.now) > reservation.start;
    });
    for (const ClaimFact& claim : dump_.claims) {
      const JobSpec& other = *find(claim.job)->spec;
      if (latest_end(other, dump_.now) <= reservation.start) continue;
      for (const PlacementFact& task : claim.plan) {
        if (mine.contains(task.node)) room.take(other, task);
      }
    }
    for (const PlacementFact& task : reservation.plan) room.take(spec, task);
    return room;
  }

  // Without backfill nobody passes one that waits for the same kind of GPU.
  bool same_kind(const JobSpec& other, const ReservationFact& reservation) const {
    if (spec_.task.gpu.count == 0 || other.task.gpu.count == 0)
      return spec_.task.gpu.count == 0 && other.task.gpu.count == 0;
    for (const PlacementFact& task : reservation.plan) {
      for (const Slice& slice : task.slices) {
        const std::string& type = gpu(slice.gpu)->gpu.type;
        return std::any_of(dump_.gpus.begin(), dump_.gpus.end(),
                           [&](const GpuFact& fact) { return fact.gpu.type == type && would_do(fact); });
      }
    }
    return false;
  }

  Result<void> expect_figures(int64_t needed, int64_t available, int64_t used, int64_t bound) const {
    const auto differs = [](const char* what, int64_t said, int64_t is) {
      return wrong(std::string(what) + " is " + std::to_string(is) + " and not " + std::to_string(said));
    };
    if (proof_.needed != needed) return differs("needed", proof_.needed, needed);
    if (proof_.available != available) return differs("available", proof_.available, available);
    if (proof_.used != used) return differs("used", proof_.used, used);
    if (proof_.bound != bound) return differs("bound", proof_.bound, bound);
    return {};
  }
  Result<void> expect_plain(int64_t needed, int64_t available) const {
    TRY(expect_figures(needed, available, 0, 0));
    return proof_.blockers.empty() && proof_.gpus.empty() ? Result<void>()
                                                          : wrong("it names who is not asked");
  }

  const StateDump& dump_;
  const Proof& proof_;
  const JobFact& job_;
  const JobSpec& spec_;
  const bool share_;
};

}  // namespace

Result<void> check(const StateDump& dump, const Proof& proof) {
  const auto job = std::find_if(dump.jobs.begin(), dump.jobs.end(),
                                [&](const JobFact& each) { return each.job == proof.job; });
  if (job == dump.jobs.end()) return wrong("there is no such job");
  const bool waits = job->state == JobState::pending || job->state == JobState::held;
  if (!waits) return wrong("the job does not wait");
  return Checker(dump, proof, *job).check();
}

}  // namespace tranche::proof
