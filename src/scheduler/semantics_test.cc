// What a policy and a job may say about who goes where and who gives way: units of shares, quotas of
// processors, strategies, delays and graces, parts of jobs, elastic jobs, topology, moves.
#include <gtest/gtest.h>

#include "scheduler/fairness.h"
#include "scheduler/test_world.h"

namespace tranche::scheduler::test {
namespace {

Policy quiet() {
  Policy policy;
  policy.usage_half_life = Duration();
  policy.minimum_runtime = Duration();
  return policy;
}

QueuePolicy queue(const std::string& path, int64_t quota = -1, int64_t weight = 1) {
  QueuePolicy made;
  made.path = path;
  if (quota >= 0) made.quota = MilliGpu(quota);
  made.weight = weight;
  return made;
}

JobId submit(World& world, const JobSpec& spec, uint64_t id) {
  world.event(JobSubmitted{JobId(id), spec, {}});
  return JobId(id);
}

// Whoever was told to stop goes, and its memory is seen to be free.
void leave(World& world) {
  for (const Stop& stop : world.last<Stop>()) {
    std::vector<Slice> slices;
    for (const Start& start : world.view(stop.task.job).tasks)
      if (start.task == stop.task) slices = start.slices;
    world.event(TaskExited{stop.task, ExitCause::killed, 0, 15});
    for (const Slice& slice : slices) world.event(SliceReleased{stop.task, slice.gpu}, kNanosecond);
  }
}

std::vector<uint32_t> nodes_of(const World& world, JobId job) {
  std::vector<uint32_t> nodes;
  for (const Start& start : world.view(job).tasks) nodes.push_back(start.node.value());
  return nodes;
}

TEST(ShareUnit, RoundsDownThenByLargestRemainder) {
  std::vector<Claimant> claimants(2);
  claimants[0].need = claimants[1].need = 8'000;
  claimants[1].weight = 4;
  fill_by_units(claimants, 7'000, 1'000);
  EXPECT_EQ(claimants[0].share, 1'000);
  EXPECT_EQ(claimants[1].share, 5'000);
  EXPECT_EQ(fill_the_rest(claimants, 1'000, 1'000), 0);
  EXPECT_EQ(claimants[1].share, 6'000);
}

TEST(ShareUnit, SatisfiesWhoeverNeedsLessThanAUnit) {
  std::vector<Claimant> claimants(2);
  claimants[0].need = 500;
  claimants[1].need = 4'000;
  fill_by_units(claimants, 3'000, 1'000);
  EXPECT_EQ(claimants[0].share, 500);
  EXPECT_EQ(claimants[1].share, 2'000);
  EXPECT_EQ(fill_the_rest(claimants, 500, 1'000), 0);
  EXPECT_EQ(claimants[1].share, 2'500);
}

TEST(Weight, ZeroGetsNothingOfTheSurplus) {
  Policy policy = quiet();
  policy.queues = {queue("a", 1'000, 0), queue("b", 1'000, 1)};
  World world(policy);
  world.add_node(4);
  for (int i = 0; i < 4; ++i) {
    world.submit({.user = "alice", .queue = "a"});
    world.submit({.user = "bob", .queue = "b"});
  }
  for (const QueueShare& share : world.scheduler.shares()) {
    const int64_t expected = share.path == "a" ? 1'000 : 3'000;
    if (share.path.size() == 1) {
      EXPECT_EQ(share.fair_share, MilliGpu(expected)) << share.path;
    }
  }
}

TEST(QueuePriority, OrdersQueuesThatAreBothWithinTheirQuotas) {
  Policy policy = quiet();
  policy.queues = {queue("a", 1'000), queue("b", 1'000)};
  policy.queues[1].priority = 1;
  World world(policy);
  world.add_node(1);
  const JobId running = world.submit({.user = "eve", .queue = "default", .preemptible = false});
  world.run(running);
  const JobId first = world.submit({.user = "alice", .queue = "a", .preemptible = false});
  const JobId second = world.submit({.user = "bob", .queue = "b", .preemptible = false});
  EXPECT_EQ(world.scheduler.waiting_order().back(), first);
  EXPECT_EQ(world.scheduler.waiting_order().size(), 2u);
  static_cast<void>(second);
}

TEST(HostLimit, HoldsAndSaysSo) {
  Policy policy = quiet();
  policy.queues = {queue("a")};
  policy.queues[0].limit_cpu = MilliCpu(4'000);
  World world(policy);
  world.add_node(1);
  const JobId first = world.submit({.user = "alice", .queue = "a", .gpus = 0, .cpu = 3'000});
  const JobId second = world.submit({.user = "alice", .queue = "a", .gpus = 0, .cpu = 2'000});
  EXPECT_TRUE(world.started(first));
  EXPECT_FALSE(world.started(second));
  const auto why = world.scheduler.why(second);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->proof.kind, ProofKind::limit);
  EXPECT_EQ(why->proof.resource, BoundResource::cpu);
  EXPECT_NE(why->reason.find("3 CPUs of its limit of 4 CPUs"), std::string::npos) << why->reason;
  world.run(first);
  world.finish(first);
  EXPECT_TRUE(world.started(second));
}

TEST(HostQuota, AJobWithoutGpusTakesMemoryBack) {
  Policy policy = quiet();
  policy.queues = {queue("a", 0), queue("b", 1'000)};
  policy.queues[0].quota_memory = MiB(0);
  World world(policy);
  world.add_node(1, "h100-80", 80'000, 64'000, 100);
  const JobId over = world.submit({.user = "alice", .queue = "a", .gpus = 0, .memory = 100});
  world.run(over);
  world.submit({.user = "bob", .queue = "b", .gpus = 0, .memory = 50});
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>().front().task.job, over);
}

TEST(Placement, SpreadsWhenThePolicySaysSo) {
  for (const bool spread : {false, true}) {
    Policy policy = quiet();
    if (spread) policy.placement = PlacementStrategy::spread;
    World world(policy);
    world.add_node(2);
    world.add_node(2);
    const JobId first = world.submit({});
    const JobId second = world.submit({});
    EXPECT_EQ(nodes_of(world, first) == nodes_of(world, second), !spread);
  }
}

TEST(Placement, SpreadsFractionsOverTheGpusOfANode) {
  Policy policy = quiet();
  policy.gpu_placement = PlacementStrategy::spread;
  World world(policy);
  world.add_node(2);
  const JobId first = world.submit({.milli = 300});
  const JobId second = world.submit({.milli = 300});
  EXPECT_NE(world.gpus_of(first), world.gpus_of(second));
}

TEST(HeadReservation, OffLetsLaterJobsPass) {
  for (const bool reserves : {true, false}) {
    Policy policy = quiet();
    policy.no_head_reservation = !reserves;
    World world(policy);
    world.add_node(2);
    world.run(world.submit({}));
    world.submit({.gpus = 2});
    const JobId later = world.submit({.time_limit = 2 * kHour});
    EXPECT_EQ(world.started(later), !reserves);
  }
}

TEST(PreemptionDelay, TakesNothingBeforeAndAllAfter) {
  World world(quiet());
  world.add_node(1);
  world.run(world.submit({}));
  Request request{.priority = 10};
  JobSpec spec = spec_of(request);
  spec.preemption_delay = kMinute;
  submit(world, spec, 2);
  EXPECT_TRUE(world.last<Stop>().empty());
  ASSERT_EQ(world.last<WakeAt>().size(), 1u);
  world.tick_at(world.last<WakeAt>().front().time);
  EXPECT_EQ(world.last<Stop>().size(), 1u);
}

// Nobody would be looked at when the timer rings, and after a restart nobody would know of it.
TEST(PreemptionDelay, SetsNoTimerWhereNobodyHasToGive) {
  World world(quiet());
  world.add_node(2);
  world.run(world.submit({.user = "bob", .queue = "bio", .gpus = 2, .preemptible = false}));
  JobSpec spec = spec_of({});
  spec.preemption_delay = kMinute;
  submit(world, spec, 2);
  EXPECT_FALSE(world.started(JobId(2)));
  EXPECT_TRUE(world.last<WakeAt>().empty());
}

TEST(GangGrace, OthersGoOnForThatLong) {
  for (const int64_t seconds : {0, 60}) {
    World world(quiet());
    world.add_node(2);
    JobSpec spec = spec_of({.tasks_min = 2});
    spec.gang_grace = Duration(seconds * kSecond.count());
    const JobId job = submit(world, spec, 1);
    world.run(job);
    const TaskKey first = world.view(job).tasks[0].task;
    world.event(TaskExited{first, ExitCause::exited, 1, 0});
    EXPECT_EQ(world.last<Stop>().size(), seconds == 0 ? 1u : 0u);
    if (seconds == 0) continue;
    ASSERT_EQ(world.last<WakeAt>().size(), 1u);
    world.tick_at(world.last<WakeAt>().front().time);
    ASSERT_EQ(world.last<Stop>().size(), 1u);
    EXPECT_EQ(world.last<Stop>().front().reason, StopReason::gang);
  }
}

TEST(Elastic, StartsSmallGrowsAndGivesBackTheLastTask) {
  Policy policy = quiet();
  policy.queues = {queue("a", 1'000), queue("b", 1'000)};
  World world(policy);
  world.add_node(2);
  JobSpec spec = spec_of({.user = "alice", .queue = "a", .tasks_min = 1, .tasks_max = 3});
  spec.elastic = true;
  const JobId elastic = submit(world, spec, 1);
  EXPECT_EQ(world.view(elastic).tasks.size(), 2u);
  world.run(elastic);
  EXPECT_TRUE(world.scheduler.waiting_order().empty());  // it would grow, and does not wait
  const JobId other = submit(world, spec_of({.user = "bob", .queue = "b"}), 2);
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>().front().task.rank, 1u);
  EXPECT_EQ(world.state(elastic), JobState::running);
  leave(world);
  EXPECT_TRUE(world.started(other));
  EXPECT_EQ(world.view(elastic).tasks.size(), 1u);
  world.run(other);
  world.finish(other);
  // The rank comes back as another attempt of its task.
  ASSERT_EQ(world.view(elastic).tasks.size(), 2u);
  EXPECT_EQ(world.view(elastic).tasks[1].task.rank, 1u);
  EXPECT_EQ(world.view(elastic).tasks[1].task.attempt, 2u);
}

TEST(Elastic, GivesItsQueueWhatItCanLiveWithout) {
  World world(quiet());
  world.add_node(3);
  JobSpec spec = spec_of({.tasks_min = 1, .tasks_max = 3});
  spec.elastic = true;
  const JobId elastic = submit(world, spec, 1);
  world.run(elastic);
  ASSERT_EQ(world.view(elastic).tasks.size(), 3u);
  // Equal priority is enough, for one that lacks what it needs.
  const JobId second = submit(world, spec_of({}), 2);
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>().front().reason, StopReason::preempted);
  EXPECT_EQ(world.last<Stop>().front().task.rank, 2u);
  leave(world);
  EXPECT_TRUE(world.started(second));
  world.run(second);
  // Another elastic one gets its least, and then neither takes from the other.
  const JobId third = submit(world, spec, 3);
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>().front().task, (TaskKey{elastic, 1, 1}));
  leave(world);
  EXPECT_EQ(world.view(third).tasks.size(), 1u);
  world.run(third);
  EXPECT_TRUE(world.last<Stop>().empty());
  // What is left is all that it needs: nobody of its own priority gets that.
  submit(world, spec_of({}), 4);
  EXPECT_TRUE(world.last<Stop>().empty());
  Request lower{.priority = -1};
  submit(world, spec_of(lower), 5);
  EXPECT_TRUE(world.last<Stop>().empty());
}

TEST(Elastic, RestoresAsItWasDecided) {
  Policy policy = quiet();
  policy.queues = {queue("a", 1'000), queue("b", 1'000)};
  World world(policy);
  world.add_node(3);
  JobSpec spec = spec_of({.user = "alice", .queue = "a", .tasks_min = 1, .tasks_max = 3});
  spec.elastic = true;
  const JobId elastic = submit(world, spec, 1);
  world.run(elastic);
  submit(world, spec_of({.user = "bob", .queue = "b"}), 2);
  leave(world);
  Scheduler restored;
  for (const auto& [event, decisions] : world.log) restored.restore(event, decisions);
  EXPECT_EQ(restored.state_hash(), world.scheduler.state_hash());
}

TEST(Parts, EachHasItsOwnMinimumAndRequest) {
  World world(quiet());
  world.add_node(4);
  JobSpec spec = spec_of({});
  TaskGroup small;
  small.tasks_min = small.tasks_max = 2;
  small.task.gpu.count = 1;
  TaskGroup large = small;
  large.tasks_min = large.tasks_max = 1;
  large.task.gpu.count = 2;
  spec.groups = {small, large};
  spec.tasks_min = spec.tasks_max = 3;
  ASSERT_TRUE(world.scheduler.check(spec, {}));
  const JobId job = submit(world, spec, 1);
  ASSERT_EQ(world.view(job).tasks.size(), 3u);
  EXPECT_EQ(world.view(job).tasks[2].slices.size(), 2u);
  // Together they need five GPUs, and there are four.
  spec.groups[1].task.gpu.count = 3;
  const auto refused = world.scheduler.check(spec, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::never_fits);
}

// Two racks of two nodes with two GPUs each.
void add_racks(World& world) {
  for (uint32_t n = 1; n <= 4; ++n) {
    world.event(NodeAdded{Node{.id = NodeId(n),
                               .name = "n" + std::to_string(n),
                               .pool = "",
                               .cpu = MilliCpu(64'000),
                               .memory = MiB(512'000),
                               .labels = {{"rack", n <= 2 ? "r1" : "r2"}}}});
    for (uint32_t i = 0; i < 2; ++i) {
      Gpu gpu;
      gpu.id = GpuId(2 * n + i);
      gpu.node = NodeId(n);
      gpu.index = i;
      gpu.type = "t4";
      gpu.memory_usable = MiB(16'000);
      world.event(GpuAdded{gpu});
    }
  }
}

TEST(Topology, RequiredKeepsAGangInOneDomainOrWaiting) {
  Policy policy = quiet();
  policy.topology_levels = {"rack"};
  policy.no_head_reservation = true;
  World world(policy);
  add_racks(world);
  submit(world, spec_of({}), 1);
  JobSpec spec = spec_of({.tasks_min = 4});
  spec.topology.required = "rack";
  const JobId gang = submit(world, spec, 2);
  EXPECT_EQ(nodes_of(world, gang), (std::vector<uint32_t>{3, 3, 4, 4}));
  const JobId second = submit(world, spec, 3);
  EXPECT_FALSE(world.started(second));
  spec.topology = {"", "rack"};
  spec.tasks_min = spec.tasks_max = 3;
  const JobId content = submit(world, spec, 4);
  EXPECT_EQ(nodes_of(world, content).size(), 3u);
}

TEST(Topology, WhatIsPreferredGivesWay) {
  World world(quiet());
  add_racks(world);
  JobSpec spec = spec_of({.tasks_min = 5});
  spec.topology.preferred = "rack";
  EXPECT_EQ(world.view(submit(world, spec, 1)).tasks.size(), 5u);
  spec.topology = {"rack", ""};
  EXPECT_FALSE(world.scheduler.check(spec, {}));  // no rack has five GPUs
}

TEST(AllowedNodes, AreTheOnlyOnes) {
  World world(quiet());
  add_racks(world);
  JobSpec spec = spec_of({});
  spec.nodes = {"n3"};
  EXPECT_EQ(nodes_of(world, submit(world, spec, 1)), (std::vector<uint32_t>{3}));
  EXPECT_EQ(nodes_of(world, submit(world, spec, 2)), (std::vector<uint32_t>{3}));
  EXPECT_FALSE(world.started(submit(world, spec, 3)));
  spec.nodes = {"elsewhere"};
  EXPECT_FALSE(world.scheduler.check(spec, {}));
}

TEST(Consolidation, MovesOneJobSoThatAnotherFits) {
  for (const uint32_t moves : {0u, 1u}) {
    Policy policy = quiet();
    policy.placement = PlacementStrategy::spread;
    policy.consolidation_moves = moves;
    World world(policy);
    world.add_node(2);
    world.add_node(2);
    const JobId stays = world.submit({});
    const JobId moved = world.submit({});
    world.run(stays);
    world.run(moved);
    const JobId large = world.submit({.gpus = 2});
    ASSERT_EQ(world.last<Stop>().size(), moves);
    if (moves == 0) continue;
    EXPECT_EQ(world.last<Stop>().front().reason, StopReason::consolidated);
    EXPECT_EQ(world.last<Stop>().front().task.job, moved);
    leave(world);
    EXPECT_TRUE(world.started(large));
    EXPECT_TRUE(world.started(moved));
    EXPECT_EQ(nodes_of(world, moved), nodes_of(world, stays));
  }
}

TEST(Consolidation, LeavesAloneWhatCouldNotBePlacedAgain) {
  Policy policy = quiet();
  policy.placement = PlacementStrategy::spread;
  policy.consolidation_moves = 10;
  World world(policy);
  world.add_node(3);
  world.add_node(3);
  world.run(world.submit({.gpus = 2}));
  world.run(world.submit({.gpus = 2}));
  world.submit({.gpus = 2});
  EXPECT_TRUE(world.last<Stop>().empty());
}

TEST(ShortestFirst, OrdersThoseWhoPassAndNobodyElse) {
  for (const bool shortest : {false, true}) {
    Policy policy = quiet();
    if (shortest) policy.backfill_order = BackfillOrder::shortest;
    World world(policy);
    world.add_node(2);
    uint64_t last = 0;
    // Users of one queue.
    const auto submit_for = [&](const std::string& user, uint32_t gpus, Duration limit) {
      JobSpec spec = spec_of({.user = user, .gpus = gpus, .time_limit = limit});
      spec.queue = "default/all";
      return submit(world, spec, ++last);
    };
    // What each user's jobs have taken so far.
    for (int i = 0; i < 4; ++i) {
      const JobId job = submit_for(i < 2 ? "slow" : "quick", 1, kHour);
      world.run(job);
      world.tick_at(world.now() + (i < 2 ? 50 : 1) * kMinute);
      world.finish(job);
    }
    world.run(submit_for("other", 1, kHour));
    const JobId running = submit_for("other", 1, 30 * kMinute);
    world.run(running);
    const JobId head = submit_for("other", 2, kHour);
    const JobId slow = submit_for("slow", 1, 20 * kMinute);
    const JobId quick = submit_for("quick", 1, 20 * kMinute);
    world.finish(running);
    EXPECT_FALSE(world.started(head));
    EXPECT_EQ(world.started(quick), shortest);
    EXPECT_EQ(world.started(slow), !shortest);
  }
}

// Whoever came first takes first, whether it is known to find no room or, as after a restart, has to be
// tried.
TEST(ShortestFirst, TheFirstOfTheQueueTakesFirst) {
  Policy policy = quiet();
  policy.backfill_order = BackfillOrder::shortest;
  policy.minimum_runtime = 10 * kMinute;
  World world(policy);
  world.add_node(2);
  const auto submit_for = [&](const std::string& user, uint64_t id) {
    JobSpec spec = spec_of({.user = user});
    spec.queue = "default/all";
    return submit(world, spec, id);
  };
  // What each user's jobs have taken so far.
  for (uint64_t id = 1; id <= 4; ++id) {
    const JobId job = submit_for(id <= 2 ? "slow" : "quick", id);
    world.run(job);
    world.tick_at(world.now() + (id <= 2 ? 50 : 1) * kMinute);
    world.finish(job);
  }
  JobSpec other = spec_of({.user = "bob", .queue = "bio"});
  for (const uint64_t id : {5u, 6u}) world.run(submit(world, other, id));
  const JobId slow = submit_for("slow", 7);
  const JobId quick = submit_for("quick", 8);
  EXPECT_FALSE(world.started(slow) || world.started(quick));
  Scheduler restarted;
  for (const auto& [event, decisions] : world.log) restarted.restore(event, decisions);
  world.tick_at(world.now() + 15 * kMinute);
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>().front().beneficiary, slow);
  EXPECT_EQ(restarted.step(world.log.back().first), world.log.back().second);
}

TEST(OnlyAction, ReclaimStartsNobodyThatNeedsNoVictim) {
  Policy policy = quiet();
  policy.only_action = SchedulerAction::reclaim;
  World world(policy);
  world.add_node(1);
  EXPECT_FALSE(world.started(world.submit({})));
}

}  // namespace
}  // namespace tranche::scheduler::test
