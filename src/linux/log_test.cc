#include "linux/log.h"

#include <gtest/gtest.h>

#include <vector>

namespace tranche {
namespace {

class LogLines : public ::testing::Test {
 protected:
  LogLines() {
    set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  ~LogLines() override {
    set_log_sink({});
    set_log_level(LogLevel::info);
  }
  std::vector<std::string> lines_;
};

TEST_F(LogLines, AreLogfmt) {
  log(LogLevel::info, "job_started",
      {{"job", 7}, {"name", "a b"}, {"ok", true}, {"path", "/x"}, {"empty", ""}});
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0], R"(event=job_started job=7 name="a b" ok=true path=/x empty="")");
}

TEST_F(LogLines, CannotBeForgedByValues) {
  log(LogLevel::info, "x", {{"name", "a\nevent=forged\x1b[31m"}, {"quoted", "a\"b=c"}});
  log(LogLevel::info, "y", {{"name", "\u009b31m"}});
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[1], "event=y name=\"\\u009b31m\"");
  EXPECT_EQ(lines_[0], R"(event=x name="a\nevent=forged\u001b[31m" quoted="a\"b=c")");
}

TEST_F(LogLines, AreCutWhenAValueIsLong) {
  log(LogLevel::info, "x", {{"name", std::string(100'000, 'a')}});
  EXPECT_LT(lines_[0].size(), 5000u);
}

TEST_F(LogLines, BelowTheLevelAreNotWritten) {
  log(LogLevel::debug, "quiet");
  set_log_level(LogLevel::debug);
  log(LogLevel::debug, "loud");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0], "event=loud");
}

}  // namespace
}  // namespace tranche
