#include "linux/unix_socket.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "linux/files.h"
#include "linux/test_support.h"

namespace tranche {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(UnixSocket, PassesDescriptorsWithAMessage) {
  auto pair = unix_socket_pair(SocketKind::kPacket);
  ASSERT_TRUE(pair);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const int sent[] = {writing.get(), reading.get()};
  ASSERT_TRUE(send_message(pair->first.get(), bytes_of("two"), sent));
  writing.reset();
  std::byte buffer[16];
  auto received = receive_message(pair->second.get(), buffer);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->size, 3u);
  ASSERT_EQ(received->file_descriptors.size(), 2u);
  EXPECT_NE(::fcntl(received->file_descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_TRUE(write_all(received->file_descriptors[0].get(), "through"));
  char text[8] = {};
  ASSERT_EQ(::read(reading.get(), text, 7), 7);
  EXPECT_STREQ(text, "through");
}

TEST(UnixSocket, RefusesAMessageThatDoesNotFitAndClosesWhatCameWithIt) {
  auto pair = unix_socket_pair(SocketKind::kPacket);
  ASSERT_TRUE(pair);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const int sent[] = {writing.get()};
  ASSERT_TRUE(send_message(pair->first.get(), bytes_of("longer than the buffer"), sent));
  writing.reset();
  std::byte buffer[4];
  auto received = receive_message(pair->second.get(), buffer);
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), ErrorCode::too_large);
  char byte = 0;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 0);  // no writer is left
}

TEST(UnixSocket, TellsTheEndFromNothing) {
  auto pair = unix_socket_pair(SocketKind::kPacket);
  ASSERT_TRUE(pair);
  ::fcntl(pair->second.get(), F_SETFL, O_NONBLOCK);
  std::byte buffer[4];
  EXPECT_EQ(receive_message(pair->second.get(), buffer).error().code(), ErrorCode::timed_out);
  pair->first.reset();
  auto end = receive_message(pair->second.get(), buffer);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->size, 0u);
  EXPECT_EQ(send_message(pair->second.get(), bytes_of("x")).error().code(), ErrorCode::unavailable);
}

TEST(UnixSocket, SaysWhenANonBlockingSocketIsFull) {
  auto pair = unix_socket_pair(SocketKind::kPacket);
  ASSERT_TRUE(pair);
  ::fcntl(pair->first.get(), F_SETFL, O_NONBLOCK);
  Result<void> sent;
  for (int i = 0; i < 100000 && sent; ++i) sent = send_message(pair->first.get(), bytes_of("message"));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), ErrorCode::over_limit);
}

TEST(UnixSocket, SendsALongStreamWholeThoughNonBlocking) {
  auto pair = unix_socket_pair(SocketKind::kStream);
  ASSERT_TRUE(pair);
  ::fcntl(pair->first.get(), F_SETFL, O_NONBLOCK);
  const std::string text(3'000'000, 'y');
  std::thread sender([&] { EXPECT_TRUE(send_message(pair->first.get(), bytes_of(text))); });
  std::vector<std::byte> buffer(65536);
  size_t total = 0;
  while (total < text.size()) {
    auto received = receive_message(pair->second.get(), buffer);
    ASSERT_TRUE(received);
    total += received->size;
  }
  sender.join();
  EXPECT_EQ(total, text.size());
}

TEST(ListenUnix, HasItsModeAndReplacesOnlyWhatNobodyServes) {
  TemporaryDirectory directory;
  const std::string path = directory.file("s");
  {
    auto first = listen_unix(path, SocketKind::kPacket, 0666);
    ASSERT_TRUE(first) << first.error().message();
    struct stat status = {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777u, 0666u);
    ASSERT_TRUE(connect_unix(path, SocketKind::kPacket));
    auto second = listen_unix(path, SocketKind::kPacket, 0666);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), ErrorCode::conflict);
  }
  EXPECT_EQ(connect_unix(path, SocketKind::kPacket).error().code(), ErrorCode::unavailable);
  EXPECT_TRUE(listen_unix(path, SocketKind::kPacket, 0600));
  // Nothing else is left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(ListenUnix, LeavesOtherFilesAlone) {
  TemporaryDirectory directory;
  const std::string path = directory.file("precious");
  ASSERT_TRUE(write_file_atomically(path, "data", 0600));
  EXPECT_EQ(listen_unix(path, SocketKind::kStream, 0666).error().code(), ErrorCode::conflict);
  EXPECT_EQ(*read_file(path, 10), "data");
}

TEST(ListenUnix, RefusesPathsThatDoNotFit) {
  const auto refused = listen_unix("/tmp/" + std::string(200, 'a'), SocketKind::kStream, 0666);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
}

TEST(PeerCredentials, KnowMoreGroupsThanTheFirstGuess) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to have many groups";
  auto pair = unix_socket_pair(SocketKind::kStream);
  ASSERT_TRUE(pair);
  ChildProcess child([] {
    std::vector<gid_t> groups;
    for (gid_t group = 5000; group < 5100; ++group) groups.push_back(group);
    if (::setgroups(groups.size(), groups.data()) != 0) return 90;
    auto own = unix_socket_pair(SocketKind::kStream);
    if (!own) return 91;
    auto peer = peer_credentials(own->first.get());
    return peer && peer->groups == groups && peer->pid == ::getpid() ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace tranche
