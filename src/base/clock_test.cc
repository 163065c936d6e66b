#include "base/clock.h"

#include <gtest/gtest.h>

namespace tranche {
namespace {

TEST(EventClock, IsStrictlyIncreasingThoughTimeStandsStill) {
  ManualClock clock(Time(1000));
  EventClock events(clock, Time());
  const Time first = events.next();
  EXPECT_LT(first, events.next());
}

TEST(EventClock, IgnoresStepsOfTheWallClock) {
  ManualClock clock(Time(kDay.count()));
  EventClock events(clock, Time());
  const Time before = events.next();
  clock.step_wall(-kHour);
  clock.advance(kSecond);
  EXPECT_EQ(events.next() - before, kSecond);
}

TEST(EventClock, ContinuesAfterTheLogItIsGiven) {
  ManualClock clock(Time(1000));
  EventClock events(clock, Time(5000));
  EXPECT_EQ(events.next(), Time(5001));
}

}  // namespace
}  // namespace tranche
