// One request and its answer: from libmicrohttpd's callbacks to the handler, and back through the Responder.
#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/assert.h"
#include "linux/http_server_internal.h"
#include "linux/system_error.h"

namespace tranche {
namespace {

using Phase = HttpExchange::Phase;

constexpr size_t kHeadersMax = 64;
// A body over the limit is read on, unkept, so that the client gets to read the 413; but not for ever.
constexpr size_t kDiscardFactor = 4;

HttpConnection* client_of(MHD_Connection* connection) {
  const MHD_ConnectionInfo* info = ::MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info == nullptr ? nullptr : static_cast<HttpConnection*>(info->socket_context);
}

MHD_Result collect_header(void* headers, MHD_ValueKind, const char* name, const char* value) {
  auto& collected = *static_cast<HttpHeaders*>(headers);
  if (collected.size() == kHeadersMax) return MHD_NO;
  collected.push_back({name, value != nullptr ? value : ""});
  return MHD_YES;
}

bool is_loopback_host(std::string_view host) {
  const size_t colon = host.rfind(':');
  const std::string_view name =
      colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos
          ? host.substr(0, colon)
          : host;
  return equals_ignoring_case(name, "localhost") || name == "127.0.0.1" || name == "[::1]";
}

// A web page of anywhere can make a browser on this machine send requests to a loopback port. It cannot forge
// Host and Origin, so both must be ours.
Result<void> check_local_origin(const HttpRequest& request) {
  const std::string* host = request.header("Host");
  if (host == nullptr || !is_loopback_host(*host)) {
    return fail(ErrorCode::denied, "the Host header must name this machine: use http://localhost");
  }
  const std::string* origin = request.header("Origin");
  if (origin != nullptr && *origin != "http://" + *host) {
    return fail(ErrorCode::denied, "requests from pages of other sites are refused");
  }
  return {};
}

Result<void> check_length(const HttpRequest& request, size_t body_max) {
  const std::string* length = request.header("Content-Length");
  if (length == nullptr) return {};
  uint64_t bytes = 0;
  const char* end = length->data() + length->size();
  const auto parsed = std::from_chars(length->data(), end, bytes);
  if (parsed.ec == std::errc() && parsed.ptr == end && bytes <= body_max) return {};
  return fail(ErrorCode::too_large, "a request may have " + std::to_string(body_max) + " bytes at most");
}

void release_string(void* text) { delete static_cast<std::string*>(text); }

// Gives the real socket to whoever asked for it. libmicrohttpd's own descriptor is closed after the current
// run: closed from within this callback the connection stays for ever (seen with 0.9.75).
void on_upgraded(void* holder, MHD_Connection*, void*, const char* early, size_t early_size,
                 MHD_socket socket, MHD_UpgradeResponseHandle* handle) {
  const std::unique_ptr<std::shared_ptr<HttpExchange>> exchange(
      static_cast<std::shared_ptr<HttpExchange>*>(holder));
  UniqueFd duplicate(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  std::string early_bytes(early != nullptr ? early : "", early_size);
  (*exchange)->server->upgrades_to_close.push_back(handle);
  const auto taken = std::move((*exchange)->taken);
  if (duplicate.is_open()) taken(std::move(duplicate), std::move(early_bytes));
}

ssize_t on_stream_read(void* stream, uint64_t, char* buffer, size_t size) {
  return (*static_cast<std::shared_ptr<EventStreamState>*>(stream))->read(buffer, size);
}

void release_stream(void* stream) { delete static_cast<std::shared_ptr<EventStreamState>*>(stream); }

MHD_Response* make_response(HttpExchange& exchange) {
  if (exchange.stream != nullptr) {
    constexpr size_t kBlockSize = 16 * 1024;
    return ::MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kBlockSize, &on_stream_read,
                                               new std::shared_ptr(exchange.stream), &release_stream);
  }
  if (exchange.taken) {
    return ::MHD_create_response_for_upgrade(&on_upgraded, new std::shared_ptr(exchange.shared_from_this()));
  }
  auto* body = new std::string(std::move(exchange.response.body));
  return ::MHD_create_response_from_buffer_with_free_callback_cls(body->size(), body->data(), &release_string,
                                                                  body);
}

}  // namespace

void watch_hangup(Reactor& reactor, int socket, Reactor::Handle& watch, Reactor::Callback gone) {
  watch = reactor.on_readable(socket, [socket, &watch, gone = std::move(gone)] {
    char byte = 0;
    const ssize_t size = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const auto is_gone = size <= 0;
    const auto call = gone;  // the watch owns this callback
    watch.reset();
    if (is_gone) call();
  });
}

MHD_Result on_http_request(void* server, MHD_Connection* connection, const char*, const char* method,
                           const char* version, const char* data, size_t* size, void** context) {
  HttpConnection* client = client_of(connection);
  if (client == nullptr) return MHD_NO;
  *context = client;
  return static_cast<HttpServerState*>(server)->request_called(*client, method, version, data, size);
}

void on_http_completed(void* server, MHD_Connection* connection, void**, MHD_RequestTerminationCode) {
  if (HttpConnection* client = client_of(connection)) {
    static_cast<HttpServerState*>(server)->request_completed(*client);
  }
}

void on_http_connection(void* server, MHD_Connection* connection, void** context,
                        MHD_ConnectionNotificationCode code) {
  auto& state = *static_cast<HttpServerState*>(server);
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    state.connection_started(connection, context);
  } else if (*context != nullptr) {
    state.connection_closed(*static_cast<HttpConnection*>(*context));
    *context = nullptr;
  }
}

void* on_http_target(void*, const char* target, MHD_Connection* connection) {
  HttpConnection* client = client_of(connection);
  if (client != nullptr) client->target.assign(target, ::strnlen(target, kTargetLengthMax + 1));
  return nullptr;
}

void HttpServerState::connection_started(MHD_Connection* connection, void** context) {
  const MHD_ConnectionInfo* info = ::MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  const auto found = connections.find(info->connect_fd);
  TRANCHE_ASSERT(found != connections.end());
  found->second->connection = connection;
  *context = found->second.get();
}

void HttpServerState::connection_closed(HttpConnection& client) {
  if (client.exchange != nullptr) request_completed(client);
  const auto used = usage.find(client.owner);
  TRANCHE_ASSERT(used != usage.end() && used->second.connections > 0);
  --used->second.connections;
  if (used->second.connections == 0 && used->second.streams == 0) usage.erase(used);
  connections.erase(client.socket);
}

// Called when the head is there, for every piece of the body, when all is there, and after each resumption.
MHD_Result HttpServerState::request_called(HttpConnection& client, const char* method, const char* version,
                                           const char* data, size_t* size) {
  if (client.exchange == nullptr) return begin_request(client, method, version);
  HttpExchange& exchange = *client.exchange;
  if (*size > 0) {
    exchange.body_size += *size;
    if (exchange.body_size > kDiscardFactor * options.body_max) return MHD_NO;
    if (exchange.body_size <= options.body_max) exchange.request.body.append(data, *size);
    *size = 0;
    return MHD_YES;
  }
  return exchange.phase == Phase::kCollecting ? finish_request(client) : answer_or_wait(client);
}

// The head is there. What is wrong already is answered at once, before any body is read.
MHD_Result HttpServerState::begin_request(HttpConnection& client, const char* method, const char* version) {
  client.exchange = std::make_shared<HttpExchange>();
  HttpExchange& exchange = *client.exchange;
  exchange.server = this;
  exchange.connection = &client;
  HttpRequest& request = exchange.request;
  request.method = method;
  request.peer = client.peer;
  ::MHD_get_connection_values(client.connection, MHD_HEADER_KIND, &collect_header, &request.headers);
  const bool can_upgrade = client.peer.credentials.has_value() && std::string_view(version) == "HTTP/1.1";
  if (!can_upgrade) {
    std::erase_if(request.headers,
                  [](const HttpHeader& one) { return equals_ignoring_case(one.name, "Upgrade"); });
  }
  const auto checked = [&]() -> Result<void> {
    TRY_ASSIGN(HttpTarget target, parse_http_target(client.target));
    request.path = std::move(target.path);
    request.query = std::move(target.query);
    if (client.owner == kTcpOwner) TRY(check_local_origin(request));
    if (has_tls() && request.header("Origin") != nullptr)
      return fail(ErrorCode::denied, "requests from web pages are refused");
    return check_length(request, options.body_max);
  }();
  if (checked) return MHD_YES;
  exchange.phase = Phase::kAnswered;
  exchange.wants_answer = false;
  HttpResponse refusal = problem_response(checked.error());
  if (client.target.size() > kTargetLengthMax) refusal.status = MHD_HTTP_URI_TOO_LONG;
  return queue_response(client, refusal);
}

// The whole request is there: the handler's turn.
MHD_Result HttpServerState::finish_request(HttpConnection& client) {
  const auto exchange = client.exchange;
  client.deadline = Duration();
  exchange->phase = Phase::kHandling;
  const std::string* offer = exchange->request.header("Upgrade");
  if (offer != nullptr && exchange->request.wants_upgrade(*offer)) exchange->upgrade_offer = *offer;
  Responder responder(exchange);
  if (is_stopping) {
    responder.respond(Error(ErrorCode::unavailable, "the daemon is stopping: try again"));
  } else if (exchange->body_size > options.body_max) {
    responder.respond(Error(ErrorCode::too_large,
                            "a request may have " + std::to_string(options.body_max) + " bytes at most"));
  } else {
    handler(std::move(exchange->request), std::move(responder));
  }
  return answer_or_wait(client);
}

MHD_Result HttpServerState::answer_or_wait(HttpConnection& client) {
  HttpExchange& exchange = *client.exchange;
  if (!exchange.wants_answer) return queue_answer(client);
  if (is_stopping) return MHD_NO;
  exchange.phase = Phase::kWaiting;
  ::MHD_suspend_connection(client.connection);
  return MHD_YES;
}

MHD_Result HttpServerState::queue_answer(HttpConnection& client) {
  HttpExchange& exchange = *client.exchange;
  exchange.phase = Phase::kAnswered;
  exchange.hangup_watch.reset();
  return queue_response(client, exchange.response);
}

MHD_Result HttpServerState::queue_response(HttpConnection& client, const HttpResponse& answer) {
  HttpExchange& exchange = *client.exchange;
  if (&answer != &exchange.response) exchange.response = answer;
  const bool is_stream = exchange.stream != nullptr;
  const bool is_upgrade = static_cast<bool>(exchange.taken);
  MHD_Response* response = make_response(exchange);
  if (response == nullptr) return MHD_NO;
  const auto add = [response](const char* name, const std::string& value) {
    ::MHD_add_response_header(response, name, value.c_str());
  };
  if (is_upgrade) {
    add(MHD_HTTP_HEADER_UPGRADE, exchange.upgrade_protocol);
  } else {
    if (!exchange.response.content_type.empty())
      add(MHD_HTTP_HEADER_CONTENT_TYPE, exchange.response.content_type);
    add("X-Content-Type-Options", "nosniff");
  }
  for (const HttpHeader& header : exchange.response.headers) {
    if (is_valid_header(header)) add(header.name.c_str(), header.value);
  }
  if (!is_stream) client.deadline = now() + options.response_timeout;
  const auto status =
      static_cast<unsigned>(is_upgrade ? MHD_HTTP_SWITCHING_PROTOCOLS : exchange.response.status);
  const MHD_Result queued = ::MHD_queue_response(client.connection, status, response);
  ::MHD_destroy_response(response);
  return queued;
}

// The answer is out, or the connection is over: nobody has a use for the exchange any more.
void HttpServerState::request_completed(HttpConnection& client) {
  const auto exchange = std::exchange(client.exchange, nullptr);
  client.target.clear();
  client.deadline = now() + options.request_timeout;
  if (exchange != nullptr) exchange->end();
}

void HttpExchange::deliver() {
  hangup_watch.reset();
  if (connection == nullptr || phase != Phase::kWaiting)
    return;  // when handling, the caller goes on by itself
  phase = Phase::kHandling;
  ::MHD_resume_connection(connection->connection);
  server->pump_soon();
}

void HttpExchange::end() {
  hangup_watch.reset();
  if (stream != nullptr) stream->end();
  if (wants_answer && gone) server->reactor.post(std::move(gone));
  gone = nullptr;
  connection = nullptr;
  server = nullptr;
}

const std::string* HttpRequest::query_value(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool HttpRequest::wants_upgrade(std::string_view protocol) const {
  const std::string* connection = header("Connection");
  const std::string* upgrade = header("Upgrade");
  return connection != nullptr && upgrade != nullptr && list_has_token(*connection, "upgrade") &&
         list_has_token(*upgrade, protocol);
}

Responder::Responder(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
Responder::Responder(Responder&&) noexcept = default;

Responder& Responder::operator=(Responder&& other) noexcept {
  std::swap(exchange_, other.exchange_);  // what this held is answered when `other` goes
  return *this;
}

Responder::~Responder() {
  if (exchange_ != nullptr && exchange_->wants_answer) {
    respond(Error(ErrorCode::internal, "the request was dropped without an answer: report this as a bug"));
  }
}

void Responder::respond(HttpResponse response) {
  TRANCHE_ASSERT(exchange_ != nullptr);
  if (!exchange_->wants_answer) return;  // the server answered for us: it is stopping, or the client went
  exchange_->wants_answer = false;
  exchange_->response = std::move(response);
  exchange_->deliver();
}

Result<EventStream> Responder::stream(HttpHeaders headers) {
  TRANCHE_ASSERT(exchange_ != nullptr);
  if (is_gone() || !exchange_->wants_answer) return fail(ErrorCode::unavailable, "the client is gone");
  auto opened = exchange_->server->open_stream(*exchange_->connection);
  if (!opened) {
    respond(opened.error());
    return fail(std::move(opened).error());
  }
  exchange_->wants_answer = false;
  exchange_->stream = *opened;
  exchange_->response.content_type = "text/event-stream";
  exchange_->response.headers = std::move(headers);
  exchange_->response.headers.push_back({"Cache-Control", "no-store"});
  exchange_->deliver();
  return EventStream(std::move(*opened));
}

Result<void> Responder::upgrade(std::string_view protocol, HttpHeaders headers, Taken taken) {
  TRANCHE_ASSERT(exchange_ != nullptr);
  if (is_gone() || !exchange_->wants_answer) return fail(ErrorCode::unavailable, "the client is gone");
  if (!list_has_token(exchange_->upgrade_offer, protocol)) {
    Error error(ErrorCode::invalid_argument,
                "this needs a connection to the Unix socket with 'Connection: Upgrade' "
                "and 'Upgrade: " +
                    std::string(protocol) + "'");
    respond(error);
    return fail(std::move(error));
  }
  exchange_->wants_answer = false;
  exchange_->upgrade_protocol = protocol;
  exchange_->response.headers = std::move(headers);
  exchange_->taken = std::move(taken);
  exchange_->deliver();
  return {};
}

bool Responder::is_gone() const { return exchange_ == nullptr || exchange_->connection == nullptr; }

void Responder::on_gone(Reactor::Callback gone) {
  TRANCHE_ASSERT(exchange_ != nullptr);
  if (is_gone() || !exchange_->wants_answer) return;
  exchange_->gone = std::move(gone);
  watch_hangup(exchange_->server->reactor, exchange_->connection->socket, exchange_->hangup_watch,
               [borrowed = exchange_.get()] {
                 const auto exchange = borrowed->shared_from_this();  // the callback may drop the Responder
                 const auto call = std::move(exchange->gone);
                 exchange->gone = nullptr;
                 // Wakes the connection, so that libmicrohttpd finds its end. Nobody reads this.
                 exchange->wants_answer = false;
                 exchange->response.status = MHD_HTTP_REQUEST_TIMEOUT;
                 exchange->deliver();
                 exchange->connection = nullptr;
                 if (call) call();
               });
}

}  // namespace tranche
