// What people are told: refusals at the door, reasons for waiting, forecasts.
#include <gtest/gtest.h>

#include "scheduler/test_world.h"

namespace tranche::scheduler::test {
namespace {

std::string refusal(const World& world, const Request& request, ErrorCode code) {
  const auto result = world.scheduler.check(spec_of(request), {});
  EXPECT_FALSE(result.has_value());
  if (result) return {};
  EXPECT_EQ(to_string(result.error().code()), to_string(code));
  return result.error().message();
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Check, RefusesWhatCanNeverRunAndSaysWhatThereIs) {
  World world;
  world.add_node(4);
  EXPECT_TRUE(world.scheduler.check(spec_of({}), {}).has_value());
  EXPECT_CONTAINS(refusal(world, {.gpus = 9}, ErrorCode::never_fits), "there are 4 GPUs of type h100-80");
  EXPECT_CONTAINS(refusal(world, {.type = "a100"}, ErrorCode::never_fits), "installed types: h100-80");
  EXPECT_CONTAINS(refusal(world, {.milli = 1001}, ErrorCode::never_fits), "at most 1 GPU");
  EXPECT_CONTAINS(refusal(world, {.gpu_memory = 90'000}, ErrorCode::never_fits), "usable");
  EXPECT_CONTAINS(refusal(world, {.cpu = 65'000}, ErrorCode::never_fits), "65 CPUs");
  EXPECT_CONTAINS(refusal(world, {.memory = 600'000}, ErrorCode::never_fits), "of memory");
  EXPECT_CONTAINS(refusal(world, {.tasks_min = 5}, ErrorCode::never_fits), "at most 4 fit");
  EXPECT_CONTAINS(refusal(world, {.time_limit = kDay * 8}, ErrorCode::over_limit), "time limit");
  EXPECT_CONTAINS(
      refusal(world, {.dependencies = {{DependencyKind::after_ok, JobId(5)}}}, ErrorCode::not_found),
      "never submitted");
}

TEST(Check, NamesTheNearestQueues) {
  Policy policy;
  policy.queues = {{.path = "physics/theory",
                    .quota = {},
                    .limit = MilliGpu(2'000),
                    .weight = 1,
                    .priority = 0,
                    .user_limit = {}}};
  World world(policy);
  world.add_node(4);
  EXPECT_CONTAINS(refusal(world, {.queue = "physics/theori"}, ErrorCode::not_found), "'physics/theory'");
  EXPECT_CONTAINS(refusal(world, {.queue = "physics/theory", .gpus = 3}, ErrorCode::over_limit),
                  "may use 2 GPUs");
  EXPECT_TRUE(world.scheduler.check(spec_of({.queue = "physics/theory"}), {}).has_value());
}

TEST(Check, DrainedIsInstalledAndUsersHaveABoundOnLiveJobs) {
  Policy policy;
  policy.jobs_per_user_max = 2;
  World world(policy);
  world.add_node(1);
  world.event(GpuDrained{GpuId(1), "root", "fan"});
  EXPECT_TRUE(world.scheduler.check(spec_of({}), {}).has_value());
  world.submit({});
  world.submit({});
  EXPECT_CONTAINS(refusal(world, {}, ErrorCode::over_limit), "2 live jobs");
}

TEST(Why, NamesWhoIsInTheWayAndUntilWhen) {
  World world;
  world.add_node(4);
  for (int i = 0; i < 3; ++i) world.run(world.submit({.user = "bob"}));
  const JobId job = world.submit({.gpus = 2});
  const Explanation why = *world.scheduler.why(job);
  EXPECT_EQ(why.proof.kind, ProofKind::busy);
  EXPECT_EQ(why.proof.needed, 2);
  EXPECT_EQ(why.proof.available, 1);
  EXPECT_EQ(why.proof.blockers.size(), 3u);
  EXPECT_CONTAINS(why.reason, "Waits for 2 GPUs: 1 of 4 is free; job 1 of bob ends by ");
  EXPECT_EQ(why.forecast.position, 1u);
  EXPECT_TRUE(why.forecast.known);
  EXPECT_EQ(world.scheduler.why(JobId(99)).error().code(), ErrorCode::not_found);
}

TEST(Why, KnowsTheOtherReasons) {
  World world;
  world.add_node(1);
  const JobId running = world.submit({});
  const auto kind = [&](JobId job) { return world.scheduler.proof(job)->kind; };
  EXPECT_EQ(kind(running), ProofKind::none);
  EXPECT_EQ(kind(world.submit({.held = true})), ProofKind::held);
  EXPECT_EQ(kind(world.submit({.begin = world.now() + kHour})), ProofKind::held);
  const JobId dependent = world.submit({.dependencies = {{DependencyKind::after_ok, running}}});
  EXPECT_EQ(kind(dependent), ProofKind::dependency);
  EXPECT_CONTAINS(world.scheduler.why(dependent)->reason, "Waits for job 1 of alice.");
  const JobId waiting = world.submit({});
  world.event(GpuDrained{GpuId(1), "root", "fan broken"});
  EXPECT_EQ(kind(waiting), ProofKind::drained);
  EXPECT_CONTAINS(world.scheduler.why(waiting)->reason, "GPU 0 (fan broken) takes no new work");
  world.event(HealthChanged{GpuId(1), Health::lost, "fell off the bus"});
  EXPECT_EQ(kind(waiting), ProofKind::never_fits);
}

TEST(Forecast, OfAJobNotSubmittedChangesNothing) {
  World world;
  world.add_node(1);
  const JobId running = world.submit({});
  world.run(running);
  const uint64_t before = world.scheduler.state_hash();
  const Forecast forecast = world.scheduler.forecast(spec_of({.user = "bob"}));
  EXPECT_TRUE(forecast.known);
  EXPECT_GE(forecast.start, world.view(running).started + kHour);
  EXPECT_EQ(forecast.position, 1u);
  EXPECT_EQ(world.scheduler.state_hash(), before);
}

}  // namespace
}  // namespace tranche::scheduler::test
