// Numeric internet addresses of listeners and clients.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "linux/unique_fd.h"

namespace tranche {

struct ListeningSocket {
  UniqueFd socket;
  uint16_t port = 0;
};
// "0.0.0.0:7443" or "[::]:7443", which serves IPv4 too; port 0 chooses one. Names are not looked up.
Result<ListeningSocket> listen_internet(const std::string& address, int backlog);

struct InternetAddress {
  std::string text;
  int64_t key = 0;  // below -1; the same for one IPv4 address or one IPv6 network of 64 bits
};
// Of the client at the other end.
InternetAddress peer_address(int socket);
// What `key` stands for, for logs: "192.0.2.7", "2001:db8::/64".
std::string address_text(int64_t key);

// Small answers go out at once.
void send_without_delay(int socket);

}  // namespace tranche
