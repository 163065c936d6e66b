#include "base/manual_reactor.h"

#include <gtest/gtest.h>

#include <vector>

namespace tranche {
namespace {

TEST(ManualReactor, FiresTimersInOrderEachAtItsInstant) {
  ManualReactor reactor(Time(1));
  std::vector<int64_t> fired;
  const auto note = [&] { fired.push_back(reactor.clock().since_boot().count()); };
  const auto late = reactor.at(Duration(20), note);
  const auto early = reactor.at(Duration(10), note);
  reactor.run_until(Duration(100));
  EXPECT_EQ(fired, (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(reactor.clock().since_boot(), Duration(100));
}

TEST(ManualReactor, DestroyedWatchNeverFires) {
  ManualReactor reactor(Time(1));
  bool fired = false;
  auto watch = reactor.at(Duration(10), [&] { fired = true; });
  watch.reset();
  reactor.run_until(Duration(100));
  EXPECT_FALSE(fired);
}

TEST(ManualReactor, PostedWorkRunsBeforeTimeMoves) {
  ManualReactor reactor(Time(1));
  Duration seen{-1};
  reactor.post([&] { seen = reactor.clock().since_boot(); });
  reactor.run_until(Duration(10));
  EXPECT_EQ(seen, Duration(0));
}

}  // namespace
}  // namespace tranche
