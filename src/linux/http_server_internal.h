// What the parts of the HTTP server share. Not for other rooms.
//
// A Connection is one client; an Exchange one request and its answer; an EventStreamState one endless answer.
// libmicrohttpd owns sockets and calls back on the reactor's thread only from pump(). A request that is not
// answered at once is suspended there: it then neither times out nor notices that its client goes, so streams
// and whoever asks by on_gone() watch the socket through the reactor as well.
#pragma once

#include <microhttpd.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "linux/http_server.h"
#include "linux/log_throttle.h"

namespace tranche {

struct HttpConnection {
  MHD_Connection* connection = nullptr;
  int socket = -1;  // owned by libmicrohttpd
  HttpPeer peer;
  int64_t owner = 0;   // uid, or below zero: kTcpOwner, or the address_key of a TLS client
  Duration deadline;   // by which what is awaited of the client must have happened; zero: nothing is
  std::string target;  // of the request that is being read
  std::shared_ptr<HttpExchange> exchange;
};

inline constexpr int64_t kTcpOwner = -1;

struct HttpExchange : std::enable_shared_from_this<HttpExchange> {
  // How far the request is. Only kWaiting is suspended in libmicrohttpd.
  enum class Phase { kCollecting, kHandling, kWaiting, kAnswered };

  HttpServerState* server = nullptr;     // null when the server is gone
  HttpConnection* connection = nullptr;  // null when the client is gone
  Phase phase = Phase::kCollecting;
  HttpRequest request;
  size_t body_size = 0;       // received, though perhaps not kept
  std::string upgrade_offer;  // what the client would upgrade to, if it may

  // The answer; one of three.
  HttpResponse response;
  std::shared_ptr<EventStreamState> stream;
  std::string upgrade_protocol;
  Responder::Taken taken;
  bool wants_answer = true;  // no answer has been chosen yet

  Reactor::Callback gone;
  Reactor::Handle hangup_watch;

  // An answer has been chosen: lets libmicrohttpd go on with it.
  void deliver();
  // The client went, or the server.
  void end();
};

struct EventStreamState : std::enable_shared_from_this<EventStreamState> {
  HttpServerState* server = nullptr;  // null when the stream is over
  MHD_Connection* connection = nullptr;
  int64_t owner = 0;
  bool is_suspended = false;
  bool is_ended = false;            // by whoever sends: the client gets what waits, then the end
  std::deque<std::string> waiting;  // whole events; of the first, `sent` bytes are gone already
  size_t sent = 0;
  size_t waiting_bytes = 0;
  Duration last_activity;
  Reactor::Callback closed;
  Reactor::Handle hangup_watch;

  // Puts `text` behind what waits; drops what waits for a resync if it does not fit.
  EventStream::Sent append(uint64_t id, std::string text);
  void wake();
  // The connection is over.
  void end();
  // Calls `closed`, once, from the loop.
  void report_closed();
  // MHD_ContentReaderCallback
  ssize_t read(char* buffer, size_t size);
};

struct HttpServerState : std::enable_shared_from_this<HttpServerState> {
  struct Listener {
    UniqueFd socket;
    bool is_unix = false;
    Reactor::Handle watch;
    Reactor::Handle pause;  // while there are no descriptors to accept with
  };
  struct Usage {
    unsigned connections = 0;
    unsigned streams = 0;
  };

  HttpServerState(Reactor& loop, HttpServer::Handler to_call, HttpServer::Options given)
      : reactor(loop), handler(std::move(to_call)), options(given) {}
  ~HttpServerState();

  // http_server.cc: descriptors and time.
  Result<void> start();
  Result<void> add_listener(UniqueFd socket);
  void watch_listener(Listener& listener);
  void accept_clients(Listener& listener);
  void admit(UniqueFd socket, bool is_unix);
  bool has_tls() const { return !options.tls_certificate.empty(); }
  bool is_over_limit(int64_t owner) const;
  void note_refusal(int64_t owner);
  void log_refusals(int64_t owner, uint64_t count) const;
  void pump();
  void pump_soon();
  bool close_upgraded();
  void arm_timer();
  void sweep();
  void arm_sweep();
  void stop();

  // http_exchange.cc: what libmicrohttpd calls.
  void connection_started(MHD_Connection* connection, void** context);
  void connection_closed(HttpConnection& client);
  MHD_Result request_called(HttpConnection& client, const char* method, const char* version, const char* data,
                            size_t* size);
  MHD_Result begin_request(HttpConnection& client, const char* method, const char* version);
  MHD_Result finish_request(HttpConnection& client);
  MHD_Result answer_or_wait(HttpConnection& client);
  MHD_Result queue_answer(HttpConnection& client);
  MHD_Result queue_response(HttpConnection& client, const HttpResponse& response);
  void request_completed(HttpConnection& client);

  // event_stream.cc
  Result<std::shared_ptr<EventStreamState>> open_stream(HttpConnection& client);
  void close_stream(EventStreamState& stream);

  Duration now() const { return reactor.clock().since_boot(); }

  Reactor& reactor;
  const HttpServer::Handler handler;
  const HttpServer::Options options;

  MHD_Daemon* daemon = nullptr;
  Reactor::Handle daemon_watch;
  Reactor::Handle daemon_timer;
  Reactor::Handle sweep_timer;
  std::vector<MHD_UpgradeResponseHandle*> upgrades_to_close;
  bool is_pumping = false;
  bool is_pump_posted = false;
  bool is_stopping = false;

  std::vector<std::unique_ptr<Listener>> listeners;
  // By socket: libmicrohttpd closes one only after it has told us.
  std::unordered_map<int, std::unique_ptr<HttpConnection>> connections;
  std::map<int64_t, Usage> usage;  // by owner
  unsigned stream_count = 0;
  LogThrottle refusals;  // of connections, by owner
};

// Calls `gone` once if the client closes its side of `socket`. A client that sends instead is left to the
// time when the answer is over; `watch` is cleared then.
void watch_hangup(Reactor& reactor, int socket, Reactor::Handle& watch, Reactor::Callback gone);

// MHD callbacks with their C signatures.
MHD_Result on_http_request(void* server, MHD_Connection* connection, const char* url, const char* method,
                           const char* version, const char* data, size_t* size, void** context);
void on_http_completed(void* server, MHD_Connection* connection, void** context,
                       MHD_RequestTerminationCode code);
void on_http_connection(void* server, MHD_Connection* connection, void** context,
                        MHD_ConnectionNotificationCode code);
void* on_http_target(void* server, const char* target, MHD_Connection* connection);

}  // namespace tranche
