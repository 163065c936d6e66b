#include "cli/log_file.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "cli/fake_daemon.h"

namespace tranche::cli {
namespace {

using testing::TemporaryDirectory;
using testing::write_text;

std::string last_lines(const std::string& text, size_t lines) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/log";
  write_text(path, text);
  const Result<UniqueFd> file = open_log(path);
  const Result<int64_t> offset = last_lines_offset(file->get(), lines);
  return text.substr(static_cast<size_t>(*offset));
}

TEST(LogFile, LastLines) {
  EXPECT_EQ(last_lines("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(last_lines("a\nb\nc", 2), "b\nc");
  EXPECT_EQ(last_lines("a\n", 5), "a\n");
  EXPECT_EQ(last_lines("", 5), "");
  EXPECT_EQ(last_lines("\n\n\n", 2), "\n\n");
  std::string many;
  for (int i = 0; i < 40'000; ++i) many += "line " + std::to_string(i) + "\n";
  EXPECT_EQ(last_lines(many, 1), "line 39999\n");
  EXPECT_EQ(last_lines(many, 40'000), many);
}

TEST(LogFile, OnlyRegularFilesAreOpened) {
  const TemporaryDirectory directory;
  const std::string fifo = directory.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(open_log(fifo).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(open_log(directory.path()).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(open_log(directory.path() + "/none").error().code(), ErrorCode::not_found);
}

// Reads exactly `size` bytes, so that the writer knows the follower has seen them.
std::string read_exactly(int file, size_t size) {
  std::string text(size, '\0');
  size_t got = 0;
  while (got < size) {
    const ssize_t count = read(file, text.data() + got, size - got);
    if (count <= 0) break;
    got += static_cast<size_t>(count);
  }
  text.resize(got);
  return text;
}

TEST(LogFile, FollowsFromBeforeTheFirstByteToTheEnd) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/log";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const UniqueFd ended(eventfd(0, 0));
  std::thread follower([&] {
    EXPECT_TRUE(follow_log(path, UniqueFd(), ended.get(), writing.get()).has_value());
    writing.reset();
  });
  write_text(path, "one\n");
  EXPECT_EQ(read_exactly(reading.get(), 4), "one\n");
  write_text(path, "two\n");
  EXPECT_EQ(read_exactly(reading.get(), 4), "two\n");
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  write_text(path, "3\n");
  EXPECT_EQ(read_exactly(reading.get(), 2), "3\n");
  write_text(path, "last\n");
  const uint64_t one = 1;
  ASSERT_EQ(write(ended.get(), &one, sizeof one), 8);
  EXPECT_EQ(read_exactly(reading.get(), 100), "last\n");
  follower.join();
}

TEST(LogFile, AJobThatNeverWroteEndsQuietly) {
  const TemporaryDirectory directory;
  const UniqueFd ended(eventfd(1, 0));
  EXPECT_TRUE(follow_log(directory.path() + "/none", UniqueFd(), ended.get(), STDOUT_FILENO).has_value());
}

}  // namespace
}  // namespace tranche::cli
