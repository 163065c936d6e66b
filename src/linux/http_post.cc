#include "linux/http_post.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

namespace tranche {
namespace {

constexpr size_t kAnswerBytesMax = size_t{64} << 10;

struct Transfer {
  bool private_address = false;
  bool was_refused = false;
  size_t received = 0;
};

curl_socket_t open_socket(void* transfer, curlsocktype, curl_sockaddr* address) {
  auto* own = static_cast<Transfer*>(transfer);
  if (!own->private_address && is_private_address(address->addr)) {
    own->was_refused = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t drop_answer(char*, size_t size, size_t count, void* transfer) {
  auto* own = static_cast<Transfer*>(transfer);
  own->received += size * count;
  return own->received > kAnswerBytesMax ? 0 : size * count;  // less than it gave ends the transfer
}

bool is_private_v4(uint32_t address) {
  constexpr std::array<std::pair<uint32_t, int>, 9> kPrivate = {
      {{0x00000000, 8},    // this network
       {0x0a000000, 8},    // RFC 1918
       {0x64400000, 10},   // RFC 6598
       {0x7f000000, 8},    // loopback
       {0xa9fe0000, 16},   // link-local, metadata services
       {0xac100000, 12},   // RFC 1918
       {0xc0000000, 24},   // RFC 6890
       {0xc0a80000, 16},   // RFC 1918
       {0xe0000000, 3}}};  // multicast and reserved
  for (const auto& [network, bits] : kPrivate) {
    if ((address ^ network) >> (32 - bits) == 0) return true;
  }
  return false;
}

Error error_of(CURLcode code, const Transfer& transfer) {
  if (transfer.was_refused) {
    return Error(
        ErrorCode::denied,
        "its address is one of this machine or of a private network; set private_address if that is meant");
  }
  switch (static_cast<int>(code)) {
    case CURLE_OPERATION_TIMEDOUT:
      return Error(ErrorCode::timed_out, "it did not answer in time");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CONNECT_ERROR:
      return Error(ErrorCode::denied,
                   std::string("its certificate is not believed: ") + ::curl_easy_strerror(code));
    default:
      return Error(ErrorCode::unavailable,
                   std::string("it cannot be reached: ") + ::curl_easy_strerror(code));
  }
}

// libcurl wants this once, before the first handle; magic statics make it one thread's.
bool is_ready() {
  static const bool ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

}  // namespace

bool is_private_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in own{};
    std::memcpy(&own, &address, sizeof own);
    return is_private_v4(ntohl(own.sin_addr.s_addr));
  }
  if (address.sa_family != AF_INET6) return true;
  sockaddr_in6 own{};
  std::memcpy(&own, &address, sizeof own);
  const auto& bytes = own.sin6_addr.s6_addr;
  const uint32_t last = (uint32_t{bytes[12]} << 24) | (uint32_t{bytes[13]} << 16) |
                        (uint32_t{bytes[14]} << 8) | uint32_t{bytes[15]};
  if (IN6_IS_ADDR_V4MAPPED(&own.sin6_addr) || IN6_IS_ADDR_V4COMPAT(&own.sin6_addr))
    return is_private_v4(last);
  const bool is_nat64 = bytes[0] == 0 && bytes[1] == 0x64 && bytes[2] == 0xff && bytes[3] == 0x9b;
  if (is_nat64) return is_private_v4(last);
  return IN6_IS_ADDR_LOOPBACK(&own.sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&own.sin6_addr) ||
         IN6_IS_ADDR_LINKLOCAL(&own.sin6_addr) || IN6_IS_ADDR_MULTICAST(&own.sin6_addr) ||
         (bytes[0] & 0xfe) == 0xfc;  // unique local, RFC 4193
}

Result<int> http_post(const HttpPost& post) {
  if (!is_ready()) return fail(ErrorCode::internal, "libcurl cannot be used");
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(::curl_easy_init(), &::curl_easy_cleanup);
  if (!curl) return fail(ErrorCode::internal, "libcurl cannot be used");
  curl_slist* lines = nullptr;
  for (const HttpHeader& header : post.headers) {
    if (!is_valid_header(header)) continue;
    if (curl_slist* longer = ::curl_slist_append(lines, (header.name + ": " + header.value).c_str()))
      lines = longer;
  }
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(lines, &::curl_slist_free_all);
  Transfer transfer{post.private_address};
  const auto set = [&](CURLoption option, auto value) { ::curl_easy_setopt(curl.get(), option, value); };
  set(CURLOPT_URL, post.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_POST, 1L);
  set(CURLOPT_POSTFIELDS, post.body.data());
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(post.body.size()));
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_USERAGENT, "tranche");
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(post.timeout.count() / kMillisecond.count()));
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(post.timeout.count() / kMillisecond.count() / 2));
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!post.ca_file.empty()) set(CURLOPT_CAINFO, post.ca_file.c_str());
  set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  set(CURLOPT_OPENSOCKETDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, &drop_answer);
  set(CURLOPT_WRITEDATA, &transfer);
  const CURLcode code = ::curl_easy_perform(curl.get());
  long status = 0;
  ::curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  // An endless body after a good status is still a good status.
  if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && status != 0)) return fail(error_of(code, transfer));
  return static_cast<int>(status);
}

}  // namespace tranche
