#include "linux/log_throttle.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tranche {
namespace {

using Told = std::vector<std::pair<int64_t, uint64_t>>;

Told told(LogThrottle& throttle, Duration now) {
  Told lines;
  throttle.tell_overdue(now, [&](int64_t owner, uint64_t count) { lines.emplace_back(owner, count); });
  return lines;
}

TEST(LogThrottle, TellsTheFirstAtOnceAndTheRestWithACount) {
  LogThrottle throttle;
  const Duration start = 7 * kSecond;
  EXPECT_EQ(throttle.happened(1000, start), 1u);
  for (int i = 0; i < 99; ++i) EXPECT_EQ(throttle.happened(1000, start + i * kMillisecond), 0u);
  EXPECT_EQ(throttle.happened(2000, start + kMillisecond), 1u) << "each owner has a line of its own";
  EXPECT_EQ(throttle.happened(1000, start + kSecond), 100u);
}

TEST(LogThrottle, WhatWasKeptBackIsToldThoughNothingMoreHappens) {
  LogThrottle throttle;
  throttle.happened(1000, kSecond);
  throttle.happened(1000, kSecond);
  throttle.happened(2000, kSecond);
  EXPECT_EQ(told(throttle, kSecond + 999 * kMillisecond), Told{});
  EXPECT_EQ(told(throttle, 2 * kSecond), (Told{{1000, 1}}));
  EXPECT_FALSE(throttle.is_empty());
  EXPECT_EQ(told(throttle, 3 * kSecond), Told{});
  EXPECT_TRUE(throttle.is_empty()) << "who is quiet is forgotten";
}

}  // namespace
}  // namespace tranche
