#include "gpu/gpu_health.h"

#include <gtest/gtest.h>

namespace tranche {
namespace {

using Evidence = GpuHealthJudge::Evidence;
using nvml::Code;

Evidence failing(Code code) {
  Evidence evidence;
  evidence.code = code;
  evidence.call = "nvmlDeviceGetMemoryInfo";
  return evidence;
}

TEST(GpuHealthJudge, LostCountsAtOnce) {
  GpuHealthJudge judge;
  const auto verdict = judge.reading(failing(Code::gpu_is_lost));
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->health, Health::lost);
  EXPECT_FALSE(judge.reading(failing(Code::gpu_is_lost)).has_value()) << "an edge, not a level";
  EXPECT_FALSE(judge.silent("no answer").has_value()) << "lost says more than silent";
}

TEST(GpuHealthJudge, OneFailureIsNoIllness) {
  GpuHealthJudge judge;
  EXPECT_FALSE(judge.reading(failing(Code::unknown)).has_value());
  EXPECT_FALSE(judge.reading(failing(Code::unknown)).has_value());
  EXPECT_FALSE(judge.reading({}).has_value());
  EXPECT_FALSE(judge.reading(failing(Code::unknown)).has_value());
  EXPECT_FALSE(judge.reading(failing(Code::unknown)).has_value());
  const auto verdict = judge.reading(failing(Code::unknown));
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->health, Health::failed);
  EXPECT_NE(verdict->reason.find("nvmlDeviceGetMemoryInfo"), std::string::npos);
}

TEST(GpuHealthJudge, RecoveryMustLast) {
  GpuHealthJudge judge;
  ASSERT_TRUE(judge.silent("stuck").has_value());
  EXPECT_FALSE(judge.reading({}).has_value());
  EXPECT_FALSE(judge.reading({}).has_value());
  EXPECT_FALSE(judge.reading(failing(Code::timeout)).has_value());
  EXPECT_FALSE(judge.reading({}).has_value());
  EXPECT_FALSE(judge.reading({}).has_value());
  const auto verdict = judge.reading({});
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->health, Health::ok);
  EXPECT_EQ(verdict->reason, "");
}

TEST(GpuHealthJudge, HeatDegradesWhenItLasts) {
  GpuHealthJudge judge;
  Evidence hot;
  hot.clocks_event_reasons = nvml::kClocksHardwareThermal | 0x4;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(judge.reading(hot).has_value());
  ASSERT_TRUE(judge.reading(hot).has_value());
  EXPECT_EQ(judge.verdict().health, Health::degraded);
  Evidence power_capped;
  power_capped.clocks_event_reasons = 0x4;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(judge.reading(power_capped).has_value());
  EXPECT_EQ(judge.reading(power_capped)->health, Health::ok) << "a power cap is no illness";
}

TEST(GpuHealthJudge, RowsThatCannotBeRemappedFailTheGpu) {
  GpuHealthJudge judge;
  Evidence pending;
  pending.rows_pending = true;
  EXPECT_EQ(judge.reading(pending)->health, Health::degraded);
  Evidence failed;
  failed.rows_failure = true;
  EXPECT_EQ(judge.reading(failed)->health, Health::failed);
}

TEST(GpuHealthJudge, WhoseTroubleItIsDecidesWhatIsDone) {
  GpuHealthJudge judge;
  Evidence asks;
  asks.recovery_action = 1;
  EXPECT_TRUE(judge.reading(asks)->needs_reset) << "the driver says so";
  GpuHealthJudge other;
  EXPECT_TRUE(other.hold(GpuHealthJudge::Hold::xid, Health::failed, "XID 95: x")->needs_reset);
  GpuHealthJudge driver;
  const auto mismatch = driver.hold(GpuHealthJudge::Hold::driver, Health::failed, "reboot needed");
  EXPECT_FALSE(mismatch->needs_reset) << "to let it go would lose the last process that the driver serves";
  EXPECT_TRUE(mismatch->of_the_driver);
  GpuHealthJudge silent;
  EXPECT_FALSE(silent.silent("stuck")->needs_reset) << "its call holds it anyway";
}

}  // namespace
}  // namespace tranche
