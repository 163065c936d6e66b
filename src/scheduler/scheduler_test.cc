// The life of jobs: start, end, release, cancel, hold, dependencies, arrays, begin times, failures.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include "scheduler/test_world.h"

namespace tranche::scheduler::test {
namespace {

TEST(Life, StartsAtOnceOnAnIdleGpuAndCompletes) {
  World world;
  world.add_node(4);
  const JobId job = world.submit({});
  ASSERT_EQ(world.last<Start>().size(), 1u);
  EXPECT_EQ(world.gpus_of(job), std::vector<uint32_t>{1});
  EXPECT_EQ(world.state(job), JobState::starting);
  world.run(job);
  EXPECT_EQ(world.state(job), JobState::running);
  world.finish(job);
  EXPECT_EQ(world.ended(job), JobState::completed);
  EXPECT_FALSE(world.scheduler.has_job(job));
}

TEST(Life, ASliceIsFreeWhenItIsReleasedAndNotBefore) {
  World world;
  world.add_node(1);
  const JobId first = world.submit({});
  const JobId second = world.submit({});
  world.run(first);
  const auto tasks = world.view(first).tasks;
  world.event(TaskExited{tasks[0].task, ExitCause::exited, 0, 0});
  EXPECT_EQ(world.ended(first), JobState::completed);
  EXPECT_FALSE(world.started(second));
  EXPECT_EQ(world.scheduler.gpus()[0].tasks.size(), 1u);
  world.release(tasks[0]);
  EXPECT_TRUE(world.started(second));
}

TEST(Life, ProcessorsAreFreeWhenTheTaskHasExited) {
  World world;
  world.add_node(2, "t4", 15'000, 4'000);
  const JobId first = world.submit({.cpu = 4'000});
  const JobId second = world.submit({.cpu = 4'000});
  EXPECT_FALSE(world.started(second));
  world.run(first);
  world.event(TaskExited{world.view(first).tasks[0].task, ExitCause::exited, 0, 0});
  EXPECT_TRUE(world.started(second));
  EXPECT_EQ(world.gpus_of(second), std::vector<uint32_t>{2});
}

TEST(Life, LateAndDoubledOutcomesAreIgnored) {
  World world;
  world.add_node(1);
  const JobId job = world.submit({});
  const Start start = world.view(job).tasks[0];
  world.event(SliceReleased{start.task, GpuId(1)});  // before the exit: not believed
  world.run(job);
  world.event(TaskStarted{start.task});
  world.finish(job);
  world.event(TaskExited{start.task, ExitCause::exited, 1, 0});
  world.release(start);
  EXPECT_TRUE(world.last<End>().empty());
  EXPECT_EQ(world.scheduler.gpus()[0].compute_free, kWholeGpu);
  EXPECT_EQ(world.scheduler.gpus()[0].memory_free, MiB(80'000));
}

TEST(Life, ExitCausesBecomeStates) {
  const std::vector<std::tuple<ExitCause, int32_t, JobState>> cases = {
      {ExitCause::exited, 0, JobState::completed},
      {ExitCause::exited, 3, JobState::failed},
      {ExitCause::signalled, 0, JobState::failed},
      {ExitCause::time_limit, 0, JobState::timed_out},
      {ExitCause::out_of_memory, 0, JobState::out_of_memory},
      {ExitCause::node_failed, 0, JobState::node_failed},
      {ExitCause::lost, 0, JobState::unknown}};
  for (const auto& [cause, code, state] : cases) {
    World world;
    world.add_node(1);
    const JobId job = world.submit({});
    world.run(job);
    world.finish(job, cause, code);
    EXPECT_EQ(world.ended(job), state) << to_string(cause);
  }
}

TEST(Life, CancelledWhilePendingEndsAtOnceAndWhileRunningIsStopped) {
  World world;
  world.add_node(1);
  const JobId running = world.submit({});
  const JobId waiting = world.submit({});
  world.run(running);
  world.event(JobCancelled{waiting, "alice"});
  EXPECT_EQ(world.ended(waiting), JobState::cancelled);
  world.event(JobCancelled{running, "alice"});
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>()[0].reason, StopReason::cancelled);
  EXPECT_EQ(world.state(running), JobState::stopping);
  world.event(JobCancelled{running, "alice"});
  EXPECT_TRUE(world.last<Stop>().empty());
  world.finish(running, ExitCause::killed);
  EXPECT_EQ(world.ended(running), JobState::cancelled);
}

TEST(Life, HeldJobsWaitUntilReleased) {
  World world;
  world.add_node(1);
  const JobId job = world.submit({.held = true});
  EXPECT_EQ(world.state(job), JobState::held);
  world.event(JobReleased{job, "alice"});
  EXPECT_TRUE(world.started(job));
}

TEST(Life, BeginTimeAsksForATick) {
  World world;
  world.add_node(1);
  const Time begin = world.now() + kHour;
  const JobId job = world.submit({.begin = begin});
  ASSERT_EQ(world.last<WakeAt>().size(), 1u);
  EXPECT_EQ(world.last<WakeAt>()[0].time, begin);
  EXPECT_FALSE(world.started(job));
  world.tick_at(begin);
  EXPECT_TRUE(world.started(job));
}

TEST(Life, AStartThatFailedIsTriedThreeTimesAgain) {
  World world;
  world.add_node(1);
  const JobId job = world.submit({});
  for (uint32_t attempt = 1; attempt <= 4; ++attempt) {
    ASSERT_TRUE(world.started(job)) << attempt;
    EXPECT_EQ(world.view(job).attempt, attempt);
    world.event(TaskStartFailed{{job, 0, attempt}, true, 0, "no cgroup"});
  }
  EXPECT_EQ(world.ended(job), JobState::failed);
  const JobId other = world.submit({});
  world.event(TaskStartFailed{{other, 0, 1}, false, 127, "no such program"});
  EXPECT_EQ(world.ended(other), JobState::failed);
}

TEST(Dependencies, AreMetOrEndTheJob) {
  World world;
  world.add_node(4);
  const JobId first = world.submit({});
  const JobId after_ok = world.submit({.dependencies = {{DependencyKind::after_ok, first}}});
  const JobId after_not_ok = world.submit({.dependencies = {{DependencyKind::after_not_ok, first}}});
  const JobId after_any = world.submit({.dependencies = {{DependencyKind::after_any, first}}});
  const JobId after_start = world.submit({.dependencies = {{DependencyKind::after_start, first}}});
  const JobId second_level = world.submit({.dependencies = {{DependencyKind::after_ok, after_not_ok}}});
  EXPECT_TRUE(world.started(after_start));
  EXPECT_FALSE(world.started(after_ok));
  world.run(first);
  world.finish(first);
  EXPECT_TRUE(world.started(after_ok));
  EXPECT_TRUE(world.started(after_any));
  EXPECT_EQ(world.ended(after_not_ok), JobState::cancelled);
  EXPECT_EQ(world.ended(second_level), JobState::cancelled);
  const JobId late = world.submit({.dependencies = {{DependencyKind::after_ok, first}}});
  EXPECT_TRUE(world.started(late));
}

TEST(Dependencies, AfterStartIsMetInTheStepOfTheStart) {
  World world;
  world.add_node(2);
  // The dependent has the higher priority, so the walk has passed its place when it becomes ready.
  const JobId first = world.submit({.held = true});
  const JobId second = world.submit({.priority = 5, .dependencies = {{DependencyKind::after_start, first}}});
  world.event(JobReleased{first, "alice"});
  EXPECT_TRUE(world.started(first));
  EXPECT_TRUE(world.started(second));
}

TEST(Arrays, ElementsAreJobsAndRunAtMostSoManyAtATime) {
  World world;
  world.add_node(4);
  const JobId first = world.submit({}, {.indices = {1, 2, 3, 5}, .running_max = 2});
  EXPECT_EQ(world.last<Start>().size(), 2u);
  const JobView last = world.view(JobId(first.value() + 3));
  EXPECT_EQ(last.array, ArrayId(first.value()));
  EXPECT_EQ(last.array_index, 5u);
  EXPECT_EQ(last.state, JobState::pending);
  // The cap of one array is nobody else's.
  EXPECT_TRUE(world.started(world.submit({})));
  world.run(first);
  world.finish(first);
  EXPECT_TRUE(world.started(JobId(first.value() + 2)));
  EXPECT_FALSE(world.started(JobId(first.value() + 3)));
}

TEST(Gangs, StartTogetherOrNotAtAll) {
  World world;
  world.add_node(4);
  const JobId one = world.submit({});
  const JobId gang = world.submit({.tasks_min = 4});
  EXPECT_FALSE(world.started(gang));
  world.run(one);
  world.finish(one);
  EXPECT_EQ(world.view(gang).tasks.size(), 4u);
  EXPECT_EQ(world.last<Start>().size(), 4u);
}

TEST(Gangs, SpanNodesAndTakeTheirMaximumIfItFits) {
  World world;
  world.add_node(2);
  world.add_node(2);
  const JobId gang = world.submit({.tasks_min = 2, .tasks_max = 3});
  EXPECT_EQ(world.view(gang).tasks.size(), 3u);
  const JobId other = world.submit({.tasks_min = 1, .tasks_max = 3});
  EXPECT_EQ(world.view(other).tasks.size(), 1u);
}

TEST(Gangs, AFailureStopsTheOthersAndNamesTheState) {
  World world;
  world.add_node(3);
  const JobId gang = world.submit({.tasks_min = 3});
  world.run(gang);
  const auto tasks = world.view(gang).tasks;
  world.event(TaskExited{tasks[1].task, ExitCause::out_of_memory, 0, 0});
  const auto stops = world.last<Stop>();
  ASSERT_EQ(stops.size(), 2u);
  EXPECT_EQ(stops[0].reason, StopReason::gang);
  world.event(TaskExited{tasks[0].task, ExitCause::killed, 0, 0});
  EXPECT_FALSE(world.ended(gang));
  world.event(TaskExited{tasks[2].task, ExitCause::signalled, 0, 15});
  EXPECT_EQ(world.ended(gang), JobState::out_of_memory);
}

TEST(Health, ALostGpuStopsItsTasksAndRequeuesThoseThatAskedForIt) {
  World world;
  world.add_node(2);
  const JobId plain = world.submit({});
  const JobId again = world.submit({.requeue = true});
  world.run(plain);
  world.run(again);
  world.event(HealthChanged{GpuId(1), Health::lost, "fell off the bus"});
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>()[0].reason, StopReason::node_failed);
  world.event(TaskExited{{plain, 0, 1}, ExitCause::killed, 0, 9});
  EXPECT_EQ(world.ended(plain), JobState::node_failed);
  EXPECT_TRUE(world.scheduler.gpus()[0].tasks.empty()) << "nobody can see a lost GPU's memory";
  world.event(HealthChanged{GpuId(2), Health::lost, "fell off the bus"});
  world.event(TaskExited{{again, 0, 1}, ExitCause::killed, 0, 9});
  EXPECT_EQ(world.state(again), JobState::pending);
  EXPECT_EQ(world.view(again).attempt, 2u);
  world.event(HealthChanged{GpuId(2), Health::ok, ""});
  EXPECT_TRUE(world.started(again));
}

TEST(Health, DrainedAndFailedGpusTakeNothingNewAndDegradedOnesLast) {
  World world;
  world.add_node(4);
  world.event(GpuDrained{GpuId(1), "root", "fan"});
  world.event(HealthChanged{GpuId(2), Health::degraded, "hot"});
  world.event(HealthChanged{GpuId(3), Health::failed, "XID 79"});
  EXPECT_EQ(world.gpus_of(world.submit({})), std::vector<uint32_t>{4});
  EXPECT_EQ(world.gpus_of(world.submit({})), std::vector<uint32_t>{2});
  const JobId waiting = world.submit({});
  EXPECT_FALSE(world.started(waiting));
  world.event(GpuUndrained{GpuId(1), "root"});
  EXPECT_EQ(world.gpus_of(waiting), std::vector<uint32_t>{1});
}

}  // namespace
}  // namespace tranche::scheduler::test
