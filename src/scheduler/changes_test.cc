// Jobs that are changed, requeued and tried again.
#include <gtest/gtest.h>

#include "scheduler/test_world.h"

namespace tranche::scheduler::test {
namespace {

JobUpdated change(JobId job) {
  JobUpdated updated;
  updated.job = job;
  updated.by = "alice";
  return updated;
}

// The log put back gives the same state, whatever the decisions would be.
void expect_restorable(const World& world) {
  Scheduler restored;
  for (const auto& [event, decisions] : world.log) restored.restore(event, decisions);
  EXPECT_EQ(restored.state_hash(), world.scheduler.state_hash());
}

TEST(Update, FirstGoesBeforeEarlierJobsOfItsQueue) {
  World world;
  world.add_node(1);
  const JobId running = world.submit({});
  const JobId early = world.submit({});
  const JobId late = world.submit({});
  const JobId latest = world.submit({});
  JobUpdated first = change(late);
  first.first = true;
  world.event(first);
  EXPECT_EQ(world.scheduler.waiting_order(), (std::vector<JobId>{late, early, latest}));
  first.job = latest;
  world.event(first);
  EXPECT_EQ(world.scheduler.waiting_order(), (std::vector<JobId>{latest, late, early}));
  world.run(running);
  world.finish(running);
  EXPECT_TRUE(world.started(latest));
  expect_restorable(world);
}

ArraySpec five_elements() {
  ArraySpec array;
  array.indices = {1, 2, 3, 4, 5};
  return array;
}

TEST(Arrays, AreCancelledInOneStepAndNoElementStartsInIt) {
  World world;
  world.add_node(2);
  const JobId first = world.submit({}, five_elements());
  const JobId second(first.value() + 1);
  const JobId other = world.submit({});
  world.run(first);
  world.run(second);
  world.finish(first);
  ASSERT_TRUE(world.started(JobId(first.value() + 2)));
  world.event(JobCancelled{first, "alice", 4});
  EXPECT_TRUE(world.last<Start>().empty()) << "what the waiting elements leave is not theirs any more";
  EXPECT_EQ(world.last<Stop>().size(), 2u);
  EXPECT_EQ(world.last<End>().size(), 2u);
  EXPECT_EQ(world.ended(first), JobState::completed);
  EXPECT_EQ(world.state(second), JobState::stopping);
  world.finish(second, ExitCause::killed);
  EXPECT_TRUE(world.started(other));
  expect_restorable(world);
}

TEST(Arrays, AreHeldAndReleasedInOneStep) {
  World world;
  world.add_node(1);
  const JobId first = world.submit({}, five_elements());
  world.run(first);
  world.event(JobHeld{first, "alice", 4});
  EXPECT_EQ(world.state(first), JobState::running);
  for (uint64_t i = 1; i < 5; ++i) EXPECT_EQ(world.state(JobId(first.value() + i)), JobState::held) << i;
  world.finish(first);
  EXPECT_TRUE(world.last<Start>().empty());
  world.event(JobReleased{first, "alice", 4});
  EXPECT_EQ(world.last<Start>().size(), 1u);
  EXPECT_EQ(world.state(JobId(first.value() + 4)), JobState::pending);
  expect_restorable(world);
}

TEST(Update, FirstDoesNotPassOtherUsers) {
  World world;
  world.add_node(1);
  world.submit({.user = "carol"});
  const JobId others = world.submit({.user = "bob"});
  const JobId early = world.submit({});
  const JobId late = world.submit({});
  JobUpdated first = change(late);
  first.first = true;
  world.event(first);
  EXPECT_EQ(world.scheduler.waiting_order(), (std::vector<JobId>{others, late, early}))
      << "whose turn it is, is not the owner's to say";
}

TEST(Update, PriorityBeginAndDependenciesCount) {
  World world;
  world.add_node(1);
  const JobId running = world.submit({.priority = 5});
  const JobId early = world.submit({});
  const JobId late = world.submit({});
  JobUpdated lower = change(early);
  lower.priority = -1;
  world.event(lower);
  EXPECT_EQ(world.scheduler.waiting_order(), (std::vector<JobId>{late, early}));
  JobUpdated later = change(late);
  later.begin = world.now() + kHour;
  world.event(later);
  EXPECT_EQ(world.scheduler.waiting_order(), std::vector<JobId>{early});
  JobUpdated after = change(early);
  after.dependencies = std::vector<Dependency>{{DependencyKind::after_any, running}};
  world.event(after);
  EXPECT_TRUE(world.scheduler.waiting_order().empty());
  after.dependencies->clear();
  world.event(after);
  EXPECT_EQ(world.scheduler.waiting_order(), std::vector<JobId>{early});
  later.begin = Time();
  world.event(later);
  EXPECT_EQ(world.scheduler.waiting_order(), (std::vector<JobId>{late, early}));
  expect_restorable(world);
}

TEST(Update, AnElementOfAnArrayIsChangedAlone) {
  World world;
  const JobId array = world.submit({}, {.indices = {1, 2, 3}, .running_max = 0});
  JobUpdated shorter = change(JobId(array.value() + 1));
  shorter.time_limit = kMinute;
  world.event(shorter);
  EXPECT_EQ(world.view(array).spec->time_limit, kHour);
  EXPECT_EQ(world.view(shorter.job).spec->time_limit, kMinute);
}

TEST(Update, AShorterLimitMovesTheForecastOfTheNext) {
  World world;
  world.add_node(1);
  const JobId running = world.submit({});
  world.run(running);
  const JobId waiting = world.submit({});
  const Time before = world.scheduler.forecast(waiting)->start;
  JobUpdated shorter = change(running);
  shorter.time_limit = 10 * kMinute;
  world.event(shorter);
  EXPECT_EQ(before - world.scheduler.forecast(waiting)->start, 50 * kMinute);
  expect_restorable(world);
}

TEST(Requeued, IsStoppedAndRunsAsItsNextAttempt) {
  World world;
  world.add_node(1);
  const JobId job = world.submit({});
  world.event(JobRequeued{job, "alice"});
  ASSERT_EQ(world.last<Stop>().size(), 1U);
  EXPECT_EQ(world.last<Stop>()[0].reason, StopReason::requeued);
  world.run(job);
  world.finish(job, ExitCause::killed);
  EXPECT_EQ(world.view(job).attempt, 2U);
  EXPECT_TRUE(world.started(job)) << "it was the only one that waited";
  world.finish(job);
  EXPECT_EQ(world.ended(job), JobState::completed) << "it was asked for once";
  expect_restorable(world);
}

TEST(Requeued, AWaitingJobDoesNotMind) {
  World world;
  const JobId job = world.submit({});
  world.event(JobRequeued{job, "alice"});
  world.add_node(1);
  world.run(job);
  world.finish(job);
  EXPECT_EQ(world.ended(job), JobState::completed);
}

RetryPolicy retries(uint32_t error, uint32_t out_of_memory, uint32_t infrastructure, Duration delay = {}) {
  return {error, out_of_memory, infrastructure, delay};
}

// Submits a job that may be tried again so often.
JobId submit_with(World& world, const RetryPolicy& retry) {
  JobSpec spec = spec_of({});
  spec.retry = retry;
  world.event(JobSubmitted{JobId(1), spec, {}});
  return JobId(1);
}

TEST(Retry, PausesDoubleAndEnd) {
  World world;
  world.add_node(1);
  const JobId job = submit_with(world, retries(3, 0, 0, 20 * kMinute));
  for (const Duration pause : {20 * kMinute, 40 * kMinute, kRetryDelayMax}) {
    world.run(job);
    const auto tasks = world.view(job).tasks;
    world.event(TaskExited{tasks[0].task, ExitCause::exited, 9, 0});
    ASSERT_EQ(world.last<Requeue>().size(), 1U);
    const Requeue requeue = world.last<Requeue>()[0];
    EXPECT_EQ(requeue.reason, StopReason::retried);
    EXPECT_EQ(requeue.begin - world.now(), pause);
    world.release(tasks[0]);
    EXPECT_FALSE(world.started(job)) << "it pauses";
    world.tick_at(requeue.begin);
    EXPECT_TRUE(world.started(job));
  }
  world.run(job);
  world.finish(job, ExitCause::exited, 9);
  EXPECT_EQ(world.ended(job), JobState::failed);
  expect_restorable(world);
}

TEST(Retry, EachKindOfFailureHasItsOwnCount) {
  const auto ends_after = [](const RetryPolicy& retry, ExitCause cause) {
    World world;
    world.add_node(1);
    const JobId job = submit_with(world, retry);
    world.run(job);
    world.finish(job, cause, cause == ExitCause::exited ? 1 : 0);
    return world.ended(job);
  };
  EXPECT_EQ(ends_after(retries(1, 0, 0), ExitCause::exited), std::nullopt);
  EXPECT_EQ(ends_after(retries(1, 0, 0), ExitCause::signalled), std::nullopt);
  EXPECT_EQ(ends_after(retries(1, 0, 0), ExitCause::out_of_memory), JobState::out_of_memory);
  EXPECT_EQ(ends_after(retries(0, 1, 0), ExitCause::out_of_memory), std::nullopt);
  EXPECT_EQ(ends_after(retries(0, 0, 1), ExitCause::node_failed), std::nullopt);
  EXPECT_EQ(ends_after(retries(1, 0, 0), ExitCause::node_failed), JobState::node_failed);
  // Never: its limit is its owner's own word, and of the lost nobody knows whether they still run.
  EXPECT_EQ(ends_after(retries(1, 1, 1), ExitCause::time_limit), JobState::timed_out);
  EXPECT_EQ(ends_after(retries(1, 1, 1), ExitCause::lost), JobState::unknown);
}

TEST(Retry, CancelEndsIt) {
  World world;
  world.add_node(1);
  const JobId job = submit_with(world, retries(5, 0, 0, kHour));
  world.run(job);
  world.finish(job, ExitCause::exited, 1);
  EXPECT_EQ(world.state(job), JobState::pending);
  world.event(JobCancelled{job, "alice"});
  EXPECT_EQ(world.ended(job), JobState::cancelled);
}

}  // namespace
}  // namespace tranche::scheduler::test
