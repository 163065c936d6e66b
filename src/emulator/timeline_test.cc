#include "emulator/timeline.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kStart = uint64_t{1} << 40;

class FakeProcesses final : public ProcessTimelines {
 public:
  explicit FakeProcesses(size_t count) : processes_(count) {}
  ProcessTimeline& of(uint32_t slot) override { return processes_[slot]; }
  uint64_t busy_ns(uint32_t slot) { return processes_[slot].busy_tags / kTagsPerNanosecond; }
  size_t count() const { return processes_.size(); }

 private:
  std::vector<ProcessTimeline> processes_;
};

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() { timeline_->now = kStart; }

  std::unique_ptr<Timeline> timeline_ = std::make_unique<Timeline>();
  FakeProcesses processes_{8};
};

TEST_F(TimelineTest, WorkAloneTakesItsTime) {
  const uint64_t tag = enqueue(*timeline_, processes_, 0, 1000);
  EXPECT_EQ(expected_time(*timeline_, processes_, tag), kStart + 1000);
  advance(*timeline_, processes_, kStart + 999);
  EXPECT_LT(timeline_->virtual_time, tag);
  advance(*timeline_, processes_, kStart + 5000);
  EXPECT_EQ(timeline_->virtual_time, tag);
  EXPECT_EQ(time_reached(*timeline_, tag), kStart + 1000);
  EXPECT_EQ(timeline_->busy_ns, 1000u);
}

TEST_F(TimelineTest, WorkOfOneProcessIsServedInOrder) {
  const uint64_t first = enqueue(*timeline_, processes_, 0, 1000);
  const uint64_t second = enqueue(*timeline_, processes_, 0, 500);
  advance(*timeline_, processes_, kStart + 10'000);
  EXPECT_EQ(time_reached(*timeline_, first), kStart + 1000);
  EXPECT_EQ(time_reached(*timeline_, second), kStart + 1500);
}

TEST_F(TimelineTest, TwoProcessesEachRunAtHalfSpeed) {
  const uint64_t a = enqueue(*timeline_, processes_, 0, 1000);
  const uint64_t b = enqueue(*timeline_, processes_, 1, 3000);
  EXPECT_EQ(expected_time(*timeline_, processes_, a), kStart + 2000);
  EXPECT_EQ(expected_time(*timeline_, processes_, b), kStart + 4000);
  advance(*timeline_, processes_, kStart + 10'000);
  EXPECT_EQ(time_reached(*timeline_, a), kStart + 2000);
  EXPECT_EQ(time_reached(*timeline_, b), kStart + 4000);
  EXPECT_EQ(timeline_->busy_ns, 4000u);
  EXPECT_EQ(processes_.busy_ns(0), 1000u);
  EXPECT_EQ(processes_.busy_ns(1), 3000u);
}

TEST_F(TimelineTest, ALateComerSlowsWhatRuns) {
  const uint64_t a = enqueue(*timeline_, processes_, 0, 1000);
  advance(*timeline_, processes_, kStart + 500);
  enqueue(*timeline_, processes_, 1, 10'000);
  advance(*timeline_, processes_, kStart + 100'000);
  EXPECT_EQ(time_reached(*timeline_, a), kStart + 1500);
}

TEST_F(TimelineTest, AnAbandonedProcessMakesRoom) {
  const uint64_t a = enqueue(*timeline_, processes_, 0, 1000);
  enqueue(*timeline_, processes_, 1, 1'000'000);
  advance(*timeline_, processes_, kStart + 1000);
  abandon(*timeline_, processes_, 1);
  advance(*timeline_, processes_, kStart + 100'000);
  EXPECT_EQ(time_reached(*timeline_, a), kStart + 1500);
  EXPECT_EQ(timeline_->active_count, 0u);
}

TEST_F(TimelineTest, ABacklogHasABound) {
  enqueue(*timeline_, processes_, 1, UINT64_MAX);
  uint64_t tag = 0;
  for (int i = 0; i < 3000; ++i) tag = enqueue(*timeline_, processes_, 0, UINT64_MAX);
  EXPECT_EQ(tag, timeline_->virtual_time + kBacklogMaxNs * kTagsPerNanosecond);
  EXPECT_EQ(expected_time(*timeline_, processes_, tag), kStart + 2 * kBacklogMaxNs);
}

TEST_F(TimelineTest, RepairFindsWhoIsAtWork) {
  const uint64_t a = enqueue(*timeline_, processes_, 3, 1000);
  enqueue(*timeline_, processes_, 5, 1000);
  timeline_->active_count = 0;  // as a death inside the lock may leave it
  repair(*timeline_, processes_, 8);
  EXPECT_EQ(timeline_->active_count, 2u);
  advance(*timeline_, processes_, kStart + 5000);
  EXPECT_GE(timeline_->virtual_time, a);
}

TEST_F(TimelineTest, UtilisationOfASamplePeriodIsItsBusyTime) {
  timeline_->now = 100 * kSamplePeriodNs;
  enqueue(*timeline_, processes_, 0, kSamplePeriodNs / 2);
  advance(*timeline_, processes_, 102 * kSamplePeriodNs);
  EXPECT_NEAR(static_cast<double>(timeline_->history.busy_in(100)), kSamplePeriodNs / 2, 2);
  EXPECT_EQ(timeline_->history.busy_in(101), 0u);
}

TEST_F(TimelineTest, ALongIdleTimeLeavesNoOldSamples) {
  enqueue(*timeline_, processes_, 0, 3 * kSamplePeriodNs);
  advance(*timeline_, processes_, kStart + 10'000 * kSamplePeriodNs);
  EXPECT_EQ(timeline_->history.busy_in(timeline_->now / kSamplePeriodNs - 1), 0u);
}

// Whatever is queued when: no GPU time is lost or invented, and predictions hold while nobody comes.
TEST_F(TimelineTest, RandomHistoriesConserveTime) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    auto timeline = std::make_unique<Timeline>();
    timeline->now = kStart;
    FakeProcesses processes(8);
    uint64_t queued_ns = 0;
    for (int step = 0; step < 300; ++step) {
      advance(*timeline, processes, timeline->now + random.below(2000));
      const uint64_t work = random.below(3000);
      queued_ns += work;
      const auto slot = static_cast<uint32_t>(random.below(processes.count()));
      const uint64_t tag = enqueue(*timeline, processes, slot, work);
      EXPECT_GE(expected_time(*timeline, processes, tag), timeline->now);
    }
    uint64_t last = 0;
    for (uint32_t slot = 0; slot < processes.count(); ++slot)
      last = std::max(last, processes.of(slot).finish_tag);
    const uint64_t expected = expected_time(*timeline, processes, last);
    advance(*timeline, processes, timeline->now + 100'000'000);
    EXPECT_EQ(timeline->active_count, 0u);
    EXPECT_NEAR(static_cast<double>(time_reached(*timeline, last)), static_cast<double>(expected), 16);
    uint64_t had_ns = 0;
    for (uint32_t slot = 0; slot < processes.count(); ++slot) had_ns += processes.busy_ns(slot);
    EXPECT_NEAR(static_cast<double>(had_ns), static_cast<double>(queued_ns), 16);
    // Each of the stretches between breakpoints may round up by a nanosecond.
    EXPECT_NEAR(static_cast<double>(timeline->busy_ns), static_cast<double>(queued_ns), 700);
  }
}

}  // namespace
}  // namespace tranche::emulator
