#include "linux/internet_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/quantity_text.h"
#include "linux/system_error.h"

namespace tranche {
namespace {

// Keys: -2 less the 32 bits of an IPv4 address, or less those and the first 62 bits of an IPv6 one.
constexpr int64_t kFirstKey = -2;
constexpr int64_t kIpv4Keys = int64_t{1} << 32;

InternetAddress of_ipv4(uint32_t address) {
  const int64_t key = kFirstKey - int64_t{address};
  return {address_text(key), key};
}

InternetAddress of_ipv6(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    uint32_t last = 0;
    std::memcpy(&last, &address.s6_addr[12], sizeof last);
    return of_ipv4(ntohl(last));
  }
  uint64_t network = 0;
  for (int i = 0; i < 8; ++i) network = (network << 8) | address.s6_addr[i];
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, &address, text.data(), text.size());
  return {text.data(), kFirstKey - kIpv4Keys - static_cast<int64_t>(network >> 2)};
}

Result<socklen_t> parse(const std::string& address, sockaddr_storage& parsed) {
  const auto wrong = [&] {
    return fail(ErrorCode::invalid_argument,
                address + " is no numeric address with a port, such as 0.0.0.0:7443 or [::]:7443");
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return wrong();
  const auto port = parse_integer(std::string_view(address).substr(colon + 1), 0, 65535, "a port");
  if (!port) return wrong();
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    sockaddr_in6 own{};
    own.sin6_family = AF_INET6;
    own.sin6_port = htons(static_cast<uint16_t>(*port));
    if (::inet_pton(AF_INET6, host.c_str(), &own.sin6_addr) != 1) return wrong();
    std::memcpy(&parsed, &own, sizeof own);
    return socklen_t{sizeof own};
  }
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(static_cast<uint16_t>(*port));
  if (::inet_pton(AF_INET, host.c_str(), &own.sin_addr) != 1) return wrong();
  std::memcpy(&parsed, &own, sizeof own);
  return socklen_t{sizeof own};
}

}  // namespace

Result<ListeningSocket> listen_internet(const std::string& address, int backlog) {
  sockaddr_storage where{};
  TRY_ASSIGN(socklen_t size, parse(address, where));
  ListeningSocket listening;
  listening.socket = UniqueFd(::socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int socket = listening.socket.get();
  if (socket < 0) return fail(system_error("making a socket"));
  const int yes = 1;
  const int no = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (where.ss_family == AF_INET6) ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  auto* generic = reinterpret_cast<sockaddr*>(&where);
  if (::bind(socket, generic, size) != 0 || ::listen(socket, backlog) != 0 ||
      ::getsockname(socket, generic, &size) != 0) {
    return fail(system_error("listening at " + address));
  }
  // sin_port and sin6_port stand at the same place.
  sockaddr_in own{};
  std::memcpy(&own, &where, sizeof own);
  listening.port = ntohs(own.sin_port);
  return listening;
}

InternetAddress peer_address(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return of_ipv4(0);
  if (peer.ss_family == AF_INET6) {
    sockaddr_in6 own{};
    std::memcpy(&own, &peer, sizeof own);
    return of_ipv6(own.sin6_addr);
  }
  sockaddr_in own{};
  std::memcpy(&own, &peer, sizeof own);
  return of_ipv4(ntohl(own.sin_addr.s_addr));
}

std::string address_text(int64_t key) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (key > kFirstKey) return "tcp";
  if (key > kFirstKey - kIpv4Keys) {
    const in_addr address{htonl(static_cast<uint32_t>(kFirstKey - key))};
    ::inet_ntop(AF_INET, &address, text.data(), text.size());
    return text.data();
  }
  const auto network = static_cast<uint64_t>(kFirstKey - kIpv4Keys - key) << 2;
  in6_addr address{};
  for (int i = 0; i < 8; ++i) address.s6_addr[i] = static_cast<uint8_t>(network >> (56 - 8 * i));
  ::inet_ntop(AF_INET6, &address, text.data(), text.size());
  return std::string(text.data()) + "/64";
}

void send_without_delay(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

}  // namespace tranche
