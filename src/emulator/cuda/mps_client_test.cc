#include "emulator/cuda/mps_client.h"

#include <gtest/gtest.h>

namespace tranche::emulator::cuda {
namespace {

// enforcement.md 1: 50 % of 188 multiprocessors are 94, and 25 % are 46.
TEST(MpsClientTest, APercentageLeavesWholePairsOfMultiprocessors) {
  EXPECT_EQ(multiprocessors_of_client("50", 188), 94u);
  EXPECT_EQ(multiprocessors_of_client("25", 188), 46u);
  EXPECT_EQ(multiprocessors_of_client("0.1", 188), 2u);
  for (const char* all : {"", "100", "0", "-5", "half"})
    EXPECT_EQ(multiprocessors_of_client(all, 188), 188u) << all;
}

TEST(MpsClientTest, MemoryLimitsAreByDeviceOfTheProcess) {
  EXPECT_EQ(memory_limits_of_client("1=2G", 2), (std::vector<uint64_t>{UINT64_MAX, uint64_t{2} << 30}));
  EXPECT_EQ(memory_limits_of_client("0=512MB,1=1024K", 2),
            (std::vector<uint64_t>{uint64_t{512} << 20, uint64_t{1} << 20}));
  EXPECT_TRUE(memory_limits_of_client("", 2).empty());
}

// enforcement.md 1: an invisible GPU in the list makes the client drop all limits.
TEST(MpsClientTest, AnInvisibleGpuInTheListDropsAllLimits) {
  EXPECT_TRUE(memory_limits_of_client("0=1G,2=1G", 2).empty());
  for (const char* bad : {"0", "=1G", "x=1G", "0=1Q", "0=-1", "0="}) {
    EXPECT_TRUE(memory_limits_of_client(bad, 2).empty()) << bad;
  }
}

}  // namespace
}  // namespace tranche::emulator::cuda
