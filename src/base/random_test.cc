#include "base/random.h"

#include <gtest/gtest.h>

namespace tranche {
namespace {

TEST(Random, IsTheSameOnEveryMachine) {
  Random random(42);
  EXPECT_EQ(random.next(), 1546998764402558742u);
  EXPECT_EQ(random.next(), 6990951692964543102u);
}

TEST(Random, StaysInRange) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(random.below(7), 7u);
    const int64_t value = random.between(-3, 3);
    EXPECT_GE(value, -3);
    EXPECT_LE(value, 3);
  }
}

TEST(Random, ExponentialHasItsMean) {
  Random random(7);
  int64_t sum = 0;
  for (int i = 0; i < 20000; ++i) sum += random.exponential(1000);
  EXPECT_NEAR(static_cast<double>(sum) / 20000, 1000, 40);
}

}  // namespace
}  // namespace tranche
