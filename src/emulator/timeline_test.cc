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

  uint64_t reached(uint32_t slot, uint64_t tag) { return time_reached(processes_.of(slot), tag, kStart, 0); }

  std::unique_ptr<Timeline> timeline_ = std::make_unique<Timeline>();
  FakeProcesses processes_{8};
};

TEST_F(TimelineTest, WorkAloneTakesItsTime) {
  const uint64_t tag = enqueue(*timeline_, processes_, 0, 1000);
  EXPECT_EQ(expected_time(*timeline_, processes_, 0, tag), kStart + 1000);
  advance(*timeline_, processes_, kStart + 999);
  EXPECT_LT(processes_.of(0).served_tag, tag);
  advance(*timeline_, processes_, kStart + 5000);
  EXPECT_EQ(processes_.of(0).served_tag, tag);
  EXPECT_EQ(reached(0, tag), kStart + 1000);
  EXPECT_EQ(timeline_->busy_ns, 1000u);
}

TEST_F(TimelineTest, WorkOfOneProcessIsServedInOrder) {
  const uint64_t first = enqueue(*timeline_, processes_, 0, 1000);
  const uint64_t second = enqueue(*timeline_, processes_, 0, 500);
  advance(*timeline_, processes_, kStart + 10'000);
  EXPECT_EQ(reached(0, first), kStart + 1000);
  EXPECT_EQ(reached(0, second), kStart + 1500);
}

// Reference 1, bare driver: time slicing in turn among busy contexts.
TEST_F(TimelineTest, ProcessesTakeTurnsOfOneSlice) {
  const uint64_t a = enqueue(*timeline_, processes_, 0, 3 * kSliceNs);
  const uint64_t b = enqueue(*timeline_, processes_, 1, 2 * kSliceNs);
  const uint64_t first_of_b = kStart + kSliceNs + kSwitchNs;
  EXPECT_EQ(expected_time(*timeline_, processes_, 1, 1), first_of_b + 1);
  const uint64_t end_of_b = kStart + 4 * kSliceNs + 3 * kSwitchNs,
                 end_of_a = kStart + 5 * kSliceNs + 4 * kSwitchNs;
  EXPECT_EQ(expected_time(*timeline_, processes_, 1, b), end_of_b);
  advance(*timeline_, processes_, kStart + kSliceNs);
  EXPECT_EQ(processes_.busy_ns(0), kSliceNs);
  EXPECT_EQ(processes_.busy_ns(1), 0u);
  advance(*timeline_, processes_, kStart + 100 * kSliceNs);
  EXPECT_EQ(reached(1, b), end_of_b);
  EXPECT_EQ(reached(0, a), end_of_a);
  EXPECT_EQ(timeline_->busy_ns, 5 * kSliceNs) << "nobody computes in a switch";
}

// A short kernel waits for the slice of its neighbour: latency, which a share of the speed would hide.
TEST_F(TimelineTest, AShortKernelWaitsForItsTurn) {
  enqueue(*timeline_, processes_, 0, 100 * kSliceNs);
  advance(*timeline_, processes_, kStart + kSliceNs / 4);
  const uint64_t tag = enqueue(*timeline_, processes_, 1, 10'000);
  advance(*timeline_, processes_, kStart + 100 * kSliceNs);
  EXPECT_EQ(reached(1, tag), kStart + kSliceNs + kSwitchNs + 10'000);
}

TEST_F(TimelineTest, SideBySideTheDemandsAreAddedUp) {
  timeline_->sharing = Sharing::side_by_side;
  const uint64_t a = enqueue(*timeline_, processes_, 0, 10'000, 250);
  const uint64_t b = enqueue(*timeline_, processes_, 1, 20'000, 750);
  advance(*timeline_, processes_, kStart + 1'000'000);
  EXPECT_EQ(reached(0, a), kStart + 10'000) << "both fit";
  EXPECT_EQ(reached(1, b), kStart + 20'000);
  EXPECT_EQ(timeline_->busy_ns, 20'000u);
  timeline_->now = kStart + 1'000'000;
  const uint64_t c = enqueue(*timeline_, processes_, 0, 10'000, 1000);
  const uint64_t d = enqueue(*timeline_, processes_, 1, 10'000, 1000);
  advance(*timeline_, processes_, kStart + 2'000'000);
  EXPECT_EQ(reached(0, c), kStart + 1'020'000) << "twice what there is";
  EXPECT_EQ(reached(1, d), kStart + 1'020'000);
}

TEST_F(TimelineTest, ACopyKeepsItsProcessWaitingButTheGpuIdle) {
  enqueue(*timeline_, processes_, 0, 1000, 0);
  const uint64_t kernel = enqueue(*timeline_, processes_, 0, 500, 1000);
  advance(*timeline_, processes_, kStart + 10'000);
  EXPECT_EQ(reached(0, kernel), kStart + 1500);
  EXPECT_EQ(timeline_->busy_ns, 500u);
  EXPECT_EQ(processes_.busy_ns(0), 500u);
}

// A board at a third of its clock: kernels take three times as long, copies as long as before.
TEST_F(TimelineTest, ALoweredClockSlowsKernelsInProportionAndNoCopies) {
  timeline_->slowed_by = 750;
  const uint64_t copy = enqueue(*timeline_, processes_, 0, 1000, 0);
  const uint64_t kernel = enqueue(*timeline_, processes_, 0, 500, 1000);
  EXPECT_EQ(expected_time(*timeline_, processes_, 0, kernel), kStart + 1000 + 4 * 500);
  advance(*timeline_, processes_, kStart + 10'000);
  EXPECT_EQ(reached(0, copy), kStart + 1000);
  EXPECT_EQ(reached(0, kernel), kStart + 3000);
  EXPECT_EQ(timeline_->busy_ns, 2000u) << "it keeps the GPU for longer";
  EXPECT_EQ(processes_.busy_ns(0), 2000u);
}

TEST_F(TimelineTest, AClockThatIsLoweredInTheMiddleSlowsWhatIsLeft) {
  const uint64_t kernel = enqueue(*timeline_, processes_, 0, 10'000);
  advance(*timeline_, processes_, kStart + 4000);
  timeline_->slowed_by = 500;
  EXPECT_EQ(expected_time(*timeline_, processes_, 0, kernel), kStart + 4000 + 2 * 6000);
  advance(*timeline_, processes_, kStart + 8000);
  timeline_->slowed_by = 0;
  advance(*timeline_, processes_, kStart + 100'000);
  EXPECT_EQ(reached(0, kernel), kStart + 4000 + 4000 + 4000);
  EXPECT_EQ(timeline_->busy_ns, 12'000u);
}

TEST_F(TimelineTest, SideBySideALoweredClockAddsToWhatIsShared) {
  timeline_->sharing = Sharing::side_by_side;
  timeline_->slowed_by = 500;
  const uint64_t a = enqueue(*timeline_, processes_, 0, 10'000, 1000);
  const uint64_t b = enqueue(*timeline_, processes_, 1, 10'000, 1000);
  const uint64_t copy = enqueue(*timeline_, processes_, 2, 10'000, 0);
  advance(*timeline_, processes_, kStart + 1'000'000);
  EXPECT_EQ(reached(0, a), kStart + 40'000) << "half the clock, half of the multiprocessors";
  EXPECT_EQ(reached(1, b), kStart + 40'000);
  EXPECT_EQ(reached(2, copy), kStart + 10'000);
}

TEST_F(TimelineTest, AnAbandonedProcessMakesRoom) {
  const uint64_t a = enqueue(*timeline_, processes_, 0, 2 * kSliceNs);
  enqueue(*timeline_, processes_, 1, 1000 * kSliceNs);
  advance(*timeline_, processes_, kStart + kSliceNs + kSwitchNs + 500);
  abandon(*timeline_, processes_, 1);
  advance(*timeline_, processes_, kStart + 100 * kSliceNs);
  EXPECT_EQ(reached(0, a), kStart + 2 * kSliceNs + 2 * kSwitchNs + 500);
  EXPECT_EQ(timeline_->active_count, 0u);
}

TEST_F(TimelineTest, ABacklogHasABound) {
  uint64_t tag = 0;
  for (int i = 0; i < 3000; ++i) tag = enqueue(*timeline_, processes_, 0, UINT64_MAX);
  EXPECT_EQ(tag, kBacklogMaxNs * kTagsPerNanosecond);
  EXPECT_EQ(expected_time(*timeline_, processes_, 0, tag), kStart + kBacklogMaxNs);
}

TEST_F(TimelineTest, RepairFindsWhoIsAtWork) {
  const uint64_t a = enqueue(*timeline_, processes_, 3, 1000);
  enqueue(*timeline_, processes_, 5, 1000);
  timeline_->active_count = 0;  // as a death inside the lock may leave it
  repair(*timeline_, processes_, 8, [](uint32_t) { return true; });
  EXPECT_EQ(timeline_->active_count, 2u);
  advance(*timeline_, processes_, kStart + 100 * kSliceNs);
  EXPECT_GE(processes_.of(3).served_tag, a);
}

// What was too long ago for the runs that are kept is told from what was known when it was queued.
TEST_F(TimelineTest, TimesLongAgoAreInterpolated) {
  enqueue(*timeline_, processes_, 1, 1000 * kSliceNs);
  const uint64_t tag = enqueue(*timeline_, processes_, 0, 10 * kSliceNs);
  enqueue(*timeline_, processes_, 0, 990 * kSliceNs);
  advance(*timeline_, processes_, kStart + 3000 * kSliceNs);
  const uint64_t exact = kStart + 20 * (kSliceNs + kSwitchNs);
  EXPECT_NEAR(static_cast<double>(reached(0, tag)), static_cast<double>(exact), 3.0 * kSliceNs);
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

// Whatever is queued when, in either way of sharing: no GPU time is lost or invented, and nobody is passed
// over.
TEST_F(TimelineTest, RandomHistoriesConserveTime) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    auto timeline = std::make_unique<Timeline>();
    timeline->now = kStart;
    timeline->sharing = seed % 3 == 0 ? Sharing::side_by_side : Sharing::slices;
    timeline->slowed_by = seed % 4 == 0 ? 500 : 0;
    const uint64_t longer = seed % 4 == 0 ? 2 : 1;
    FakeProcesses processes(8);
    uint64_t kernels_ns = 0;
    for (int step = 0; step < 300; ++step) {
      advance(*timeline, processes, timeline->now + random.below(2 * kSliceNs));
      const uint64_t work = random.below(3 * kSliceNs);
      const auto demand = static_cast<uint32_t>(random.below(5) * 250);
      if (demand > 0) kernels_ns += longer * work;
      const auto slot = static_cast<uint32_t>(random.below(processes.count()));
      const uint64_t tag = enqueue(*timeline, processes, slot, work, demand);
      const uint64_t expected = expected_time(*timeline, processes, slot, tag);
      EXPECT_GE(expected, timeline->now);
    }
    const auto slot = static_cast<uint32_t>(random.below(processes.count()));
    const uint64_t last = processes.of(slot).finish_tag;
    const uint64_t expected = expected_time(*timeline, processes, slot, last), asked = timeline->now;
    advance(*timeline, processes, timeline->now + 6000 * kSliceNs);
    EXPECT_EQ(timeline->active_count, 0u);
    uint64_t had_ns = 0;
    for (uint32_t i = 0; i < processes.count(); ++i) {
      EXPECT_EQ(processes.of(i).served_tag, processes.of(i).finish_tag);
      had_ns += processes.busy_ns(i);
    }
    const uint64_t done = std::max(time_reached(processes.of(slot), last, kStart, 0), asked);
    // A full ring of segments joins neighbours, so up to a few pieces of work may count as their neighbour's
    // kind.
    EXPECT_NEAR(static_cast<double>(had_ns), static_cast<double>(kernels_ns), 1000.0);
    if (timeline->sharing == Sharing::slices) {
      EXPECT_NEAR(static_cast<double>(done), static_cast<double>(expected), 2000.0);
      EXPECT_NEAR(static_cast<double>(timeline->busy_ns), static_cast<double>(had_ns), 2000.0);
    } else {
      EXPECT_GE(done + 1, expected);
      EXPECT_LE(timeline->busy_ns, had_ns + 2000);
    }
  }
}

}  // namespace
}  // namespace tranche::emulator
