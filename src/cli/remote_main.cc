// tranche-remote HOST PORT CA-FILE: carries the bytes of its standard input, a socket, to a daemon with TLS.
// What goes wrong before is told on the socket as the daemon itself would tell it: HTTP with a problem.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "codec/api.h"
#include "linux/files.h"
#include "linux/tls_relay.h"

namespace tranche {
namespace {

constexpr Duration kTimeout{10 * kSecond.count()};

void tell(int socket, const Error& error) {
  const api::Problem problem = api::to_problem(error);
  const std::string body = api::encode(problem);
  // The request first: a socket that is closed over unread bytes loses what was sent.
  char block[4096];
  while (::recv(socket, block, sizeof block, MSG_DONTWAIT) > 0) continue;
  (void)write_all(socket,
                  "HTTP/1.1 " + std::to_string(problem.status) +
                      " Unreachable\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
                      "Content-Length: " +
                      std::to_string(body.size()) + "\r\n\r\n" + body);
  ::shutdown(socket, SHUT_WR);
  while (::recv(socket, block, sizeof block, 0) > 0) continue;
}

int run(const TlsServerName& server) {
  ::signal(SIGPIPE, SIG_IGN);
  auto connection = TlsConnection::connect(server, kTimeout);
  if (!connection) {
    tell(STDIN_FILENO, Error(connection.error().code(), "the daemon at " + server.host + ":" + server.port +
                                                            ": " + connection.error().message()));
    return 1;
  }
  connection->relay(STDIN_FILENO);
  return 0;
}

}  // namespace
}  // namespace tranche

int main(int count, char** words) {
  if (count != 4) return 2;
  return tranche::run({words[1], words[2], words[3]});
}
