#include "gpu/simulated_host.h"

#include <gtest/gtest.h>

#include "base/manual_reactor.h"

namespace tranche {
namespace {

class SimulatedHostTest : public testing::Test {
 protected:
  void advance(Duration by) { reactor.run_until(reactor.clock().since_boot() + by); }

  Result<GpuReading> check(uint32_t index) {
    std::optional<Result<GpuReading>> answer;
    host.check_now(index, [&](Result<GpuReading> reading) { answer.emplace(std::move(reading)); });
    EXPECT_FALSE(answer.has_value()) << "the callback came from inside the call";
    advance(10 * kSecond);
    if (!answer) return fail(ErrorCode::internal, "no answer at all");
    return std::move(*answer);
  }

  ManualReactor reactor{Time(1'000'000'000'000)};
  SimulatedHost host{reactor, SimulatedHost::board("h100-80", 4)};
};

TEST_F(SimulatedHostTest, DiscoversTheBoardsItWasGiven) {
  std::optional<Result<GpuInventory>> answer;
  host.discover([&](Result<GpuInventory> inventory) { answer.emplace(std::move(inventory)); });
  EXPECT_FALSE(answer.has_value());
  advance(kSecond);
  ASSERT_TRUE(answer.has_value() && answer->has_value());
  ASSERT_EQ((*answer)->gpus.size(), 4u);
  const DiscoveredGpu& last = (*answer)->gpus.back();
  EXPECT_EQ(last.index, 3u);
  EXPECT_EQ(last.type, "h100-80");
  EXPECT_EQ(last.memory_usable, MiB(81559 - 561));
  ASSERT_EQ(last.links.size(), 3u);
  EXPECT_EQ(last.links[0], (PeerLink{0, LinkKind::nvlink}));
}

TEST_F(SimulatedHostTest, ShowsWhatProcessesHoldAndWhatTheyLeave) {
  host.add_process(1, {.pid = 42, .start_ticks = 7, .uid = 1000, .user = "ada", .memory = MiB(500)});
  Result<GpuReading> reading = check(1);
  ASSERT_TRUE(reading.has_value());
  EXPECT_EQ(reading->memory_used, MiB(500));
  ASSERT_EQ(reading->processes->size(), 1u);
  EXPECT_EQ(reading->processes->front().user, "ada");

  host.remove_process(1, 42);
  host.set_ghost_memory(1, MiB(300));
  reading = check(1);
  ASSERT_TRUE(reading.has_value());
  EXPECT_TRUE(reading->processes->empty());
  EXPECT_EQ(reading->memory_used, MiB(300));
}

TEST_F(SimulatedHostTest, UnknownIsNotZero) {
  EXPECT_FALSE(host.status(0)->reading.has_value());
  host.set_process_list_known(0, false);
  host.set_memory_known(0, false);
  const Result<GpuReading> reading = check(0);
  ASSERT_TRUE(reading.has_value());
  EXPECT_FALSE(reading->processes.has_value());
  EXPECT_FALSE(reading->memory_used.has_value());
  EXPECT_EQ(host.status(9), nullptr);
  EXPECT_EQ(check(9).error().code(), ErrorCode::not_found);
}

TEST_F(SimulatedHostTest, AGpuThatHangsAgesAndFailsWhileOthersAnswer) {
  std::vector<std::string> edges;
  host.on_health([&](uint32_t index, Health health, const std::string&) {
    edges.push_back(std::to_string(index) + " " + std::string(to_string(health)));
  });
  host.discover([](Result<GpuInventory>) {});
  advance(3 * kSecond);
  host.set_hanging(2, true);
  const Duration stopped = reactor.clock().since_boot();
  EXPECT_EQ(check(2).error().code(), ErrorCode::timed_out);
  EXPECT_LE(host.status(2)->reading->taken_at, stopped);
  EXPECT_GT(host.status(1)->reading->taken_at, stopped);
  EXPECT_EQ(edges, std::vector<std::string>{"2 failed"});
  host.set_hanging(2, false);
  advance(2 * kSecond);
  EXPECT_EQ(edges, (std::vector<std::string>{"2 failed", "2 ok"}));
}

TEST_F(SimulatedHostTest, ASilentDriverBlamesNoGpu) {
  host.discover([](Result<GpuInventory>) {});
  advance(2 * kSecond);
  host.set_all_hanging(true);
  advance(kMinute);
  EXPECT_FALSE(host.source().answering);
  EXPECT_EQ(host.status(0)->health, Health::ok);
  EXPECT_LT(host.status(0)->reading->taken_at, reactor.clock().since_boot() - 30 * kSecond);
}

TEST_F(SimulatedHostTest, ALostGpuAnswersAtOnceThatItIsLost) {
  host.set_health(3, Health::lost, "it has fallen off the bus");
  advance(kMillisecond);
  EXPECT_EQ(host.status(3)->health, Health::lost);
  EXPECT_EQ(check(3).error().code(), ErrorCode::unavailable);
}

}  // namespace
}  // namespace tranche
