#include "arbiter/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "arbiter/socket.h"
#include "base/random.h"

namespace tranche::arbiter {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kImage = 7;

OwnedFile make_page(unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  OwnedFile file(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), TRANCHE_GUARD_PAGE_BYTES), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

wire::RegisterTask two_gpus(uint64_t first_limit, uint64_t second_limit) {
  wire::RegisterTask request{};
  request.key = {1, 0, 1};
  request.gpu_count = 2;
  request.gpus[0].uuid[0] = 1;
  request.gpus[0].limit_bytes = first_limit;
  request.gpus[1].uuid[0] = 2;
  request.gpus[1].limit_bytes = second_limit;
  return request;
}

// A task's ledger and its page as the task's processes see it.
struct World {
  explicit World(uint64_t limit, uint64_t second_limit = 64 * kMib)
      : file(make_page()),
        mine(LeasePage::map(file.get())),
        ledger(two_gpus(limit, second_limit), LeasePage::map(file.get())) {}

  uint32_t enter(int32_t pid) { return static_cast<uint32_t>(ledger.enter(pid, kImage, 1)); }
  uint64_t word(uint32_t slot, uint32_t gpu = 0) { return mine->slot(slot).lease[gpu]; }
  uint64_t granted(uint32_t slot, uint32_t gpu = 0) { return (word(slot, gpu) >> 32) * TRANCHE_GUARD_UNIT; }
  uint64_t used(uint32_t slot, uint32_t gpu = 0) {
    return (word(slot, gpu) & UINT32_MAX) * TRANCHE_GUARD_UNIT;
  }
  // As the guard does, without a race.
  bool take(uint32_t slot, uint64_t bytes, uint32_t gpu = 0) {
    if (used(slot, gpu) + bytes > granted(slot, gpu) && ledger.lease(slot, gpu, bytes) != Lease::granted)
      return false;
    EXPECT_LE(used(slot, gpu) + bytes, granted(slot, gpu)) << "what was leased is in the page";
    mine->slot(slot).lease[gpu] += bytes / TRANCHE_GUARD_UNIT;
    return true;
  }
  void give_back(uint32_t slot, uint64_t bytes, uint32_t gpu = 0) {
    mine->slot(slot).lease[gpu] -= bytes / TRANCHE_GUARD_UNIT;
  }

  OwnedFile file;
  std::unique_ptr<LeasePage> mine;
  TaskLedger ledger;
};

TEST(LeasePage, IsRefusedWhenItsOwnerCouldShrinkIt) {
  EXPECT_EQ(LeasePage::map(make_page(F_SEAL_GROW).get()), nullptr);
  EXPECT_EQ(LeasePage::map(-1), nullptr);
  const OwnedFile small(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(LeasePage::map(small.get()), nullptr);
  const OwnedFile ordinary(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(LeasePage::map(ordinary.get()), nullptr);
}

TEST(TaskLedger, GivesTheLastByteAndNotOneMore) {
  World world(100 * kMib);
  const uint32_t slot = world.enter(10);
  EXPECT_TRUE(world.take(slot, 60 * kMib));
  EXPECT_TRUE(world.take(slot, 40 * kMib));
  EXPECT_FALSE(world.take(slot, TRANCHE_GUARD_UNIT));
  EXPECT_EQ(world.ledger.usage(0).charged, 100 * kMib);
  EXPECT_EQ(world.ledger.usage(0).denied, 1U);
  world.give_back(slot, 10 * kMib);
  EXPECT_TRUE(world.take(slot, 10 * kMib));
}

TEST(TaskLedger, TakesUnusedMemoryBackBeforeItRefuses) {
  World world(100 * kMib);
  const uint32_t idle = world.enter(10);
  const uint32_t busy = world.enter(11);
  ASSERT_TRUE(world.take(idle, 50 * kMib));
  world.give_back(idle, 48 * kMib);
  EXPECT_EQ(world.granted(idle), 64 * kMib) << "a chunk, so that it need not ask again";
  EXPECT_TRUE(world.take(busy, 98 * kMib));
  EXPECT_EQ(world.granted(idle), 2 * kMib);
  EXPECT_FALSE(world.take(busy, kMib));
  EXPECT_EQ(world.mine->slot(idle).pressure, 1U) << "it is asked to give back what it can spare";
}

TEST(TaskLedger, CountsEachGpuForItself) {
  World world(100 * kMib, 8 * kMib);
  const uint32_t slot = world.enter(10);
  EXPECT_TRUE(world.take(slot, 100 * kMib, 0));
  EXPECT_TRUE(world.take(slot, 8 * kMib, 1));
  EXPECT_FALSE(world.take(slot, TRANCHE_GUARD_UNIT, 1));
}

TEST(TaskLedger, ADeadProcessLeavesNothing) {
  World world(100 * kMib);
  const uint32_t slot = world.enter(10);
  ASSERT_TRUE(world.take(slot, 100 * kMib));
  const uint32_t other = world.enter(11);
  EXPECT_FALSE(world.take(other, kMib));
  world.ledger.keep_used_only(slot);
  EXPECT_FALSE(world.take(other, kMib)) << "a closed connection is not a death";
  world.ledger.leave(slot);
  EXPECT_TRUE(world.take(other, 100 * kMib));
}

TEST(TaskLedger, AnotherProgramOfTheSamePidStartsFresh) {
  World world(100 * kMib);
  const uint32_t slot = world.enter(10);
  ASSERT_TRUE(world.take(slot, 100 * kMib));
  const int next = world.ledger.enter(10, kImage + 1, 1);
  ASSERT_GE(next, 0);
  EXPECT_TRUE(world.take(static_cast<uint32_t>(next), 100 * kMib));
  EXPECT_FALSE(world.ledger.resume(static_cast<uint32_t>(next), 10, kImage));
  EXPECT_TRUE(world.ledger.resume(static_cast<uint32_t>(next), 10, kImage + 1));
}

TEST(TaskLedger, ALoweredLimitTakesUnusedMemoryAndGivesNothingMore) {
  World world(100 * kMib);
  const uint32_t slot = world.enter(10);
  ASSERT_TRUE(world.take(slot, 30 * kMib));
  world.ledger.set_limit(0, 20 * kMib);
  EXPECT_EQ(world.granted(slot), 30 * kMib) << "what is used stays";
  EXPECT_FALSE(world.take(slot, TRANCHE_GUARD_UNIT));
  world.give_back(slot, 15 * kMib);
  EXPECT_FALSE(world.take(world.enter(11), 6 * kMib));
  EXPECT_TRUE(world.take(world.enter(12), 5 * kMib));
  world.ledger.set_limit(0, 40 * kMib);
  EXPECT_TRUE(world.take(slot, 20 * kMib));
}

TEST(TaskLedger, IsTakenUpFromThePageAfterARestart) {
  World world(100 * kMib);
  const uint32_t first = world.enter(10);
  const uint32_t second = world.enter(11);
  ASSERT_TRUE(world.take(first, 30 * kMib));
  ASSERT_TRUE(world.take(second, 20 * kMib));
  TaskLedger next(two_gpus(100 * kMib, 64 * kMib), LeasePage::map(world.file.get()));
  EXPECT_EQ(next.adopt(), (std::vector<uint32_t>{first, second}));
  EXPECT_EQ(next.usage(0).charged, 50 * kMib);
  EXPECT_LE(next.usage(0).granted, 100 * kMib);
  EXPECT_EQ(next.lease(first, 0, 51 * kMib), Lease::denied);
  EXPECT_EQ(next.lease(first, 0, 50 * kMib), Lease::granted);
}

TEST(TaskLedger, RefusesMoreProcessesThanThePageHas) {
  World world(100 * kMib);
  for (int pid = 1; pid <= TRANCHE_GUARD_MAX_PROCESSES; ++pid)
    ASSERT_GE(world.ledger.enter(pid, kImage, 1), 0);
  EXPECT_EQ(world.ledger.enter(5000, kImage, 1), -1);
  world.ledger.leave(17);
  EXPECT_EQ(world.ledger.enter(5000, kImage, 1), 17);
}

// Whatever a task writes into its page, what is granted stays within its limit and nothing is computed from
// what does not add up.
TEST(TaskLedgerProperties, HoldsUnderHonestAndHostileProcesses) {
  const char* wanted = std::getenv("TRANCHE_SEED");
  const bool is_long = std::getenv("TRANCHE_LONG") != nullptr;
  const uint64_t first = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 1;
  const uint64_t histories = wanted != nullptr ? 1 : is_long ? 20'000 : 200;
  for (uint64_t seed = first; seed < first + histories; ++seed) {
    SCOPED_TRACE("TRANCHE_SEED=" + std::to_string(seed));
    Random random(seed);
    const uint64_t limit = (random.below(500) + 1) * kMib;
    World world(limit);
    std::vector<uint32_t> slots;
    for (int32_t pid = 1; pid <= 6; ++pid) slots.push_back(world.enter(pid));
    const bool hostile = random.below(2) == 0;
    for (int step = 0; step < 300; ++step) {
      const uint32_t slot = slots[random.below(slots.size())];
      const uint64_t bytes = random.below(40 * kMib) / TRANCHE_GUARD_UNIT * TRANCHE_GUARD_UNIT;
      switch (random.below(hostile ? 6 : 4)) {
        case 0:
        case 1:
          if (world.ledger.lease(slot, 0, bytes) == Lease::granted && !hostile) {
            ASSERT_LE(world.used(slot) + bytes, world.granted(slot));
            world.mine->slot(slot).lease[0] += bytes / TRANCHE_GUARD_UNIT;
          }
          break;
        case 2:
          if (!hostile) world.give_back(slot, std::min(bytes, world.used(slot)));
          break;
        case 3:
          world.ledger.leave(slot);
          ASSERT_EQ(static_cast<uint32_t>(world.ledger.enter(static_cast<int32_t>(slot) + 1, kImage, 1)),
                    slot);
          break;
        case 4:
          world.mine->slot(slot).lease[0] = random.next();
          break;
        default:
          std::memset(&world.mine->slot(slot), static_cast<int>(random.below(256)),
                      sizeof(tranche_guard_slot));
          break;
      }
      const Usage usage = world.ledger.usage(0);
      ASSERT_LE(usage.granted, limit);
      ASSERT_LE(usage.charged, usage.granted);
      if (hostile) continue;
      uint64_t sum = 0;
      for (const uint32_t each : slots) sum += world.granted(each);
      ASSERT_EQ(sum, usage.granted);
    }
    TaskLedger next(two_gpus(limit, kMib), LeasePage::map(world.file.get()));
    next.adopt();
    ASSERT_LE(next.usage(0).granted, limit);
  }
  std::printf("%llu histories of 300 steps from seed %llu\n", static_cast<unsigned long long>(histories),
              static_cast<unsigned long long>(first));
}

}  // namespace
}  // namespace tranche::arbiter
