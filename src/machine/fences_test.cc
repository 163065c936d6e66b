#include "machine/fences.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tranche::machine {
namespace {

// A machine of two GPUs, of which the driver holds parts on the second.
class Fences : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/tranche-fences-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    config_.run_dir = folder;
    std::filesystem::create_directory(config_.run_dir + "/guard");
    write("libcuda.so.1", "");
    write("fences", "driver 615.20\nGPU-a held\nGPU-b held\n");
    write("limits", "GPU-a the driver gave memory beyond the limit\nGPU-b enforced\n");
    Node node;
    node.id = NodeId(1);
    node.name = "n";
    step(NodeAdded{node});
    add_gpu(7, "GPU-a");
    add_gpu(3, "GPU-b");
  }
  void TearDown() override { std::filesystem::remove_all(config_.run_dir); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(config_.run_dir + "/guard/" + name) << text;
  }
  void step(EventPayload payload) {
    ++seq_;
    scheduler_.step({EventSeq(seq_), Time(static_cast<int64_t>(seq_)), std::move(payload)});
  }
  void add_gpu(uint32_t id, const std::string& uuid) {
    Gpu gpu;
    gpu.id = GpuId(id);
    gpu.node = NodeId(1);
    gpu.uuid = uuid;
    gpu.index = id;
    gpu.type = "h100-80";
    gpu.memory_usable = MiB(1000);
    step(GpuAdded{gpu});
  }
  Policy policy(const std::string& driver = "615.20") {
    return effective_policy(config_, driver, scheduler_);
  }

  DaemonConfig config_;
  scheduler::Scheduler scheduler_;
  uint64_t seq_ = 0;
};

TEST_F(Fences, UsersMeetWhereTheDriverHoldsParts) {
  EXPECT_FALSE(policy().users_share_gpu);
  EXPECT_EQ(policy().users_share_gpus, std::vector<GpuId>{GpuId(3)});
  const FractionFence fence = fraction_fence(config_.run_dir, "615.20");
  EXPECT_EQ(fence.on("GPU-a"), api::Tier::guarded);
  EXPECT_EQ(fence.on("GPU-b"), api::Tier::enforced);
}

TEST_F(Fences, WhereItHoldsAllTheyMeetEverywhere) {
  write("limits", "GPU-a enforced\nGPU-b enforced\n");
  EXPECT_TRUE(policy().users_share_gpu);
  EXPECT_TRUE(policy().users_share_gpus.empty());
}

TEST_F(Fences, WithoutRootNothingIsMoreThanCourtesy) {
  config_.personal = true;
  write("limits", "GPU-a enforced\nGPU-b enforced\n");
  const FractionFence fence = fraction_fence(config_, "615.20");
  EXPECT_EQ(fence.on("GPU-b"), api::Tier::courtesy);
  EXPECT_EQ(tier_of(SliceKind::fraction, fence), api::Tier::courtesy);
  EXPECT_EQ(tier_of(SliceKind::whole, fence), api::Tier::unenforced);
  EXPECT_FALSE(policy().users_share_gpu);
  // What would hold is not there: then nothing is held, and what to do is said for this mode.
  const FractionFence stale = fraction_fence(config_, "620.10");
  EXPECT_EQ(stale.tier, api::Tier::unenforced);
  EXPECT_NE(stale.remedy.find("tranche-up start --personal"), std::string::npos) << stale.remedy;
  config_.personal = false;
  EXPECT_EQ(tier_of(SliceKind::whole, fraction_fence(config_, "615.20")), api::Tier::enforced);
}

TEST_F(Fences, WhatWasSeenOfAnotherDriverProvesNothing) {
  EXPECT_TRUE(policy("620.10").users_share_gpus.empty());
  EXPECT_FALSE(policy("620.10").users_share_gpu);
}

TEST_F(Fences, TheConfigurationHasTheLastWord) {
  config_.users_share = UsersShare::never;
  EXPECT_TRUE(policy().users_share_gpus.empty());
  config_.users_share = UsersShare::always;
  config_.policy.users_share_gpu = true;
  EXPECT_TRUE(policy().users_share_gpu);
}

}  // namespace
}  // namespace tranche::machine
