#include "emulator/server_description.h"

#include <gtest/gtest.h>

#include "emulator/board.h"

namespace tranche::emulator {
namespace {

TEST(ServerDescriptionTest, BoardsAreNumberedAsWritten) {
  ServerDescription server;
  ASSERT_TRUE(add_boards("h100-80:2", server));
  ASSERT_TRUE(add_boards("t4", server));
  ASSERT_EQ(server.gpus.size(), 3u);
  EXPECT_EQ(boards()[server.gpus[0]].key, "h100-80");
  EXPECT_EQ(boards()[server.gpus[2]].key, "t4");
}

TEST(ServerDescriptionTest, BadBoardsAreRefusedWithWhatToDo) {
  for (const char* text : {"h100", "", ":4", "t4:0", "t4:65", "t4:-1", "t4:x", "t4:4:4", "t4: 4"}) {
    ServerDescription server;
    EXPECT_FALSE(add_boards(text, server)) << text;
    EXPECT_TRUE(server.gpus.empty()) << text;
  }
  ServerDescription server;
  const auto unknown = add_boards("h100", server);
  EXPECT_NE(unknown.error().message().find("h100-80"), std::string::npos);
  ASSERT_TRUE(add_boards("t4:60", server));
  EXPECT_FALSE(add_boards("t4:5", server)) << "more than 64 GPUs";
}

TEST(ServerDescriptionTest, AFileDescribesAServer) {
  const auto server = parse_server_description(
      "# the small lab\n name = lab-a \nboard = rtx4090:2 # two\n\ndriver=570.86.15\r\n");
  ASSERT_TRUE(server) << server.error().message();
  EXPECT_EQ(server->name, "lab-a");
  EXPECT_EQ(server->driver_version, "570.86.15");
  EXPECT_EQ(server->gpus.size(), 2u);
}

TEST(ServerDescriptionTest, AnErrorInAFileNamesItsLine) {
  const auto server = parse_server_description("name = lab\nbord = t4\n");
  ASSERT_FALSE(server);
  EXPECT_NE(server.error().message().find("line 2"), std::string::npos);
  EXPECT_FALSE(parse_server_description(""));
  EXPECT_FALSE(parse_server_description("board t4"));
  EXPECT_FALSE(parse_server_description("board = t4\ndriver = new"));
  EXPECT_EQ(parse_server_description("board = t4\ndriver = 570")->driver_version.substr(0, 4), "570.");
}

TEST(ServerDescriptionTest, AServerMayBeAGuest) {
  const auto guest = parse_server_description("board = t4\nguest = vgpu-unlicensed");
  ASSERT_TRUE(guest);
  EXPECT_EQ(guest->guest, Guest::vgpu);
  EXPECT_FALSE(guest->is_licensed);
  const auto wsl = parse_server_description("board = t4\nguest = wsl");
  ASSERT_FALSE(wsl);
  EXPECT_NE(wsl.error().message().find("nothing can be enforced"), std::string::npos);
  EXPECT_FALSE(parse_server_description("board = t4\nguest = cloud"));
}

TEST(ServerDescriptionTest, GpusMayBeSharedAsUnderMps) {
  const auto all = parse_server_description("board = t4:3\nsharing = mps");
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->mps_everywhere);
  const auto some = parse_server_description("board = t4:3\nsharing = mps@0,2");
  ASSERT_TRUE(some);
  EXPECT_FALSE(some->mps_everywhere);
  EXPECT_EQ(some->mps_gpus, (std::vector<uint32_t>{0, 2}));
  for (const char* bad : {"mps@", "mps@64", "mps@0,", "mps@-1", "fair"}) {
    EXPECT_FALSE(parse_server_description("board = t4:3\nsharing = " + std::string(bad))) << bad;
  }
}

TEST(BoardTest, EveryBoardIsPlausible) {
  for (const Board& board : boards()) {
    SCOPED_TRACE(board.key);
    EXPECT_LT(board.reserve_mib + board.context_mib, board.memory_mib);
    EXPECT_EQ((board.memory_mib - board.reserve_mib) % 2, 0u) << "usable memory is whole 2 MiB pages";
    EXPECT_EQ(board.context_mib % 2, 0u);
    EXPECT_LT(board.power_idle_mw, board.power_limit_mw);
    EXPECT_LT(board.temperature_busy, board.temperature_slowdown);
  }
}

}  // namespace
}  // namespace tranche::emulator
