// What Exec refuses: a captured daemon must not get into another user's task by it.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "launcher/launcher_test_support.h"

namespace tranche::launcher {
namespace {

struct ExecClient {
  ExecClient() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own = isolation::FileDescriptor(ends[0]);
    other = isolation::FileDescriptor(ends[1]);
  }
  // Everything up to the end of the connection, frames and all.
  std::string rest() {
    other.close();
    std::string bytes;
    char block[4096];
    pollfd ready{own.get(), POLLIN, 0};
    while (::poll(&ready, 1, 20'000) == 1) {
      const ssize_t count = ::recv(own.get(), block, sizeof block, 0);
      if (count <= 0) return bytes;
      bytes.append(block, static_cast<size_t>(count));
    }
    ADD_FAILURE() << "the session did not end";
    return bytes;
  }
  isolation::FileDescriptor own;
  isolation::FileDescriptor other;
};

class ExecTest : public LauncherTest {
 protected:
  wire::Reply exec(uint64_t job, uint32_t uid, const std::vector<int>& files, uint32_t flags = 0) {
    wire::ExecRequest request{};
    request.header = {sizeof request, wire::kLauncherProtocolVersion,
                      static_cast<uint16_t>(wire::LauncherKind::exec), daemon().next_id()};
    request.key = {job, 0, 1};
    request.uid = uid;
    request.flags = flags;
    EXPECT_TRUE(daemon().send_raw(&request, sizeof request, files));
    return daemon().wait_reply(request.header.id);
  }
};

TEST_F(ExecTest, OnlyTheTasksOwnUserOnlyWhileItRuns) {
  start_launcher();
  begin(start_request(1, kAlice), shell("sleep 600"));
  const isolation::FileDescriptor block = make_sealed(encode_block(shell("echo uid $(id -u)")));
  const isolation::FileDescriptor unsealed = make_sealed(encode_block(shell("id")), false);
  ExecClient client;
  const int socket = client.other.get();
  EXPECT_EQ(exec(1, kBob, {block.get(), socket}).status, EPERM);
  EXPECT_EQ(exec(1, 0, {block.get(), socket}).status, EPERM);
  EXPECT_EQ(exec(2, kAlice, {block.get(), socket}).status, ESRCH);
  EXPECT_EQ(exec(1, kAlice, {block.get(), socket}, wire::kStartEmulatedNodes).status, EINVAL);
  EXPECT_NE(exec(1, kAlice, {unsealed.get(), socket}).status, 0);
  EXPECT_EQ(exec(1, kAlice, {block.get()}).status, EINVAL) << "no client";
  ASSERT_EQ(exec(1, kAlice, {block.get(), socket}).status, 0);
  EXPECT_NE(client.rest().find("uid " + std::to_string(kAlice)), std::string::npos);
  EXPECT_EQ(daemon().kill({1, 0, 1}, 0).status, 0);
  (void)end_of({1, 0, 1});
}

}  // namespace
}  // namespace tranche::launcher
