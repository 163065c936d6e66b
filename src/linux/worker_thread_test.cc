#include "linux/worker_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>
#include <vector>

#include "linux/sd_event_reactor.h"

namespace tranche {
namespace {

TEST(WorkerThread, WorksInOrderInGroupsAndAnswersOnTheLoop) {
  auto reactor = *SdEventReactor::create();
  const auto loop_thread = std::this_thread::get_id();
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::vector<int> worked;
  int groups = 0;
  std::vector<int> answered;
  WorkerThread::Options options;
  options.name = "journal";
  options.begin = [&]() -> Result<void> { return {}; };
  options.end = [&](Result<void> outcome) {
    ++groups;
    return outcome;
  };
  WorkerThread worker(*reactor, options);
  // The first holds the worker, so that the rest is queued as one group.
  ASSERT_TRUE(worker.submit(
      [&, opened]() -> Result<void> {
        opened.wait();
        EXPECT_NE(std::this_thread::get_id(), loop_thread);
        return {};
      },
      {}));
  while (worker.backlog() == 0) {
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(worker.submit(
        [&, i]() -> Result<void> {
          worked.push_back(i);
          return {};
        },
        [&, i](const Result<void>& outcome) {
          EXPECT_TRUE(outcome);
          EXPECT_EQ(std::this_thread::get_id(), loop_thread);
          answered.push_back(i);
          if (i == 99) reactor->stop();
        }));
  }
  gate.set_value();
  ASSERT_TRUE(reactor->run());
  EXPECT_EQ(worked.size(), 100u);
  EXPECT_EQ(worked, answered);
  EXPECT_TRUE(std::is_sorted(worked.begin(), worked.end()));
  EXPECT_LE(groups, 3);  // one for the first; two at most, if it was taken before all the others were queued
}

TEST(WorkerThread, FailsAWholeGroupAndGoesOnWithTheNext) {
  auto reactor = *SdEventReactor::create();
  WorkerThread::Options options;
  options.name = "journal";
  options.end = [](Result<void> outcome) -> Result<void> {
    if (outcome) return fail(ErrorCode::storage_full, "the disk is full");
    return outcome;
  };
  WorkerThread worker(*reactor, options);
  std::vector<ErrorCode> codes;
  const auto note = [&](const Result<void>& outcome) {
    codes.push_back(outcome ? ErrorCode::internal : outcome.error().code());
    reactor->stop();
  };
  ASSERT_TRUE(worker.submit([]() -> Result<void> { return {}; }, note));
  ASSERT_TRUE(reactor->run());
  ASSERT_TRUE(worker.submit([]() -> Result<void> { return fail(ErrorCode::corrupt, "bad"); }, note));
  ASSERT_TRUE(reactor->run());
  EXPECT_EQ(codes, (std::vector<ErrorCode>{ErrorCode::storage_full, ErrorCode::corrupt}));
}

TEST(WorkerThread, RefusesWorkWhenItsQueueIsFull) {
  auto reactor = *SdEventReactor::create();
  std::promise<void> started;
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  WorkerThread::Options options;
  options.name = "small";
  options.queue_capacity = 2;
  WorkerThread worker(*reactor, options);
  ASSERT_TRUE(worker.submit(
      [&, opened]() -> Result<void> {
        started.set_value();
        opened.wait();
        return {};
      },
      {}));
  started.get_future().wait();
  const auto nothing = []() -> Result<void> { return {}; };
  EXPECT_TRUE(worker.submit(nothing, {}));
  EXPECT_TRUE(worker.submit(nothing, {}));
  const auto refused = worker.submit(nothing, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::over_limit);
  gate.set_value();
}

TEST(WorkerThread, FinishesItsQueueBeforeItGoes) {
  auto reactor = *SdEventReactor::create();
  int done = 0;
  {
    WorkerThread::Options options;
    options.name = "last";
    WorkerThread worker(*reactor, options);
    for (int i = 0; i < 500; ++i) {
      ASSERT_TRUE(worker.submit(
          [&]() -> Result<void> {
            ++done;
            return {};
          },
          {}));
    }
  }
  EXPECT_EQ(done, 500);
}

}  // namespace
}  // namespace tranche
