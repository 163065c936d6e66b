#include "machine/least_part.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tranche::machine {
namespace {

Gpu gpu_of(const std::string& uuid, const std::string& type, int64_t usable) {
  Gpu gpu;
  gpu.uuid = uuid;
  gpu.type = type;
  gpu.memory_usable = MiB(usable);
  return gpu;
}

class LeastPart : public testing::Test {
 protected:
  std::string refusal(int64_t memory, int64_t milli = 0, const std::string& type = "", int64_t limit = 0) {
    GpuRequest request;
    request.count = 1;
    request.kind = SliceKind::fraction;
    request.memory = MiB(memory);
    request.memory_limit = MiB(limit);
    request.compute = MilliGpu(milli);
    request.type = type;
    const auto may = check_least_part(request, {&small_, &large_}, {MiB(130), MiB(520)});
    return may ? "" : may.error().message();
  }

  Gpu small_ = gpu_of("GPU-1", "t4", 15'000);
  Gpu large_ = gpu_of("GPU-2", "h100-80", 80'000);
};

TEST_F(LeastPart, ForgottenUnitsAreNamed) {
  EXPECT_EQ(refusal(10),
            "a part of 10M of a GPU is less than a context of about 130M takes, so no program could start in "
            "it: did you mean --gpu-mem 10G?");
  EXPECT_NE(refusal(10, 0, "", 20).find("did you mean --gpu-mem 10G..20G?"), std::string::npos);
  EXPECT_NE(refusal(100).find(": ask for more"), std::string::npos) << "no GPU has 100G";
  EXPECT_EQ(refusal(130), "");
}

TEST_F(LeastPart, IsJudgedByTheGpusThatWouldDo) {
  EXPECT_NE(refusal(200, 0, "h100-80").find("about 520M"), std::string::npos);
  EXPECT_EQ(refusal(200, 0, "t4"), "");
  EXPECT_NE(refusal(0, 1).find("a part of 15M"), std::string::npos) << refusal(0, 1);
  EXPECT_EQ(refusal(0, 10), "") << "800M of the large one";
  EXPECT_EQ(refusal(10, 0, "", 1000), "") << "it may borrow what a context takes";
  EXPECT_EQ(refusal(10, 0, "b200"), "") << "that there are none is said elsewhere";
}

TEST_F(LeastPart, WhatWasNotMeasuredIsNotSaidToBe) {
  GpuRequest request;
  request.count = 1;
  request.kind = SliceKind::fraction;
  request.memory = MiB(10);
  EXPECT_NE(
      check_least_part(request, {&small_}, {kLeastContext}).error().message().find("anywhere (64M), so"),
      std::string::npos);
}

TEST_F(LeastPart, WholeGpusAreNoParts) {
  GpuRequest whole;
  whole.count = 1;
  EXPECT_TRUE(check_least_part(whole, {&small_}, {MiB(130)}));
}

TEST_F(LeastPart, SizesAreThoseThatWereMeasured) {
  char folder[] = "/tmp/tranche-least-part-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  std::filesystem::create_directory(std::string(folder) + "/guard");
  std::ofstream(std::string(folder) + "/guard/contexts") << "GPU-2 545259521\nGPU-1 many\nnonsense\n";
  EXPECT_EQ(context_sizes(folder, {&small_, &large_}), (std::vector<MiB>{kLeastContext, MiB(521)}));
  EXPECT_EQ(context_sizes(std::string(folder) + "/nowhere", {&large_}), (std::vector<MiB>{kLeastContext}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tranche::machine
