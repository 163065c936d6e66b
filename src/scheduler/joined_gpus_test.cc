// GPUs that have to be joined, and jobs that take as many GPUs as there are.
#include "scheduler/joined_gpus.h"

#include <gtest/gtest.h>

#include "scheduler/test_world.h"

namespace tranche::scheduler::test {
namespace {

// Four GPUs: NVLink between 1 and 2 and between 3 and 4, NUMA nodes {1, 3} and {2, 4}.
void add_pairs(World& world) {
  world.event(NodeAdded{Node{.id = NodeId(1),
                             .name = "n1",
                             .pool = "",
                             .cpu = MilliCpu(64'000),
                             .memory = MiB(512'000),
                             .labels = {}}});
  for (uint32_t id = 1; id <= 4; ++id) {
    Gpu gpu;
    gpu.id = GpuId(id);
    gpu.node = NodeId(1);
    gpu.index = id - 1;
    gpu.type = "a6000";
    gpu.memory_usable = MiB(48'000);
    gpu.numa_node = id % 2 == 1 ? 0 : 1;
    const uint32_t peer = id % 2 == 1 ? id + 1 : id - 1;
    gpu.links = {{GpuId(peer), LinkKind::nvlink}};
    world.event(GpuAdded{gpu});
  }
}

JobSpec joined_request(uint32_t gpus, GpuTopology topology) {
  JobSpec spec = spec_of({.gpus = gpus});
  spec.task.gpu.topology = topology;
  return spec;
}

JobId submit_as(World& world, const JobSpec& spec, uint64_t id) {
  world.event(JobSubmitted{JobId(id), spec, {}});
  return JobId(id);
}

using Gpus = std::vector<uint32_t>;

TEST(JoinedGpus, AreWaitedForWhereTheyAreRequired) {
  World world;
  add_pairs(world);
  const JobId first = submit_as(world, spec_of({}), 1);
  const JobId second = submit_as(world, joined_request(2, GpuTopology::nvlink), 2);
  EXPECT_EQ(world.gpus_of(first), Gpus{1});
  EXPECT_EQ(world.gpus_of(second), (Gpus{3, 4}));
  world.run(first);
  world.run(second);
  world.finish(second);
  const JobId across = submit_as(world, joined_request(2, GpuTopology::numa_node), 3);
  EXPECT_EQ(world.gpus_of(across), (Gpus{2, 4}));
  const JobId waiting = submit_as(world, joined_request(2, GpuTopology::nvlink), 4);
  EXPECT_FALSE(world.started(waiting));
  EXPECT_NE(world.scheduler.why(waiting)->reason.find("2 GPUs joined by NVLink"), std::string::npos)
      << world.scheduler.why(waiting)->reason;
  world.finish(first);
  EXPECT_EQ(world.gpus_of(waiting), Gpus{}) << "1 is free, and 2 is not";
}

TEST(JoinedGpus, ThatNoMachineHasAreRefused) {
  World world;
  add_pairs(world);
  EXPECT_TRUE(world.scheduler.check(joined_request(2, GpuTopology::nvlink), {}));
  const auto refused = world.scheduler.check(joined_request(3, GpuTopology::nvlink), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::never_fits);
  EXPECT_NE(refused.error().message().find("NVLink"), std::string::npos) << refused.error().message();
  EXPECT_FALSE(world.scheduler.check(joined_request(3, GpuTopology::numa_node), {}));
  EXPECT_TRUE(world.scheduler.check(joined_request(3, GpuTopology::any), {}));
}

TEST(JoinedGpus, ArePreferredAnywayAndDoNotHaveToBe) {
  World world;
  add_pairs(world);
  submit_as(world, spec_of({}), 1);
  EXPECT_EQ(world.gpus_of(submit_as(world, spec_of({.gpus = 2}), 2)), (Gpus{3, 4}));
  World other;
  add_pairs(other);
  EXPECT_EQ(other.gpus_of(submit_as(other, spec_of({.gpus = 3}), 1)), (Gpus{1, 2, 3}));
}

TEST(JoinedGpus, AThrottledOneIsTakenWhereNoOtherSetIs) {
  World world;
  add_pairs(world);
  world.event(HealthChanged{GpuId(1), Health::degraded, "hot"});
  submit_as(world, joined_request(1, GpuTopology::any), 1);  // takes 2
  EXPECT_EQ(world.gpus_of(JobId(1)), Gpus{2});
  EXPECT_EQ(world.gpus_of(submit_as(world, joined_request(2, GpuTopology::numa_node), 2)), (Gpus{1, 3}));
}

TEST(JoinedGpus, VictimsAreThoseThatFreeASet) {
  Policy policy;
  policy.minimum_runtime = Duration();
  World world(policy);
  add_pairs(world);
  for (uint64_t id = 1; id <= 4; ++id) world.run(submit_as(world, spec_of({}), id));
  JobSpec urgent = joined_request(2, GpuTopology::nvlink);
  urgent.priority = 10;
  submit_as(world, urgent, 5);
  std::vector<uint64_t> stopped;
  for (const Stop& stop : world.last<Stop>()) stopped.push_back(stop.task.job.value());
  std::sort(stopped.begin(), stopped.end());
  EXPECT_EQ(stopped, (std::vector<uint64_t>{3, 4}));
}

JobSpec moldable(uint32_t least, uint32_t most) {
  JobSpec spec = spec_of({.gpus = least});
  spec.task.gpu.count_max = most;
  return spec;
}

TEST(Moldable, TakesWhatIsFreeWhenItStarts) {
  World world;
  world.add_node(4);
  world.run(submit_as(world, spec_of({}), 1));
  const JobId job = submit_as(world, moldable(1, 4), 2);
  EXPECT_EQ(world.gpus_of(job).size(), 3u);
  world.run(job);
  EXPECT_EQ(world.scheduler.why(job)->reason,
            "Runs with 3 of 1 to 4 GPUs, as many as there was room for when it started.");
  for (const QueueShare& share : world.scheduler.shares()) {
    if (share.path == "default") {
      EXPECT_EQ(share.used, MilliGpu(4'000));
    }
  }
  const JobId next = submit_as(world, moldable(2, 4), 3);
  EXPECT_FALSE(world.started(next));
  world.finish(job);
  EXPECT_EQ(world.gpus_of(next).size(), 2u) << "as soon as it has what it needs it does not wait for more";
}

TEST(Moldable, StaysWithinTheLimitOfItsQueue) {
  Policy policy;
  QueuePolicy queue;
  queue.path = "a";
  queue.limit = MilliGpu(2'000);
  policy.queues = {queue};
  World world(policy);
  world.add_node(4);
  JobSpec spec = moldable(1, 4);
  spec.queue = "a/alice";
  EXPECT_EQ(world.gpus_of(submit_as(world, spec, 1)).size(), 2u);
}

TEST(Moldable, RestoresAsItWasDecided) {
  World world;
  world.add_node(4);
  submit_as(world, moldable(1, 3), 1);
  submit_as(world, moldable(1, 3), 2);
  Scheduler restored;
  for (const auto& [event, decisions] : world.log) restored.restore(event, decisions);
  EXPECT_EQ(restored.state_hash(), world.scheduler.state_hash());
}

}  // namespace
}  // namespace tranche::scheduler::test
