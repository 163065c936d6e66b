#include "emulator/cuda/visible_devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace tranche::emulator::cuda {
namespace {

using Gpus = std::vector<uint32_t>;

// A server of a T4, two H100 and an L40S.
class VisibleDevicesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "visible_devices_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    ServerDescription server;
    for (const char* board : {"t4", "h100-80:2", "l40s"}) ASSERT_TRUE(add_boards(board, server));
    model_ = std::move(*DeviceModel::create(pattern, server));
    for (const char* name : {"/device_model", "/processes"}) unlink((pattern + name).c_str());
    rmdir(pattern.c_str());
  }
  Gpus select(std::string_view visible) { return select_devices(*model_, {0, 1, 2, 3}, visible); }
  std::string uuid(uint32_t gpu) { return model_->identity(gpu).uuid_text.data(); }

  std::unique_ptr<DeviceModel> model_;
};

TEST_F(VisibleDevicesTest, TheFastestComesFirstUnlessByBus) {
  EXPECT_EQ(order_devices(*model_, {0, 1, 2, 3}, "PCI_BUS_ID"), (Gpus{0, 1, 2, 3}));
  const Gpus ordered = order_devices(*model_, {0, 3, 1}, "");
  EXPECT_EQ(ordered[0], 3u) << "more cores times clock than an H100";
  EXPECT_EQ(order_devices(*model_, {0, 1, 2}, "FASTEST_FIRST"), (Gpus{1, 0, 2}));
}

TEST_F(VisibleDevicesTest, IndicesSelectAndOrder) {
  EXPECT_EQ(select("2,0"), (Gpus{2, 0}));
  EXPECT_EQ(select(" 1 , 3"), (Gpus{1, 3}));
  EXPECT_EQ(select_devices(*model_, {3, 1}, "1"), (Gpus{1})) << "an index counts in what is there";
}

TEST_F(VisibleDevicesTest, TheListEndsAtWhatNamesNothing) {
  EXPECT_EQ(select(""), Gpus{});
  EXPECT_EQ(select("-1"), Gpus{});
  EXPECT_EQ(select("NoDevFiles"), Gpus{});
  EXPECT_EQ(select("1,4,0"), (Gpus{1}));
  EXPECT_EQ(select("1,-1,0"), (Gpus{1}));
  EXPECT_EQ(select("1,,0"), (Gpus{1}));
}

TEST_F(VisibleDevicesTest, UuidsMayBeShortenedWhileTheyAreUnique) {
  EXPECT_EQ(select(uuid(2) + "," + uuid(0)), (Gpus{2, 0}));
  EXPECT_EQ(select(uuid(3).substr(0, 12)), (Gpus{3}));
  EXPECT_EQ(select("GPU-"), Gpus{}) << "names all of them";
  EXPECT_EQ(select("GPU-zzzz,0"), Gpus{});
}

TEST_F(VisibleDevicesTest, NamingOneTwiceSelectsNone) {
  EXPECT_EQ(select("1,1"), Gpus{});
  EXPECT_EQ(select("1," + uuid(1)), Gpus{});
}

}  // namespace
}  // namespace tranche::emulator::cuda
