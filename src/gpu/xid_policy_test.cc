#include "gpu/xid_policy.h"

#include <gtest/gtest.h>

#include "gpu/gpu_health.h"

namespace tranche {
namespace {

using Hold = GpuHealthJudge::Hold;

TEST(XidPolicy, FollowsTheCatalogue) {
  const auto class_of = [](uint64_t code) { return xid_rule(code).class_of; };
  for (const uint64_t code : {8u, 13u, 31u, 32u, 43u, 45u, 68u, 94u, 139u})
    EXPECT_EQ(class_of(code), XidClass::job) << code;
  for (const uint64_t code : {37u, 38u, 44u, 66u, 121u, 137u, 154u, 9999u})
    EXPECT_EQ(class_of(code), XidClass::note) << code;
  for (const uint64_t code :
       {46u, 48u, 62u, 64u, 95u, 109u, 110u, 119u, 120u, 136u, 140u, 143u, 155u, 156u, 158u}) {
    EXPECT_EQ(class_of(code), XidClass::reset) << code;
    EXPECT_EQ(xid_health(code), Health::failed) << code;
  }
  EXPECT_EQ(class_of(54), XidClass::inspect);
  EXPECT_EQ(xid_health(79), Health::lost);
  EXPECT_EQ(xid_health(63), Health::degraded) << "the remapping waits; what runs goes on";
  EXPECT_EQ(xid_health(31), Health::ok) << "the job's fault is not the GPU's";
}

TEST(XidPolicy, EveryReasonCanBeReadBack) {
  for (uint64_t code = 0; code < 1000; ++code) EXPECT_EQ(xid_of_reason(xid_reason(code)), code);
  for (const char* text : {"", "XID", "XID ", "XID x: y", "XID 79", "xid 79: lost", "an XID 79: lost"}) {
    EXPECT_FALSE(xid_of_reason(text).has_value()) << text;
  }
}

TEST(GpuHealthJudge, AnXidThatAsksForAResetIsNotDisprovedByGoodReadings) {
  GpuHealthJudge judge;
  ASSERT_TRUE(judge.hold(Hold::xid, Health::failed, xid_reason(95)).has_value());
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(judge.reading({}).has_value());
  EXPECT_EQ(judge.verdict().reason, xid_reason(95));
  const auto back = judge.release(Hold::xid);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->health, Health::ok);
}

TEST(GpuHealthJudge, ADriverThatRecommendsNothingAnyMoreHasSeenTheReset) {
  GpuHealthJudge judge;
  GpuHealthJudge::Evidence reset, nothing;
  reset.recovery_action = 1;
  nothing.recovery_action = 0;
  ASSERT_TRUE(judge.hold(Hold::xid, Health::failed, xid_reason(119)).has_value());
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(judge.reading(reset).has_value());
  EXPECT_FALSE(judge.reading(nothing).has_value());
  EXPECT_FALSE(judge.reading(nothing).has_value());
  const auto back = judge.reading(nothing);
  ASSERT_TRUE(back.has_value()) << "the third in a row";
  EXPECT_EQ(back->health, Health::ok);
}

TEST(GpuHealthJudge, TheWorstOfWhatIsHeldAgainstItCounts) {
  GpuHealthJudge judge;
  ASSERT_TRUE(judge.hold(Hold::xid, Health::degraded, "suspect").has_value());
  const auto worse = judge.hold(Hold::driver, Health::failed, "reboot");
  ASSERT_TRUE(worse.has_value());
  EXPECT_EQ(worse->reason, "reboot");
  const auto better = judge.release(Hold::driver);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->health, Health::degraded);
  EXPECT_EQ(better->reason, "suspect");
}

TEST(GpuHealthJudge, AGpuThatIsBackOnTheBusIsWellAgain) {
  GpuHealthJudge judge;
  ASSERT_EQ(judge.fallen(xid_reason(79))->health, Health::lost);
  GpuHealthJudge::Evidence gone;
  gone.code = nvml::Code::gpu_is_lost;
  EXPECT_FALSE(judge.reading(gone).has_value()) << "known already";
  EXPECT_FALSE(judge.reading({}).has_value());
  EXPECT_FALSE(judge.reading({}).has_value());
  EXPECT_EQ(judge.reading({})->health, Health::ok);
}

}  // namespace
}  // namespace tranche
