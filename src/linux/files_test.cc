#include "linux/files.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "linux/digest.h"
#include "linux/process_identity.h"
#include "linux/test_support.h"

namespace tranche {
namespace {

TEST(Files, ReadsUpToTheLimitAndNoFurther) {
  TemporaryDirectory directory;
  const std::string path = directory.file("f");
  ASSERT_TRUE(write_file_atomically(path, std::string(50'000, 'a'), 0640));
  EXPECT_EQ(read_file(path, 50'000)->size(), 50'000u);
  EXPECT_EQ(read_file(path, 49'999).error().code(), ErrorCode::too_large);
  EXPECT_EQ(read_file(directory.file("none"), 10).error().code(), ErrorCode::not_found);
  EXPECT_EQ(read_file(directory.path(), 10).error().code(), ErrorCode::invalid_argument);
  ASSERT_EQ(::mkfifo(directory.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_file(directory.file("fifo"), 10).error().code(), ErrorCode::invalid_argument);
}

TEST(Files, ReplacesWholeAndLeavesNothingBehind) {
  TemporaryDirectory directory;
  const std::string path = directory.file("f");
  ASSERT_TRUE(write_file_atomically(path, "old", 0600));
  ASSERT_TRUE(write_file_atomically(path, "new", 0644));
  EXPECT_EQ(*read_file(path, 10), "new");
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0644u);
  EXPECT_EQ(write_file_atomically(directory.file("no/f"), "x", 0600).error().code(), ErrorCode::not_found);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(ProcessIdentity, ReadsStartTimesPastAnyName) {
  ChildProcess child([] {
    ::prctl(PR_SET_NAME, "a) R 1 2 (b");
    ::pause();
    return 0;
  });
  while (read_file("/proc/" + std::to_string(child.pid()) + "/stat", 8192)->find("a) R 1 2 (b") ==
         std::string::npos) {
  }
  const auto own = process_start_ticks(::getpid());
  const auto named = process_start_ticks(child.pid());
  ASSERT_TRUE(own);
  ASSERT_TRUE(named);
  EXPECT_GE(*named, *own);
  EXPECT_LE(*named, *own + 100'000);  // ticks: the same quarter of an hour
}

TEST(ProcessIdentity, OpensExactlyThatProcess) {
  ChildProcess child([] {
    ::pause();
    return 0;
  });
  auto identity = identify_process(child.pid());
  ASSERT_TRUE(identity);
  EXPECT_TRUE(open_pidfd(*identity));
  ProcessIdentity other = *identity;
  ++other.start_ticks;
  EXPECT_EQ(open_pidfd(other).error().code(), ErrorCode::not_found);
  child.finish(SIGKILL);
  EXPECT_EQ(open_pidfd(*identity).error().code(), ErrorCode::not_found);
}

TEST(Digest, AgreesWithThePublishedVectors) {
  // FIPS 180-2, appendix B.1, and the empty message.
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace tranche
