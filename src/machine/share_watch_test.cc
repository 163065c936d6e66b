#include "machine/share_watch.h"

#include <gtest/gtest.h>

namespace tranche::machine {
namespace {

api::GpuList one_gpu(MiB part, std::vector<std::pair<JobId, std::optional<MiB>>> processes) {
  api::GpuStatus gpu;
  gpu.index = 3;
  api::SliceRow slice;
  slice.job = JobId(7);
  slice.user = "ada";
  slice.kind = SliceKind::fraction;
  slice.memory = part;
  gpu.slices.push_back(slice);
  for (const auto& [job, memory] : processes) {
    api::GpuProcess process;
    process.memory = memory;
    if (job.is_set()) process.job = job;
    gpu.processes.push_back(process);
  }
  return {{gpu}};
}

TEST(ShareWatch, NamesAJobWhoseProcessesTogetherHoldMoreThanItsPart) {
  const auto over = over_shares(one_gpu(MiB(2048), {{JobId(7), MiB(1500)}, {JobId(7), MiB(900)}}));
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].job, JobId(7));
  EXPECT_EQ(over[0].gpu, 3U);
  EXPECT_EQ(over[0].held, MiB(2400));
}

TEST(ShareWatch, GivesDriversTheirSlack) {
  EXPECT_TRUE(over_shares(one_gpu(MiB(2048), {{JobId(7), MiB(2048 + 256)}})).empty());
  EXPECT_FALSE(over_shares(one_gpu(MiB(2048), {{JobId(7), MiB(2048 + 257)}})).empty());
  EXPECT_TRUE(over_shares(one_gpu(MiB(50'000), {{JobId(7), MiB(51'000)}})).empty()) << "2 % of a large part";
}

TEST(ShareWatch, WhatABorrowerTakesPastTheGuardIsOverItsGuarantee) {
  api::GpuList gpus = one_gpu(MiB(4096), {{JobId(7), MiB(20'000)}});
  api::SliceRow& slice = gpus.gpus[0].slices[0];
  slice.memory_limit = MiB(22'528);
  slice.memory_charged = MiB(20'000);
  slice.processes = 1;
  EXPECT_TRUE(over_shares(gpus).empty()) << "it is counted, so it can be called in";
  slice.memory_charged = MiB(200);
  ASSERT_EQ(over_shares(gpus).size(), 1U);
  const OverShare over = over_shares(gpus)[0];
  EXPECT_EQ(over.kind, OverShare::Kind::over);
  EXPECT_EQ(
      to_text(over),
      "job 7 of ada holds 20000M of GPU 3 and has 22G, of which 4G are promised to it, but its programs go "
      "around the guard, which knows of 200M");
}

TEST(ShareWatch, SaysNothingOnMissingKnowledge) {
  EXPECT_TRUE(over_shares(one_gpu(MiB(2048), {{JobId(7), std::nullopt}})).empty())
      << "no answer is not zero, nor much";
  EXPECT_TRUE(over_shares(one_gpu(MiB(2048), {{JobId(), MiB(60'000)}})).empty()) << "somebody else's process";
  EXPECT_TRUE(over_shares(one_gpu(MiB(2048), {{JobId(8), MiB(60'000)}})).empty())
      << "a job without a part here";
}

}  // namespace
}  // namespace tranche::machine
