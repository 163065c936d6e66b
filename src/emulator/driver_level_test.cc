#include "emulator/driver_level.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tranche::emulator {
namespace {

TEST(DriverLevelTest, TheFilesAreWellFormed) {
  EXPECT_EQ(driver_level_mistakes(), std::vector<std::string>{});
  std::vector<int> branches;
  for (const DriverLevel& level : driver_levels()) branches.push_back(level.branch());
  EXPECT_EQ(branches, (std::vector<int>{470, 535, 550, 570, 580, 595, 615, 620}));
}

TEST(DriverLevelTest, AVersionHasTheNearestLevelBelowIt) {
  EXPECT_EQ(driver_level("550.163.01").branch(), 550);
  EXPECT_EQ(driver_level("565.57.01").branch(), 550);
  EXPECT_EQ(driver_level("999.1").branch(), 620);
  EXPECT_EQ(driver_level("390.157").branch(), 470) << "older than all";
}

// The CUDA toolkit release notes' table of driver releases.
TEST(DriverLevelTest, CudaVersionFollowsTheDriver) {
  EXPECT_EQ(cuda_version_of_driver("470.256.02"), 11040);
  EXPECT_EQ(cuda_version_of_driver("535.54.03"), 12020);
  EXPECT_EQ(cuda_version_of_driver("550.163.01"), 12040);
  EXPECT_EQ(cuda_version_of_driver("565.57.01"), 12070);
  EXPECT_EQ(cuda_version_of_driver("570.86.15"), 12080);
  EXPECT_EQ(cuda_version_of_driver("580.95.05"), 13000);
  EXPECT_EQ(cuda_version_of_driver("590.48.01"), 13010);
  EXPECT_EQ(cuda_version_of_driver("615.71.09"), 13040);
}

TEST(DriverLevelTest, ALevelOrAWholeVersionNamesADriver) {
  EXPECT_EQ(*driver_version_of("570"), driver_level("570").version());
  EXPECT_EQ(*driver_version_of("550.54.14"), "550.54.14");
  const auto unknown = driver_version_of("571");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("470, 535, 550, 570"), std::string::npos);
  EXPECT_FALSE(driver_version_of("newest"));
  EXPECT_FALSE(driver_version_of(""));
}

// Change log of NVML: memory limits of cgroups came with release 615.
TEST(DriverLevelTest, FunctionsComeWithTheirRelease) {
  EXPECT_FALSE(driver_level("595").has("nvmlDeviceSetMemoryLimits_v1"));
  EXPECT_TRUE(driver_level("615").has("nvmlDeviceSetMemoryLimits_v1"));
  EXPECT_TRUE(driver_level("470").has("nvmlDeviceGetName")) << "named by no file";
  const auto absent = absent_symbols("595.45.04");
  EXPECT_TRUE(std::is_sorted(absent.begin(), absent.end()));
  EXPECT_TRUE(std::binary_search(absent.begin(), absent.end(), "nvmlDeviceSetMemoryLimits_v1"));
}

// nvitop#75: it chooses a layout of the process list by the absence of this function, which 535.98 brought.
TEST(DriverLevelTest, SomeFunctionsComeWithinARelease) {
  const auto lacks = [](std::string_view version) {
    const auto absent = absent_symbols(version);
    return std::binary_search(absent.begin(), absent.end(), "nvmlDeviceGetRunningProcessDetailList");
  };
  EXPECT_TRUE(lacks("525.147.05"));
  EXPECT_TRUE(lacks("535.54.03"));
  EXPECT_FALSE(lacks("535.98"));
  EXPECT_FALSE(lacks("535.183.06"));
  EXPECT_FALSE(lacks("550.54.14"));
}

}  // namespace
}  // namespace tranche::emulator
