// One GPU's memory among several tasks: promises are kept, what is beyond is lent and called in.
#include "arbiter/board.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "arbiter/ledger.h"
#include "arbiter/socket.h"
#include "base/random.h"

namespace tranche::arbiter {
namespace {

constexpr uint64_t kMebi = uint64_t{1} << 20;

// A task with one or two processes that behave as the guard does.
class Member {
 public:
  Member(uint64_t job, uint64_t guarantee, uint64_t limit, Board* board)
      : file_(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(file_.get(), TRANCHE_GUARD_PAGE_BYTES), 0);
    EXPECT_EQ(::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    page_ = LeasePage::map(file_.get());
    wire::RegisterTask request{};
    request.key = {job, 0, 1};
    request.gpu_count = 1;
    request.gpus[0].limit_bytes = limit;
    request.guarantee_bytes[0] = guarantee;
    ledger_ = std::make_unique<TaskLedger>(request, LeasePage::map(file_.get()));
    for (int32_t pid = 1; pid <= 2; ++pid) ledger_->enter(pid, 7, 1);
    if (board != nullptr) ledger_->join(0, *board);
  }

  TaskLedger& ledger() { return *ledger_; }
  Usage usage() const { return ledger_->usage(0); }
  uint64_t used(uint32_t slot) { return (page_->slot(slot).lease[0] & UINT32_MAX) * TRANCHE_GUARD_UNIT; }
  bool is_pressed(uint32_t slot = 0) { return page_->slot(slot).pressure != 0; }

  Lease take(uint64_t bytes, uint32_t slot = 0) {
    const Lease answer = ledger_->lease(slot, 0, bytes);
    if (answer == Lease::granted) page_->slot(slot).lease[0] += bytes / TRANCHE_GUARD_UNIT;
    return answer;
  }
  void give_back(uint64_t bytes, uint32_t slot = 0) {
    page_->slot(slot).lease[0] -= std::min(bytes, used(slot)) / TRANCHE_GUARD_UNIT;
  }

 private:
  OwnedFile file_;
  std::unique_ptr<LeasePage> page_;
  std::unique_ptr<TaskLedger> ledger_;
};

TEST(Board, LendsWhatNobodyWasPromised) {
  Board board;
  board.set(1000 * kMebi, 0);
  Member borrower(1, 200 * kMebi, 700 * kMebi, &board);
  EXPECT_EQ(borrower.take(650 * kMebi), Lease::granted);
  EXPECT_EQ(borrower.take(60 * kMebi), Lease::denied) << "its own limit";
  Member other(2, 300 * kMebi, 300 * kMebi, &board);
  EXPECT_EQ(borrower.usage().owed, 0U) << "both fit";
  EXPECT_EQ(borrower.take(50 * kMebi), Lease::granted);
  EXPECT_EQ(other.take(300 * kMebi), Lease::granted);
}

TEST(Board, LendsNothingWhereItIsNotKnownWhatThereIs) {
  Board board;
  Member borrower(1, 200 * kMebi, 700 * kMebi, &board);
  EXPECT_EQ(borrower.take(200 * kMebi), Lease::granted);
  EXPECT_EQ(borrower.take(kMebi), Lease::denied);
  board.set(1000 * kMebi, 0);
  EXPECT_EQ(borrower.take(500 * kMebi), Lease::granted);
}

TEST(Board, WhatIsPromisedIsNotLentThoughItIsUnused) {
  Board board;
  board.set(1000 * kMebi, 0);
  Member owner(1, 600 * kMebi, 600 * kMebi, &board);
  Member borrower(2, 100 * kMebi, 900 * kMebi, &board);
  EXPECT_EQ(borrower.take(400 * kMebi), Lease::granted);
  EXPECT_EQ(borrower.take(TRANCHE_GUARD_UNIT), Lease::denied);
  EXPECT_EQ(owner.take(600 * kMebi), Lease::granted);
}

TEST(Board, ANewcomersPromiseIsCalledInAndWaitedFor) {
  Board board;
  board.set(1000 * kMebi, 0);
  Member borrower(1, 200 * kMebi, 1000 * kMebi, &board);
  ASSERT_EQ(borrower.take(900 * kMebi), Lease::granted);
  Member owner(2, 500 * kMebi, 500 * kMebi, &board);
  EXPECT_EQ(borrower.usage().owed, 400 * kMebi);
  EXPECT_EQ(borrower.take(TRANCHE_GUARD_UNIT), Lease::denied) << "denied first";
  EXPECT_TRUE(borrower.is_pressed()) << "and asked for what its pools keep";
  EXPECT_EQ(owner.take(100 * kMebi), Lease::granted) << "as much as is free in fact";
  EXPECT_EQ(owner.take(100 * kMebi), Lease::wait) << "promised, so never refused";
  borrower.give_back(400 * kMebi);
  EXPECT_EQ(owner.take(400 * kMebi), Lease::granted);
  board.settle();
  EXPECT_EQ(borrower.usage().owed, 0U);
  EXPECT_EQ(borrower.usage().granted, 500 * kMebi);
  EXPECT_EQ(owner.usage().waits, 1U);
  EXPECT_EQ(owner.usage().denied, 0U);
}

TEST(Board, UnusedLeasesOfBorrowersComeBackBeforeAnybodyOwesOrIsDenied) {
  Board board;
  board.set(1000 * kMebi, 0);
  Member borrower(1, 100 * kMebi, 1000 * kMebi, &board);
  ASSERT_EQ(borrower.take(900 * kMebi), Lease::granted);
  borrower.give_back(700 * kMebi);
  Member second(2, 100 * kMebi, 1000 * kMebi, &board);
  EXPECT_EQ(second.take(700 * kMebi), Lease::granted) << "what the first does not use";
  second.give_back(600 * kMebi);
  Member owner(3, 700 * kMebi, 700 * kMebi, &board);
  EXPECT_EQ(borrower.usage().owed + second.usage().owed, 0U);
  EXPECT_EQ(owner.take(700 * kMebi), Lease::granted);
}

TEST(Board, TheNewestBorrowerOwesFirst) {
  Board board;
  board.set(1000 * kMebi, 0);
  Member first(1, 100 * kMebi, 1000 * kMebi, &board);
  Member second(2, 100 * kMebi, 1000 * kMebi, &board);
  ASSERT_EQ(first.take(500 * kMebi), Lease::granted);
  ASSERT_EQ(second.take(500 * kMebi), Lease::granted);
  Member owner(3, 300 * kMebi, 300 * kMebi, &board);
  EXPECT_EQ(second.usage().owed, 300 * kMebi);
  EXPECT_EQ(first.usage().owed, 0U);
  Member another(4, 300 * kMebi, 300 * kMebi, &board);
  EXPECT_EQ(second.usage().owed, 400 * kMebi);
  EXPECT_EQ(first.usage().owed, 200 * kMebi);
}

TEST(Board, MemoryOfOthersOutsideIsNotLentTwice) {
  Board board;
  board.set(1000 * kMebi, 300 * kMebi);
  Member borrower(1, 200 * kMebi, 1000 * kMebi, &board);
  EXPECT_EQ(borrower.take(700 * kMebi), Lease::granted);
  EXPECT_EQ(borrower.take(kMebi), Lease::denied);
  EXPECT_EQ(borrower.usage().available, 0U);
  board.set(1000 * kMebi, 400 * kMebi);
  EXPECT_EQ(borrower.usage().owed, 100 * kMebi);
}

TEST(Board, WithoutABorrowerAPromiseThatCannotBeKeptIsDeniedAndNotWaitedForForEver) {
  Board board;
  board.set(1000 * kMebi, 0);
  Member one(1, 800 * kMebi, 800 * kMebi, &board);
  Member two(2, 800 * kMebi, 800 * kMebi, &board);
  ASSERT_EQ(one.take(800 * kMebi), Lease::granted);
  EXPECT_EQ(two.take(400 * kMebi), Lease::denied);
}

// Tasks come with promises that fit, as the scheduler places them; they allocate, free and die at random.
void play(uint64_t seed, bool* borrowed, bool* waited) {
  Random random(seed);
  const uint64_t usable = (200 + random.below(800)) * kMebi;
  Board board;
  board.set(usable, 0);
  std::vector<std::unique_ptr<Member>> members;
  uint64_t jobs = 0;
  for (int step = 0; step < 400; ++step) {
    uint64_t promised = 0;
    for (const auto& member : members) promised += member->usage().guarantee;
    const uint64_t choice = random.below(10);
    if (members.empty() || choice == 0) {
      if (promised + kMebi > usable || members.size() == 6) continue;
      const uint64_t guarantee = (1 + random.below((usable - promised) / kMebi)) * kMebi;
      const uint64_t limit = std::min(usable, guarantee + random.below(3) * 100 * kMebi);
      members.push_back(std::make_unique<Member>(++jobs, guarantee, limit, &board));
      continue;
    }
    const size_t place = random.below(members.size());
    Member& member = *members[place];
    const auto slot = static_cast<uint32_t>(random.below(2));
    const uint64_t bytes = (1 + random.below(60)) * kMebi / 2;
    if (choice == 1 && random.below(4) == 0) {
      members.erase(members.begin() + static_cast<ptrdiff_t>(place));
    } else if (choice < 4) {
      member.give_back(bytes, slot);
    } else if (choice == 4) {
      board.set(usable, random.below(3) * 20 * kMebi);
    } else {
      const Usage before = member.usage();
      uint64_t borrowed_by_others = 0;
      for (const auto& other : members) {
        const Usage usage = other->usage();
        if (other.get() != &member)
          borrowed_by_others += usage.charged - std::min(usage.charged, usage.guarantee);
      }
      const Lease answer = member.take(bytes, slot);
      if (before.charged + bytes <= before.guarantee) {
        ASSERT_NE(answer, Lease::denied) << "promised";
      }
      if (answer == Lease::wait) {
        ASSERT_GT(borrowed_by_others, 0U) << "waited for nobody";
        ASSERT_LE(before.charged + bytes, before.guarantee);
        *waited = true;
      }
    }
    uint64_t granted = 0;
    for (const auto& each : members) {
      const Usage usage = each->usage();
      granted += usage.granted;
      ASSERT_LE(usage.granted, usage.limit);
      ASSERT_LE(usage.available, usage.limit - usage.charged);
      ASSERT_LE(usage.owed, usage.granted - std::min(usage.granted, usage.guarantee)) << "what it borrows";
      *borrowed = *borrowed || usage.charged > usage.guarantee;
    }
    ASSERT_LE(granted, usable) << "more was given than there is";
  }
  // Once the borrowers have given back, every promise is there in full.
  board.set(usable, 0);
  for (const auto& member : members) {
    const Usage usage = member->usage();
    const uint64_t over = usage.charged - std::min(usage.charged, usage.guarantee);
    member->give_back(std::min(over, member->used(0)), 0);
    member->give_back(over - std::min(over, usage.charged - member->usage().charged), 1);
  }
  for (const auto& member : members) {
    const Usage usage = member->usage();
    ASSERT_EQ(member->take(usage.guarantee - usage.charged), Lease::granted);
  }
}

TEST(BoardProperties, IsNeverGivenTwiceAndPromisesAreKept) {
  const char* wanted = std::getenv("TRANCHE_SEED");
  const bool is_long = std::getenv("TRANCHE_LONG") != nullptr;
  const uint64_t first = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 1;
  const uint64_t histories = wanted != nullptr ? 1 : is_long ? 20'000 : 200;
  uint64_t with_loans = 0, with_waits = 0;
  for (uint64_t seed = first; seed < first + histories; ++seed) {
    SCOPED_TRACE("TRANCHE_SEED=" + std::to_string(seed));
    bool borrowed = false, waited = false;
    play(seed, &borrowed, &waited);
    if (testing::Test::HasFatalFailure()) return;
    with_loans += borrowed ? 1 : 0;
    with_waits += waited ? 1 : 0;
  }
  std::printf("%llu histories of 400 steps from seed %llu: %llu with loans, %llu in which a promise waited\n",
              static_cast<unsigned long long>(histories), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(with_loans), static_cast<unsigned long long>(with_waits));
  if (histories > 100) {
    EXPECT_GT(with_loans, histories / 2);
    EXPECT_GT(with_waits, histories / 20);
  }
}

}  // namespace
}  // namespace tranche::arbiter
