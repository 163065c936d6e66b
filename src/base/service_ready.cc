#include "base/service_ready.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace tranche {

void tell_service_manager_ready() {
  constexpr char kReady[] = "READY=1";
  const char* path = ::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = path == nullptr ? 0 : std::strlen(path);
  if (length > 1 && length < sizeof address.sun_path) {
    std::memcpy(address.sun_path, path, length);
    // '@' stands for the NUL of an abstract name, which is as long as it is.
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket >= 0) {
      (void)!::sendto(socket, kReady, sizeof kReady - 1, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                      size);
      ::close(socket);
    }
  }
  ::unsetenv("NOTIFY_SOCKET");
}

}  // namespace tranche
