#include "machine/job_update.h"

#include <gtest/gtest.h>

namespace tranche::machine {
namespace {

const Caller kJobOwner{1001, 1001, "alice", false};
const Caller kServerOperator{0, 0, "root", true};
constexpr Time kNow{1'796'000'000'000'000'000};

// Job 7 of alice: 1h of at most 24h, class training.
JobRecord job_in(JobState state) {
  JobSpec spec;
  spec.owner = {1001, 1001, "alice"};
  spec.time_limit = kHour;
  JobRecord job;
  job.id = JobId(7);
  job.state = state;
  job.spec = std::make_shared<const JobSpec>(spec);
  if (state == JobState::running) job.started = kNow - 10 * kMinute;
  return job;
}

std::string refusal(const JobRecord& job, const api::UpdateRequest& request, const Caller& caller = kJobOwner,
                    const MemoryHeld& held = {}) {
  const scheduler::Scheduler scheduler;
  const auto updated = checked_update(job, request, caller, held, scheduler, JobTable(), kNow);
  return updated ? "(accepted)"
                 : std::string(to_string(updated.error().code())) + ": " + updated.error().message();
}

TEST(JobUpdate, AWaitingJobTakesWhatItsOwnerMayHaveAskedFor) {
  const JobRecord job = job_in(JobState::pending);
  api::UpdateRequest request;
  request.time_limit = 2 * kHour;
  request.priority = -3;
  request.first = true;
  const scheduler::Scheduler scheduler;
  const auto updated = checked_update(job, request, kJobOwner, MemoryHeld(), scheduler, JobTable(), kNow);
  ASSERT_TRUE(updated.has_value());
  EXPECT_EQ(updated->job, JobId(7));
  EXPECT_EQ(updated->by, "alice");
  EXPECT_EQ(updated->time_limit, 2 * kHour);
  EXPECT_EQ(updated->priority, -3);
  EXPECT_TRUE(updated->first);
  EXPECT_FALSE(updated->dependencies.has_value());
}

TEST(JobUpdate, NobodyRaisesHisOwnRank) {
  const JobRecord job = job_in(JobState::pending);
  api::UpdateRequest above;
  above.priority = Policy().for_class(JobClass::training).priority + 1;
  EXPECT_EQ(refusal(job, above).substr(0, 7), "denied:");
  EXPECT_EQ(refusal(job, above, kServerOperator), "(accepted)");
  api::UpdateRequest longer;
  longer.time_limit = Policy().for_class(JobClass::training).time_limit_max + kSecond;
  EXPECT_EQ(refusal(job, longer).substr(0, 11), "over_limit:");
  EXPECT_EQ(refusal(job, longer, kServerOperator), "(accepted)");
}

TEST(JobUpdate, TheLimitOfARunningJobOnlyShrinks) {
  const JobRecord job = job_in(JobState::running);
  api::UpdateRequest request;
  request.time_limit = 30 * kMinute;
  EXPECT_EQ(refusal(job, request), "(accepted)");
  request.time_limit = 2 * kHour;
  EXPECT_EQ(refusal(job, request).substr(0, 7), "denied:");
  EXPECT_EQ(refusal(job, request, kServerOperator), "(accepted)");
  request.time_limit = 5 * kMinute;
  EXPECT_NE(refusal(job, request).find("has run longer than"), std::string::npos);
  request.time_limit = 30 * kMinute;
  request.priority = -1;
  EXPECT_EQ(refusal(job, request).substr(0, 9), "conflict:");
}

TEST(JobUpdate, MemoryThatIsHeldIsNotTakenAway) {
  JobRecord job = job_in(JobState::running);
  JobSpec spec = *job.spec;
  spec.task.gpu.count = 1;
  spec.task.gpu.kind = SliceKind::fraction;
  spec.task.gpu.memory = MiB(20 << 10);
  job.spec = std::make_shared<const JobSpec>(spec);
  api::UpdateRequest request;
  request.gpu_memory = MiB(10 << 10);
  const MemoryHeld holds{MiB(20 << 10), MiB(12 << 10)};
  EXPECT_NE(refusal(job, request, kJobOwner, holds).find("holds 12G of a GPU now"), std::string::npos);
  EXPECT_NE(refusal(job, request, kJobOwner, holds).find("--gpu-mem 10G..12G"), std::string::npos);
  EXPECT_EQ(refusal(job, request, kJobOwner, {MiB(20 << 10), std::nullopt}).substr(0, 12), "unavailable:");
  // What the scheduler says comes after that: here it knows of no job.
  request.gpu_memory_limit = MiB(12 << 10);
  EXPECT_EQ(refusal(job, request, kJobOwner, holds).substr(0, 10), "not_found:")
      << "the rest is borrowed then";
  job.state = JobState::starting;
  EXPECT_EQ(refusal(job, request, kJobOwner, holds).substr(0, 9), "conflict:");
}

TEST(JobUpdate, WholeGpusHaveAllTheirMemory) {
  JobRecord job = job_in(JobState::running);
  JobSpec spec = *job.spec;
  spec.task.gpu.count = 2;
  job.spec = std::make_shared<const JobSpec>(spec);
  api::UpdateRequest request;
  request.gpu_memory = MiB(1024);
  EXPECT_NE(refusal(job, request).find("has whole GPUs"), std::string::npos);
}

TEST(JobUpdate, JobsWaitForEarlierOnesOnly) {
  const JobRecord job = job_in(JobState::pending);
  api::UpdateRequest request;
  request.dependencies = std::vector<Dependency>{{DependencyKind::after_any, JobId(6)}};
  EXPECT_EQ(refusal(job, request).substr(0, 10), "not_found:");
  request.dependencies->clear();
  EXPECT_EQ(refusal(job, request), "(accepted)");
}

TEST(JobUpdate, WhatHasEndedStays) {
  api::UpdateRequest request;
  request.first = true;
  EXPECT_EQ(refusal(job_in(JobState::completed), request).substr(0, 9), "conflict:");
}

}  // namespace
}  // namespace tranche::machine
