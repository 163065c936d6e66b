#include "base/service_ready.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace tranche {
namespace {

// What a service manager that listens on `name` was told; '@' first: an abstract name.
std::string told_to(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  tell_service_manager_ready();
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr) << "a child would speak for the service";
  char text[64] = {};
  const ssize_t count = ::recv(socket, text, sizeof text, MSG_DONTWAIT);
  ::close(socket);
  return std::string(text, count > 0 ? static_cast<size_t>(count) : 0);
}

TEST(ServiceReady, IsToldAtAPathAndUnderAnAbstractName) {
  char folder[] = "/tmp/tranche-ready-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/notify";
  EXPECT_EQ(told_to(path), "READY=1");
  ::unlink(path.c_str());
  ::rmdir(folder);
  EXPECT_EQ(told_to("@tranche-ready-" + std::to_string(::getpid())), "READY=1");
}

TEST(ServiceReady, NobodyToTellIsNoTrouble) {
  ::unsetenv("NOTIFY_SOCKET");
  tell_service_manager_ready();
  ::setenv("NOTIFY_SOCKET", std::string(500, 'x').c_str(), 1);
  tell_service_manager_ready();
  ::setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
  tell_service_manager_ready();
}

}  // namespace
}  // namespace tranche
