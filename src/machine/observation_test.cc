// The mode that only looks: whose the GPU time is, what is refused, and that nothing is touched.
#include "machine/observation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "linux/process_identity.h"
#include "machine/daemon_fixture.h"

namespace tranche::machine {
namespace {

constexpr uint32_t kAda = 2001;
constexpr uint32_t kBob = 2002;

class ObservationTest : public DaemonFixture {
 protected:
  ObservationTest() {
    config_.mode = DaemonMode::observe;
    config_.sample_interval = 10 * kSecond;
  }

  // On the list of the GPU's processes; it exists, as this test does.
  void use(uint32_t gpu, uint32_t uid, pid_t pid = ::getpid()) {
    GpuProcess process;
    process.pid = pid;
    if (const auto ticks = process_start_ticks(pid)) process.start_ticks = *ticks;
    process.uid = uid;
    process.memory = MiB(1000);
    gpus_.add_process(gpu, process);
  }
  void leave(uint32_t gpu, pid_t pid = ::getpid()) { gpus_.remove_process(gpu, pid); }

  api::QueueRow of(uint32_t uid) {
    const std::string name = "user" + std::to_string(uid);
    const api::QueueList list = report();
    for (const api::QueueRow& row : list.queues) {
      if (row.path == name) return row;
    }
    return {};
  }
  api::QueueList report() { return daemon_->observation()->report(); }
  // Within a look or two, and half a minute for which a last reading counts.
  void expect_hours(uint32_t uid, int64_t thousandths) {
    EXPECT_NEAR(static_cast<double>(of(uid).usage_milli_gpu_hours), static_cast<double>(thousandths), 15.0)
        << "user " << uid;
  }
};

TEST_F(ObservationTest, TimeOnAGpuIsItsUsers) {
  start_daemon();
  use(0, kAda);
  pass(kHour);
  leave(0);
  use(1, kBob);
  pass(2 * kHour);
  expect_hours(kAda, 1000);
  expect_hours(kBob, 2000);
  EXPECT_EQ(of(kBob).used, kWholeGpu);
  EXPECT_EQ(of(kAda).used, MilliGpu());
  EXPECT_EQ(report().queues.at(0).path, "user2002") << "whoever used most comes first";
}

TEST_F(ObservationTest, UsersOfOneGpuShareItsTime) {
  start_daemon();
  use(0, kAda);
  use(0, kBob, ::getppid());
  use(1, kAda);
  pass(kHour);
  expect_hours(kAda, 1500);
  expect_hours(kBob, 500);
  EXPECT_EQ(of(kAda).used, MilliGpu(1500));
}

TEST_F(ObservationTest, WhatTheGpuComputedGoesAlong) {
  start_daemon();
  use(0, kAda);
  gpus_.set_utilisation(0, 25);
  pass(4 * kHour);
  const std::string text = of(kAda).arithmetic.value_or("");
  constexpr std::string_view kBusy = "kernels at work in ";
  const size_t at = text.find(kBusy);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_NEAR(std::strtod(text.c_str() + at + kBusy.size(), nullptr), 1.0, 0.02) << text;
}

TEST_F(ObservationTest, ATimeOfWhichNothingIsKnownIsNobodys) {
  start_daemon();
  use(0, kAda);
  pass(kHour);
  gpus_.set_all_hanging(true);
  pass(3 * kHour);
  gpus_.set_all_hanging(false);
  pass(kHour);
  expect_hours(kAda, 2000);
  gpus_.set_process_list_known(0, false);
  pass(kHour);
  expect_hours(kAda, 2000);
}

TEST_F(ObservationTest, ARestartForgetsAMinuteAtMost) {
  start_daemon();
  use(0, kAda);
  pass(kHour);
  stop_daemon();  // killed: nothing is noted
  pass(kHour);
  start_daemon();
  EXPECT_GE(of(kAda).usage_milli_gpu_hours, 960);
  EXPECT_LE(of(kAda).usage_milli_gpu_hours, 1001);
  pass(kHour);
  daemon_->finish([] {});
  pass(kSecond);
  const int64_t before = of(kAda).usage_milli_gpu_hours;
  stop_daemon();
  start_daemon();
  EXPECT_EQ(of(kAda).usage_milli_gpu_hours, before);
}

TEST_F(ObservationTest, NothingIsClosedToAnybody) {
  start_daemon();
  use(0, kAda);
  pass(kHour);
  EXPECT_FALSE(gpu(0).drained);
  EXPECT_TRUE(gpu(0).tasks.empty());
}

// Whoever has jobs is not left without anybody who ends them.
TEST_F(ObservationTest, ADaemonWithJobsDoesNotStart) {
  config_.mode = DaemonMode::manage;
  behaviour_.run_time = kHour;
  start_daemon();
  const JobId job = submit();
  pass(kSecond);
  stop_daemon();
  config_.mode = DaemonMode::observe;
  const auto create = [&] {
    return Daemon::create({reactor_, gpus_, tasks_, users_, config_, "boot",
                           std::make_unique<InlineWorker>(reactor_),
                           [this]() -> Result<DaemonConfig> { return config_; }, nullptr});
  };
  const auto refused = create();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("1 job has not ended"), std::string::npos)
      << refused.error().message();
  config_.mode = DaemonMode::manage;
  start_daemon();
  engine().record(JobCancelled{job, "test"});
  pass(kMinute);
  stop_daemon();
  config_.mode = DaemonMode::observe;
  EXPECT_TRUE(create());
}

}  // namespace
}  // namespace tranche::machine
