// A World that does at once what the scheduler decides: what is told to stop stops, until nothing is decided
// any more. For properties of states at rest.
#pragma once

#include <set>
#include <string>

#include "base/random.h"
#include "scheduler/test_world.h"

namespace tranche::scheduler::test {

class SettledWorld : public World {
 public:
  using World::World;

  // The event, and all that follows from it.
  void happens(EventPayload payload, Duration after = kSecond) {
    follow(event(std::move(payload), after));
    for (int rounds = 0; !stopping_.empty() || !starting_.empty(); ++rounds) {
      TRANCHE_ASSERT(rounds < 10'000);
      if (!starting_.empty()) {
        const Start start = *starting_.begin();
        starting_.erase(starting_.begin());
        follow(event(TaskStarted{start.task}, kNanosecond));
        continue;
      }
      const TaskKey task = *stopping_.begin();
      stopping_.erase(stopping_.begin());
      exits(task, ExitCause::killed);
    }
  }
  void exits(const TaskKey& task, ExitCause cause = ExitCause::exited) {
    const Start start = of(task);
    follow(event(TaskExited{task, cause, 0, 0}, kNanosecond));
    for (const Slice& slice : start.slices) follow(event(SliceReleased{task, slice.gpu}, kNanosecond));
  }
  // The job's processes have ended by themselves.
  void ends(JobId job) {
    for (const Start& start : view(job).tasks) exits(start.task);
    happens(Tick{}, kNanosecond);
  }
  JobId submits(const JobSpec& spec) {
    const JobId job(++last_);
    happens(JobSubmitted{job, spec, {}});
    return job;
  }
  uint64_t last_job() const { return last_; }
  std::vector<JobId> running() const {
    std::vector<JobId> jobs;
    for (const JobId job : scheduler.live_jobs()) {
      if (!view(job).tasks.empty()) jobs.push_back(job);
    }
    return jobs;
  }
  const QueueShare& share(const std::string& path) {
    shares_ = scheduler.shares();
    const auto found =
        std::find_if(shares_.begin(), shares_.end(), [&](const QueueShare& s) { return s.path == path; });
    TRANCHE_ASSERT(found != shares_.end());
    return *found;
  }
  uint64_t evictions() const { return evictions_; }

 private:
  Start of(const TaskKey& task) const {
    for (const Start& start : view(task.job).tasks) {
      if (start.task == task) return start;
    }
    TRANCHE_ASSERT(false);
    return {};
  }
  void follow(const std::vector<Decision>& decisions) {
    for (const Decision& decision : decisions) {
      if (const auto* start = std::get_if<Start>(&decision)) starting_.push_back(*start);
      if (const auto* stop = std::get_if<Stop>(&decision)) {
        stopping_.insert(stop->task);
        if (stop->beneficiary.is_set()) ++evictions_;
      }
    }
  }
  std::vector<Start> starting_;
  std::set<TaskKey> stopping_;
  std::vector<QueueShare> shares_;
  uint64_t last_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace tranche::scheduler::test
