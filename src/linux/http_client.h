// A small blocking HTTP/1.1 client over a Unix socket (or what set_remote() connects), for the command line:
// no libraries, no threads, ~0.1 ms.
//
// Errors: nobody serves the socket -> unavailable, with a sentence on how to start the daemon; silence ->
// timed_out; an answer that is not HTTP or exceeds a bound -> corrupt or too_large. Any status is an answer,
// not an error: callers look at it. Answers are untrusted: every length is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "linux/http_types.h"
#include "linux/unique_fd.h"

namespace tranche {

struct HttpReply {
  int status = 0;
  HttpHeaders headers;
  std::string body;

  const std::string* header(std::string_view name) const { return find_header(headers, name); }
};

struct ServerSentEvent {
  std::string id;    // the last one that was sent, as the standard says
  std::string type;  // "message" if none was sent
  std::string data;
};

class HttpClient {
 public:
  struct Options {
    Duration timeout = 30 * kSecond;  // without any byte moving; streams: a heartbeat moves bytes
    size_t body_max = size_t{256} << 20;
    size_t head_max = size_t{64} << 10;
    size_t event_max = size_t{4} << 20;
  };

  // Does not connect yet.
  explicit HttpClient(std::string socket_path) : HttpClient(std::move(socket_path), Options()) {}
  HttpClient(std::string socket_path, Options options);

  // Sends one request and reads the whole reply. The connection is kept for the next; one that the server has
  // closed meanwhile is replaced before anything is sent, so no request is ever sent twice; one that
  // closes at the very moment gives `unavailable`.
  Result<HttpReply> request(std::string_view method, std::string_view target, const HttpHeaders& headers = {},
                            std::string_view body = {});

  // GETs an event stream and gives every event to `received`, until that returns false or the server ends it.
  // Heartbeats are swallowed. A status other than 200 comes back with its body, and no event.
  using Received = std::function<bool(const ServerSentEvent& event)>;
  Result<HttpReply> stream(std::string_view target, const HttpHeaders& headers, const Received& received);

  // Asks to upgrade to `protocol`. On 101 `socket` is the connection (blocking) and `early_bytes` what came
  // after the head; on any other status `socket` is closed and `reply` says why.
  struct Upgraded {
    HttpReply reply;
    UniqueFd socket;
    std::string early_bytes;
  };
  Result<Upgraded> upgrade(std::string_view method, std::string_view target, std::string_view protocol,
                           const HttpHeaders& headers = {}, std::string_view body = {});

  const std::string& socket_path() const { return socket_path_; }

  // How a path that begins with "https://" is reached: a connected stream socket for it, and headers for
  // every request on it. For the whole process, once, before the first client is used.
  struct Remote {
    std::function<Result<UniqueFd>(const std::string& url)> connect;
    std::function<Result<HttpHeaders>()> headers;
  };
  static void set_remote(Remote remote);

 private:
  Result<void> connect();
  Result<void> send_request(std::string_view method, std::string_view target, const HttpHeaders& headers,
                            std::string_view body);
  Result<void> fill();  // reads more into input_; `unavailable` at the end of the connection
  Result<HttpReply> read_head();
  Result<void> read_body(HttpReply& reply);
  Result<void> read_chunked(const std::function<Result<bool>(std::string_view)>& take);
  Result<std::string> read_line();

  std::string socket_path_;
  Options options_;
  UniqueFd socket_;
  std::string input_;        // read from the socket, not yet used
  size_t input_offset_ = 0;  // where the unused part begins
  HttpHeaders own_headers_;  // of a remote connection
};

}  // namespace tranche
