#include "launcher/time_limit.h"

#include <gtest/gtest.h>

namespace tranche::launcher {
namespace {

TEST(TimeLimitTest, CountsFromTheStart) {
  TimeLimit limit;
  limit.set_limit(100);
  EXPECT_EQ(limit.deadline(), 0U);
  limit.start(1000);
  EXPECT_EQ(limit.deadline(), 1100U);
  limit.set_limit(50);
  EXPECT_EQ(limit.deadline(), 1050U);
  limit.set_limit(0);
  EXPECT_EQ(limit.deadline(), 0U);
}

TEST(TimeLimitTest, StandsStillWhileFrozen) {
  TimeLimit limit;
  limit.set_limit(100);
  limit.start(1000);
  limit.freeze(1010);
  limit.freeze(1020);
  EXPECT_EQ(limit.deadline(), 0U);
  limit.thaw(1510);
  EXPECT_EQ(limit.deadline(), 1600U);
  limit.thaw(1700);
  EXPECT_EQ(limit.deadline(), 1600U);
}

TEST(TimeLimitTest, NeverOverflows) {
  TimeLimit limit;
  limit.set_limit(UINT64_MAX);
  limit.start(1000);
  EXPECT_EQ(limit.deadline(), 0U);
}

}  // namespace
}  // namespace tranche::launcher
