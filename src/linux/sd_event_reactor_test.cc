#include "linux/sd_event_reactor.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "linux/process_identity.h"
#include "linux/test_support.h"
#include "linux/unix_socket.h"

namespace tranche {
namespace {

std::unique_ptr<SdEventReactor> make_reactor() {
  auto reactor = SdEventReactor::create();
  EXPECT_TRUE(reactor);
  return std::move(*reactor);
}

TEST(SdEventReactor, FiresTimersInOrderOfDeadlineThenOfMaking) {
  const auto reactor = make_reactor();
  const Duration now = reactor->clock().since_boot();
  std::vector<int> fired;
  std::vector<Reactor::Handle> handles;
  handles.push_back(reactor->at(now + 3 * kMillisecond, [&] {
    fired.push_back(4);
    reactor->stop();
  }));
  for (int i = 1; i <= 3; ++i) {
    handles.push_back(reactor->at(now + kMillisecond, [&, i] { fired.push_back(i); }));
  }
  handles.push_back(reactor->at(now - kSecond, [&] { fired.push_back(0); }));
  ASSERT_TRUE(reactor->run());
  EXPECT_EQ(fired, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(SdEventReactor, NeverFiresATimerEarly) {
  const auto reactor = make_reactor();
  for (int i = 0; i < 50; ++i) {
    const Duration deadline = reactor->clock().since_boot() + Duration(100'000 + i);
    Duration seen;
    const auto timer = reactor->at(deadline, [&] {
      seen = reactor->clock().since_boot();
      reactor->stop();
    });
    ASSERT_TRUE(reactor->run());
    ASSERT_GE(seen, deadline);
  }
}

TEST(SdEventReactor, ATimerMayDestroyItselfAndOthersAndMakeNewOnes) {
  const auto reactor = make_reactor();
  const Duration now = reactor->clock().since_boot();
  std::vector<int> fired;
  Reactor::Handle first;
  Reactor::Handle second;
  Reactor::Handle third;
  first = reactor->at(now, [&] {
    fired.push_back(1);
    first.reset();
    second.reset();
    third = reactor->at(now, [&] {
      fired.push_back(3);
      reactor->stop();
    });
  });
  second = reactor->at(now, [&] { fired.push_back(2); });
  ASSERT_TRUE(reactor->run());
  EXPECT_EQ(fired, (std::vector<int>{1, 3}));
}

TEST(SdEventReactor, RunsWhatThreadsPostEachOnceAndInEachThreadsOrder) {
  const auto reactor = make_reactor();
  constexpr int kThreads = 4;
  constexpr int kPosts = 2000;
  std::vector<std::vector<int>> seen(kThreads);
  int total = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        reactor->post([&, t, i] {
          seen[static_cast<size_t>(t)].push_back(i);
          if (++total == kThreads * kPosts) reactor->stop();
        });
      }
    });
  }
  ASSERT_TRUE(reactor->run());
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int>& one : seen) {
    ASSERT_EQ(one.size(), static_cast<size_t>(kPosts));
    for (int i = 0; i < kPosts; ++i) ASSERT_EQ(one[static_cast<size_t>(i)], i);
  }
}

TEST(SdEventReactor, RunsPostedWorkAfterTheCurrentCallback) {
  const auto reactor = make_reactor();
  std::vector<int> order;
  reactor->post([&] {
    reactor->post([&] {
      order.push_back(2);
      reactor->stop();
    });
    order.push_back(1);
  });
  ASSERT_TRUE(reactor->run());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(SdEventReactor, WatchesOneDescriptorForReadingAndWriting) {
  const auto reactor = make_reactor();
  auto pair = unix_socket_pair(SocketKind::kStream);
  ASSERT_TRUE(pair);
  bool is_writable = false;
  std::string received;
  Reactor::Handle writable;
  writable = reactor->on_writable(pair->first.get(), [&] {
    is_writable = true;
    writable.reset();
    EXPECT_EQ(::send(pair->second.get(), "x", 1, 0), 1);
  });
  Reactor::Handle readable;
  readable = reactor->on_readable(pair->first.get(), [&] {
    char byte = 0;
    const ssize_t size = ::recv(pair->first.get(), &byte, 1, 0);
    if (size == 1) {
      received += byte;
      pair->second.reset();  // the end is readable too
    } else {
      received += "<end>";
      readable.reset();
      reactor->stop();
    }
  });
  ASSERT_TRUE(reactor->run());
  EXPECT_TRUE(is_writable);
  EXPECT_EQ(received, "x<end>");
}

TEST(SdEventReactor, DeliversSignalsAsCallbacks) {
  const auto reactor = make_reactor();
  int received = 0;
  const auto watch = reactor->on_signal(SIGUSR1, [&] {
    ++received;
    reactor->stop();
  });
  reactor->post([] { ::raise(SIGUSR1); });
  ASSERT_TRUE(reactor->run());
  EXPECT_EQ(received, 1);
}

TEST(SdEventReactor, TellsOnceThatAChildHasExited) {
  const auto reactor = make_reactor();
  ChildProcess child([] {
    ::pause();
    return 0;
  });
  auto pidfd = open_pidfd(child.pid());
  ASSERT_TRUE(pidfd);
  int exits = 0;
  const auto watch = reactor->on_child_exit(pidfd->get(), [&] {
    ++exits;
    // Another turn of the loop, in which a callback that is not "once" would come again.
    reactor->post([&] { reactor->post([&] { reactor->stop(); }); });
  });
  reactor->post([&] { ::kill(child.pid(), SIGKILL); });
  ASSERT_TRUE(reactor->run());
  EXPECT_EQ(exits, 1);
  EXPECT_EQ(child.wait(), -SIGKILL);
}

TEST(SdEventReactor, StopsFromAnotherThreadAndRunsAgain) {
  const auto reactor = make_reactor();
  for (int i = 0; i < 3; ++i) {
    std::thread other([&] { reactor->stop(); });
    ASSERT_TRUE(reactor->run());
    other.join();
  }
}

TEST(SdEventReactor, WatchesMayOutliveIt) {
  auto reactor = make_reactor();
  const UniqueFd descriptor(::eventfd(0, EFD_CLOEXEC));
  auto timer = reactor->at(reactor->clock().since_boot() + kHour, [] {});
  auto readable = reactor->on_readable(descriptor.get(), [] {});
  reactor.reset();
  timer.reset();
  readable.reset();
}

}  // namespace
}  // namespace tranche
