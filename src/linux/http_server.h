// HTTP/1.1 on a Unix socket, on TCP loopback, and on TCP with TLS 1.3 when asked, in the reactor's thread
// (libmicrohttpd, no threads).
//
// A request reaches the handler when it is complete and within limits. The handler answers through a
// Responder, at once or later, in one of three ways: respond() a whole response, stream() server-sent events,
// upgrade() to a raw socket. A client that vanishes makes answers go nowhere; it never makes them an error.
//
// Threading: everything on the reactor's thread; answers from other threads go through Reactor::post.
// Ownership: reactor and handler outlive the server. Responders and EventStreams may outlive it: they then do
// nothing. Limits: see Options; what exceeds them is answered 413, 414, 429, 431, 503 or closed, never queued
// without bound.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/reactor.h"
#include "base/result.h"
#include "linux/http_target.h"
#include "linux/http_types.h"
#include "linux/unique_fd.h"
#include "linux/unix_socket.h"

namespace tranche {

// Who sent a request. TCP clients have no credentials: they are whoever the caller's own checks say.
struct HttpPeer {
  std::optional<PeerCredentials> credentials;  // Unix socket: read once, when the connection was accepted
  std::string address;                         // TCP with TLS: numeric; else ""
  int64_t address_key = 0;                     // the same for one IPv4 address or one IPv6 /64; else 0
};

struct HttpRequest {
  std::string method;
  std::string path;       // decoded
  QueryParameters query;  // decoded, in order
  HttpHeaders headers;    // as sent, in order; find_header() looks one up
  std::string body;
  HttpPeer peer;

  // The first value of a query parameter, or null.
  const std::string* query_value(std::string_view name) const;
  const std::string* header(std::string_view name) const { return find_header(headers, name); }
  // Whether the client asks to upgrade to `protocol`.
  bool wants_upgrade(std::string_view protocol) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // in addition; Content-Length and Date are the server's
};

// RFC 9457: {"type": code, "title": ..., "status": ..., "detail": message} as application/problem+json.
HttpResponse problem_response(const Error& error);
// For statuses that no ErrorCode has, such as 405 and 415; `type` and `title` are short constants.
HttpResponse problem_response(int status, std::string_view type, std::string_view detail);

// Opaque: http_server_internal.h.
struct HttpExchange;
struct EventStreamState;
struct HttpServerState;

// One stream of server-sent events. Destroying it ends the response.
//
// The buffer is bounded: when a slow client would exceed it, all that waits is dropped and one event `resync`
// (with the id of the newest dropped event, data "{}") takes its place: the client fetches the state anew.
// While nothing is sent, a comment goes out every Options::heartbeat, which also finds clients that are gone.
class EventStream {
 public:
  EventStream();
  EventStream(EventStream&&) noexcept;
  EventStream& operator=(EventStream&&) noexcept;
  ~EventStream();

  enum class Sent { buffered, resynced, closed };
  // `id` becomes the client's Last-Event-ID (the journal's seq); 0 sends none. `type` is one word; an empty
  // one is "message". `data` may have several lines.
  Sent send(uint64_t id, std::string_view type, std::string_view data);
  bool is_open() const;
  // Bytes that wait for the client.
  size_t buffered_bytes() const;
  // Calls `closed` once when the client is gone or the server stops; not when this object ends the stream
  // itself.
  void on_close(Reactor::Callback closed);

 private:
  friend class Responder;
  explicit EventStream(std::shared_ptr<EventStreamState> state);
  std::shared_ptr<EventStreamState> state_;
};

// Answers one request, once. Movable; may be kept for later. One that goes without an answer answers 500.
class Responder {
 public:
  Responder(Responder&&) noexcept;
  Responder& operator=(Responder&&) noexcept;
  ~Responder();

  void respond(HttpResponse response);
  void respond(const Error& error) { respond(problem_response(error)); }

  // Starts `text/event-stream`. Over the limit of streams the client is answered 429 and the error returned.
  Result<EventStream> stream(HttpHeaders headers = {});

  // Answers 101 with `Upgrade: protocol` and gives the client's own connected socket (non-blocking,
  // close-on-exec), with what the client already sent after its request, to `taken`: pass it on with
  // SCM_RIGHTS, or use it. `taken` is not called if the client is gone. Only on the Unix socket, for a
  // request that wants_upgrade(protocol) (invalid_argument otherwise; the client is told so).
  using Taken = std::function<void(UniqueFd socket, std::string early_bytes)>;
  Result<void> upgrade(std::string_view protocol, HttpHeaders headers, Taken taken);

  // Whether the client is known to be gone.
  bool is_gone() const;
  // Watches the connection while the answer is outstanding and calls `gone` once if the client goes first.
  void on_gone(Reactor::Callback gone);

 private:
  friend struct HttpServerState;
  explicit Responder(std::shared_ptr<HttpExchange> exchange);
  std::shared_ptr<HttpExchange> exchange_;
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest request, Responder responder)>;

  struct Options {
    size_t body_max = size_t{1} << 20;
    unsigned connections_max = 1024;
    unsigned connections_per_uid_max = 256;  // uid 0 is not limited; TCP counts as one user, TLS by address
    unsigned streams_max = 512;
    unsigned streams_per_uid_max = 16;     // likewise
    size_t connection_memory = 32 * 1024;  // head of a request; also libmicrohttpd's buffers
    size_t stream_buffer_max = size_t{256} << 10;
    Duration request_timeout = 30 * kSecond;    // from connecting, or the last answer, to a complete request
    Duration response_timeout = 120 * kSecond;  // to take a complete response; per write for streams
    Duration heartbeat = 15 * kSecond;
    // PEM texts; set: every connection of this server speaks TLS 1.3, and none can be upgraded.
    std::string tls_certificate;
    std::string tls_key;
  };

  static Result<std::unique_ptr<HttpServer>> create(Reactor& reactor, Handler handler, Options options);
  // Ends all connections; unanswered requests get 503 as far as that is possible at once.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Serves a new Unix socket (see listen_unix). The path stays when the server goes: the next one replaces
  // it.
  Result<void> listen_unix_path(const std::string& path, mode_t mode);
  // Serves 127.0.0.1:`port`; 0 chooses one. Returns the port. Requests whose Host or Origin is not this
  // machine by a loopback name are refused (DNS rebinding, cross-site posts). No credentials, no upgrade.
  Result<uint16_t> listen_loopback(uint16_t port);
  // Serves "0.0.0.0:7443" or "[::]:7443" (numeric; port 0 chooses one) with TLS. Returns the port.
  Result<uint16_t> listen_tls(const std::string& address);
  // Serves a listening socket that was inherited (socket activation); Unix or TCP is found out.
  Result<void> listen_inherited(UniqueFd socket);

  // Stops accepting; what is connected goes on.
  void stop_listening();

  size_t connections() const;
  size_t streams() const;

 private:
  explicit HttpServer(std::shared_ptr<HttpServerState> state);
  std::shared_ptr<HttpServerState> state_;
};

}  // namespace tranche
