#include "gpu/board_type.h"

#include <gtest/gtest.h>

namespace tranche {
namespace {

TEST(BoardType, KnowsBoardsByNameAndMemory) {
  EXPECT_EQ(board_type("Tesla T4", MiB(15360)), "t4");
  EXPECT_EQ(board_type("NVIDIA GeForce RTX 4090", MiB(24564)), "rtx4090");
  EXPECT_EQ(board_type("NVIDIA L40S", MiB(46068)), "l40s");
  EXPECT_EQ(board_type("NVIDIA A100-SXM4-40GB", MiB(40960)), "a100-40");
  EXPECT_EQ(board_type("A100-PCIE-40GB", MiB(40536)), "a100-40");
  EXPECT_EQ(board_type("NVIDIA A100 80GB PCIe", MiB(81920)), "a100-80");
  EXPECT_EQ(board_type("NVIDIA H100 80GB HBM3", MiB(81559)), "h100-80");
  EXPECT_EQ(board_type("NVIDIA H100 PCIe", MiB(81559)), "h100-80");
  EXPECT_EQ(board_type("NVIDIA H200", MiB(143771)), "h200");
  EXPECT_EQ(board_type("NVIDIA B200", MiB(183359)), "b200");
  EXPECT_EQ(board_type("NVIDIA A30", MiB(24576)), "a30");
  EXPECT_EQ(board_type("NVIDIA RTX PRO 6000 Blackwell Server Edition", MiB(97887)), "rtxpro6000");
  EXPECT_EQ(board_type("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", MiB(97887)), "rtxpro6000");
}

TEST(BoardType, ANameIsNotEnough) {
  EXPECT_EQ(board_type("NVIDIA H100 NVL", MiB(95830)), "h100-nvl-94");
  EXPECT_EQ(board_type("NVIDIA GeForce RTX 4090 Laptop GPU", MiB(16376)), "rtx-4090-laptop-gpu-16");
  EXPECT_EQ(board_type("NVIDIA GeForce RTX 4090 D", MiB(24564)), "rtx-4090-d-24");
  EXPECT_EQ(board_type("NVIDIA GB200", MiB(189471)), "gb200-185");
  EXPECT_EQ(board_type("NVIDIA RTX PRO 6000 Blackwell Max-Q", MiB(49140)), "rtx-pro-6000-blackwell-max-q-48");
}

TEST(BoardType, OthersGetASlug) {
  EXPECT_EQ(board_type("NVIDIA RTX A6000", MiB(49140)), "rtx-a6000-48");
  EXPECT_EQ(board_type("Tesla V100-SXM2-32GB", MiB(32768)), "v100-sxm2-32");
  EXPECT_EQ(board_type("", MiB(0)), "gpu");
  EXPECT_EQ(board_type("\n\"; rm -rf /\xff", MiB(8192)), "rm-rf-8");
  const std::string longest = board_type(std::string(300, 'x'), MiB(999'999'999));
  EXPECT_LE(longest.size(), 40u);
  EXPECT_TRUE(longest.ends_with("-976562"));
}

}  // namespace
}  // namespace tranche
