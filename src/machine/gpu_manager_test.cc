// Faults of GPUs in the whole daemon on virtual time: what is remembered, who comes back and how, who is let
// go.
#include "machine/gpu_manager.h"

#include "machine/daemon_fixture.h"
#include "machine/views.h"

namespace tranche::machine {
namespace {

constexpr uint64_t kPageFault = 31, kUncontained = 95;
constexpr Duration kReadings = 5 * kSecond;  // long enough for a few

class GpuManagerTest : public DaemonFixture {
 protected:
  std::string reason_of(JobId id) {
    const ViewSource source{engine(), daemon_->gpus(), users_, reactor_.clock()};
    return job_summary(source, *engine().jobs().find(id), Caller{2001, 2001, "user2001", false}, true)
        .reason.value_or("");
  }
  JobState state_of(JobId id) { return engine().jobs().find(id)->state; }
  bool is_let_go(uint32_t index) { return gpus_.status(index)->let_go; }
  // Asks to open a GPU, as undrain does; the error's sentence, "" if it went well, nullopt while it goes on.
  std::optional<std::string> open(uint32_t index) {
    const auto answer = std::make_shared<std::optional<std::string>>();
    daemon_->gpus().open(gpu(index).gpu->id, [this, index, answer](const Result<void>& opened) {
      *answer = opened ? "" : opened.error().message();
      if (!opened) return;
      engine().record(GpuUndrained{gpu(index).gpu->id, "root"});
      daemon_->gpus().absolve(gpu(index).gpu->id);
    });
    pass(kReadings);
    return *answer;
  }
};

TEST_F(GpuManagerTest, MemoryThatNobodyOwnsDrainsAnIdleGpuUntilItIsFree) {
  start_daemon();
  gpus_.set_ghost_memory(1, MiB(60'000));
  pass(kReadings);
  EXPECT_TRUE(gpu(1).drained);
  EXPECT_EQ(gpu(1).reason.find("held by nobody: 60000M is used and no process owns it"), 0u) << gpu(1).reason;
  EXPECT_FALSE(gpu(0).drained);
  stop_daemon();
  start_daemon();
  pass(kReadings);
  EXPECT_TRUE(gpu(1).drained);
  gpus_.set_ghost_memory(1, MiB());
  pass(kReadings);
  EXPECT_FALSE(gpu(1).drained) << "by whichever run it was drained";
  gpus_.set_ghost_memory(1, MiB(64));
  pass(kReadings);
  EXPECT_FALSE(gpu(1).drained) << "a driver's own";
}

TEST_F(GpuManagerTest, AnXidIsRememberedAndNamesTheEndOfItsJob) {
  start_daemon();
  behaviour_.run_time = 3 * kSecond;
  behaviour_.code = 1;
  const JobId failing = submit();
  pass(100 * kMillisecond);
  behaviour_.code = 0;
  const JobId other = submit();
  pass(900 * kMillisecond);
  gpus_.report_xid(0, kPageFault);
  pass(10 * kSecond);
  ASSERT_EQ(state_of(failing), JobState::failed);
  const std::string reason = reason_of(failing);
  EXPECT_NE(reason.find("XID 31 on GPU 0, an error of the program"), std::string::npos) << reason;
  EXPECT_NE(reason.find("2s before the end"), std::string::npos) << reason;
  EXPECT_EQ(state_of(other), JobState::completed);
  EXPECT_EQ(reason_of(other), "");
  EXPECT_EQ(gpu(0).health, Health::ok);
  stop_daemon();
  start_daemon();
  EXPECT_EQ(reason_of(failing), reason) << "a restart forgets nothing";
  ASSERT_EQ(engine().faults().of(gpu(0).gpu->id).size(), 1u);
  EXPECT_EQ(engine().faults().of(gpu(0).gpu->id)[0].jobs, std::vector<JobId>{failing});
}

TEST_F(GpuManagerTest, AStormOfOneErrorIsToldOnceAMinute) {
  start_daemon();
  behaviour_.run_time = kHour;
  submit();
  pass(kSecond);
  const uint64_t before = engine().last_seq().value();
  for (int i = 0; i < 1000; ++i) gpus_.report_xid(0, kPageFault);
  EXPECT_EQ(engine().last_seq().value() - before, 1u);
  pass(2 * kMinute);
  gpus_.report_xid(0, kPageFault);
  EXPECT_EQ(engine().faults().of(gpu(0).gpu->id).size(), 2u);
}

TEST_F(GpuManagerTest, AnOldErrorIsNotBlamed) {
  start_daemon();
  behaviour_.run_time = 10 * kMinute;
  behaviour_.code = 1;
  const JobId job = submit();
  pass(kSecond);
  gpus_.report_xid(0, kPageFault);
  pass(20 * kMinute);
  ASSERT_EQ(state_of(job), JobState::failed);
  EXPECT_EQ(reason_of(job), "");
}

TEST_F(GpuManagerTest, ALostGpuEndsItsJobAloneAndComesBackByItself) {
  start_daemon();
  behaviour_.run_time = kHour;
  const JobId first = submit(), second = submit();
  pass(kSecond);
  gpus_.report_xid(0, 79);
  pass(kMinute);
  EXPECT_EQ(gpu(0).health, Health::lost);
  EXPECT_EQ(state_of(first), JobState::node_failed);
  EXPECT_NE(reason_of(first).find("XID 79 on GPU 0, a fault of the GPU"), std::string::npos)
      << reason_of(first);
  EXPECT_EQ(state_of(second), JobState::running);
  gpus_.set_health(0, Health::ok, "");
  pass(kReadings);
  EXPECT_EQ(gpu(0).health, Health::ok);
  EXPECT_EQ(state_of(second), JobState::running);
}

TEST_F(GpuManagerTest, WhereAnOperatorDecidesNothingComesBackByItself) {
  config_.operator_recovery = true;
  start_daemon();
  gpus_.set_health(0, Health::lost, "it is off the bus");
  gpus_.set_health(1, Health::degraded, "hot");
  pass(kReadings);
  ASSERT_EQ(gpu(0).health, Health::lost);
  EXPECT_NE(gpu(0).reason.find("then `tranche gpus undrain` it"), std::string::npos) << gpu(0).reason;
  gpus_.set_health(0, Health::ok, "");
  gpus_.set_health(1, Health::ok, "");
  pass(kReadings);
  EXPECT_NE(gpu(0).health, Health::ok) << "well again, and closed";
  EXPECT_EQ(gpu(1).health, Health::ok) << "a slow one was never closed";
  stop_daemon();
  start_daemon("another boot");
  pass(kReadings);
  EXPECT_NE(gpu(0).health, Health::ok) << "also after a reboot";
  EXPECT_EQ(open(0), "");
  EXPECT_EQ(gpu(0).health, Health::ok);
}

TEST_F(GpuManagerTest, AGpuThatMustBeResetIsLetGoWhenNoTaskHoldsIt) {
  start_daemon();
  behaviour_.run_time = 20 * kSecond;
  const JobId job = submit();
  pass(kSecond);
  gpus_.report_xid(0, kUncontained);
  pass(kReadings);
  EXPECT_EQ(gpu(0).health, Health::failed);
  EXPECT_FALSE(is_let_go(0)) << "its task goes on, and the release of its memory must be seen";
  pass(kMinute);
  ASSERT_EQ(state_of(job), JobState::completed);
  EXPECT_TRUE(gpu(0).tasks.empty());
  EXPECT_TRUE(is_let_go(0));
  EXPECT_FALSE(is_let_go(1));
  EXPECT_EQ(gpu(0).health, Health::failed);
  EXPECT_EQ(open(0), "");
  EXPECT_FALSE(is_let_go(0));
  EXPECT_EQ(gpu(0).health, Health::ok);
}

TEST_F(GpuManagerTest, AnOperatorsDrainLetsGoAndTranchesOwnDoNot) {
  start_daemon();
  engine().record(GpuDrained{gpu(0).gpu->id, "root", "a new fan"});
  engine().record(GpuDrained{gpu(1).gpu->id, "tranche", std::string(kStrangerPrefix) + "process 7 of eve"});
  pass(kReadings);
  EXPECT_TRUE(is_let_go(0));
  EXPECT_FALSE(is_let_go(1)) << "it must be seen when they end";
  EXPECT_EQ(open(0), "");
  EXPECT_FALSE(gpu(0).drained);
  EXPECT_FALSE(is_let_go(0));
}

TEST_F(GpuManagerTest, AGpuThatDoesNotAnswerIsNotOpened) {
  start_daemon();
  engine().record(GpuDrained{gpu(0).gpu->id, "root", "a new fan"});
  pass(kReadings);
  ASSERT_TRUE(is_let_go(0));
  gpus_.set_hanging(0, true);
  EXPECT_EQ(open(0), std::nullopt) << "not yet";
  pass(kMinute);
  EXPECT_TRUE(gpu(0).drained);
}

TEST_F(GpuManagerTest, MigModeThatWasTurnedOnMeanwhileKeepsTheGpuClosed) {
  start_daemon();
  engine().record(GpuDrained{gpu(0).gpu->id, "root", "to be cut up"});
  pass(kReadings);
  gpus_.redescribe(0, [](DiscoveredGpu& gpu) { gpu.mig_enabled = true; });
  behaviour_.run_time = kHour;
  submit();
  const JobId waiting = submit();
  const auto answer = open(0);
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->find("MIG mode"), std::string::npos) << *answer;
  EXPECT_TRUE(gpu(0).tasks.empty());
  EXPECT_EQ(state_of(waiting), JobState::pending);
}

TEST_F(GpuManagerTest, MigModeThatWasTurnedOffAMomentAgoDoesNotKeepTheGpuClosed) {
  start_daemon();
  gpus_.redescribe(0, [](DiscoveredGpu& gpu) { gpu.mig_enabled = true; });
  pass(kReadings);
  ASSERT_TRUE(gpu(0).drained);
  gpus_.redescribe(0, [](DiscoveredGpu& gpu) { gpu.mig_enabled = false; });
  EXPECT_EQ(open(0), "") << "before the daemon has seen it";
  EXPECT_FALSE(gpu(0).drained);
}

class MigServerTest : public GpuManagerTest {
 protected:
  MigServerTest() {
    gpus_.redescribe(0, [](DiscoveredGpu& gpu) { gpu.mig_enabled = true; });
  }
};

TEST_F(MigServerTest, WhatWaitsDoesNotStartOnAGpuInMigModeNotEvenForAnInstant) {
  gpus_.set_inventory_error("the driver is being installed");
  start_daemon();
  behaviour_.run_time = kHour;
  const JobId first = submit(), second = submit();
  EXPECT_EQ(state_of(first), JobState::pending);
  gpus_.set_inventory_error(std::nullopt);
  pass(2 * kMinute);
  EXPECT_EQ(state_of(first), JobState::running);
  EXPECT_TRUE(gpu(0).drained);
  EXPECT_TRUE(gpu(0).tasks.empty());
  EXPECT_EQ(gpu(1).tasks.size(), 1u);
  EXPECT_EQ(state_of(second), JobState::pending);
  for (const auto& [task, times] : tasks_.executions()) EXPECT_EQ(task.job, first) << times;
}

TEST_F(MigServerTest, AStrangersEndDoesNotOpenIt) {
  start_daemon();
  ASSERT_TRUE(gpu(0).drained);
  engine().record(GpuDrained{gpu(0).gpu->id, "tranche", std::string(kStrangerPrefix) + "process 7 of eve"});
  behaviour_.run_time = kHour;
  submit();
  submit();
  pass(kMinute);
  EXPECT_TRUE(gpu(0).drained);
  EXPECT_TRUE(gpu(0).reason.starts_with(kMigPrefix)) << gpu(0).reason;
  EXPECT_TRUE(gpu(0).tasks.empty());
}

}  // namespace
}  // namespace tranche::machine
