#include "linux/personal_folders.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

namespace tranche {
namespace {

class PersonalFoldersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/personal_folders.XXXXXX";
    runtime_ = ::mkdtemp(folder);
  }
  void TearDown() override { std::filesystem::remove_all(runtime_); }

  Variable variables() {
    return [this](const char* name) {
      const auto found = values_.find(name);
      return found == values_.end() ? std::string() : found->second;
    };
  }

  std::string runtime_;
  std::map<std::string, std::string> values_;
};

TEST_F(PersonalFoldersTest, AreThoseThatTheVariablesName) {
  values_ = {{"HOME", "/home/ada"},
             {"XDG_RUNTIME_DIR", "/run/user/7"},
             {"XDG_STATE_HOME", "/state"},
             {"XDG_CONFIG_HOME", "/config"}};
  const auto folders = personal_folders(variables(), 7);
  ASSERT_TRUE(folders);
  EXPECT_EQ(folders->run, "/run/user/7/tranche");
  EXPECT_TRUE(folders->state.starts_with("/state/tranche/"));
  EXPECT_EQ(folders->config, "/config/tranche/tranche.toml");
}

TEST_F(PersonalFoldersTest, AreInTheHomeOtherwise) {
  values_ = {{"HOME", "/home/ada"}, {"XDG_STATE_HOME", "relative"}};
  const auto folders = personal_folders(variables(), 7);
  ASSERT_TRUE(folders);
  EXPECT_EQ(folders->run, "/tmp/tranche-7");
  EXPECT_TRUE(folders->state.starts_with("/home/ada/.local/state/tranche/"));
  EXPECT_EQ(folders->config, "/home/ada/.config/tranche/tranche.toml");
}

TEST_F(PersonalFoldersTest, AreRefusedWithoutAHome) {
  const auto folders = personal_folders(variables(), 7);
  ASSERT_FALSE(folders);
  EXPECT_NE(folders.error().message().find("HOME"), std::string::npos);
}

TEST_F(PersonalFoldersTest, ASocketIsLookedForInOnesOwnFoldersOnly) {
  values_ = {{"XDG_RUNTIME_DIR", runtime_}};
  EXPECT_TRUE(personal_sockets(variables(), ::geteuid() + 77).empty());
  std::filesystem::create_directory(runtime_ + "/tranche");
  const auto sockets = personal_sockets(variables(), ::geteuid());
  ASSERT_FALSE(sockets.empty());
  EXPECT_EQ(sockets.front(), runtime_ + "/tranche/tranche.sock");
  // Somebody else's, in our way.
  for (const std::string& socket : personal_sockets(variables(), ::geteuid() + 77))
    EXPECT_NE(socket, runtime_ + "/tranche/tranche.sock");
}

}  // namespace
}  // namespace tranche
