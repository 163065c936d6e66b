#include "base/failpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace tranche {
namespace {

class FailpointTest : public ::testing::Test {
 protected:
  FailpointTest() {
    char name[] = "/tmp/tranche-failpoints-XXXXXX";
    const int file = ::mkstemp(name);
    path_ = name;
    EXPECT_EQ(::ftruncate(file, sizeof(FailpointTable)), 0);
    ::close(file);
  }
  ~FailpointTest() override { ::unlink(path_.c_str()); }

  struct Seen {
    uint64_t passed = 0;
    std::string name;
  };
  Seen read(FailpointRole role) const {
    std::string bytes(sizeof(FailpointSlot), '\0');
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(sizeof(FailpointSlot)) * static_cast<int>(role));
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    Seen seen;
    std::memcpy(&seen.passed, bytes.data() + offsetof(FailpointSlot, passed), sizeof seen.passed);
    seen.name = bytes.data() + offsetof(FailpointSlot, name);
    return seen;
  }
  void abort_at(FailpointRole role, uint64_t n) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(sizeof(FailpointSlot)) * static_cast<int>(role));
    file.write(reinterpret_cast<const char*>(&n), sizeof n);
  }
  // Runs `body` in a process that is armed; its wait status.
  template <class Body>
  int in_child(const Body& body) const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setenv("TRANCHE_FAILPOINTS", path_.c_str(), 1);
      arm_failpoints(FailpointRole::daemon);
      body();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }
  std::string path_;
};

TEST_F(FailpointTest, DiesAtTheNthPlaceAsByKill) {
  abort_at(FailpointRole::daemon, 3);
  const int status = in_child([] {
    for (const char* name : {"one", "two", "three", "four"}) failpoint(name);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(read(FailpointRole::daemon).passed, 3U);
  EXPECT_EQ(read(FailpointRole::daemon).name, "three");
}

TEST_F(FailpointTest, CountsEachRoleAndGoesOnAfterTheNth) {
  abort_at(FailpointRole::shepherd, 2);
  EXPECT_EQ(in_child([] {
              failpoint("daemon's");
              failpoint("daemon's");
              set_failpoint_role(FailpointRole::shepherd);
              failpoint("shepherd's");
            }),
            0);
  EXPECT_EQ(read(FailpointRole::daemon).passed, 2U);
  EXPECT_EQ(read(FailpointRole::shepherd).passed, 1U);
}

TEST_F(FailpointTest, AFileThatIsNoneArmsNothing) {
  ASSERT_EQ(::truncate(path_.c_str(), 8), 0);
  EXPECT_EQ(in_child([] { failpoint("anywhere"); }), 0);
}

}  // namespace
}  // namespace tranche
