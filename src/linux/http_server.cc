#include "linux/http_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "base/assert.h"
#include "linux/http_server_internal.h"
#include "linux/internet_address.h"
#include "linux/log.h"
#include "linux/system_error.h"

namespace tranche {
namespace {

constexpr int kAcceptsPerTurn = 64;
constexpr int kRunsPerTurn = 64;  // of MHD_run before descriptors of others get their turn
constexpr int kBacklog = 512;
constexpr Duration kListenPause = 100 * kMillisecond;
constexpr const char* kTlsPriorities = "NORMAL:-VERS-ALL:+VERS-TLS1.3";

void log_of_library(void*, const char* format, va_list arguments) __attribute__((format(printf, 2, 0)));
void log_of_library(void*, const char* format, va_list arguments) {
  char text[512];
  const int size = std::vsnprintf(text, sizeof text, format, arguments);
  std::string_view message(text, size < 0 ? 0 : std::min(static_cast<size_t>(size), sizeof text - 1));
  while (!message.empty() && message.back() == '\n') message.remove_suffix(1);
  log(LogLevel::debug, "http_library", {{"message", message}});
}

// Percent signs are decoded by parse_http_target, which refuses what it must.
size_t leave_escaped(void*, MHD_Connection*, char* text) { return std::char_traits<char>::length(text); }

// For who is not admitted: sent without libmicrohttpd, into the empty buffer of a new socket.
void refuse(int socket) {
  const HttpResponse response = problem_response(
      Error(ErrorCode::unavailable, "too many connections are open: close some, then try again"));
  const std::string text =
      "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: " + response.content_type +
      "\r\nContent-Length: " + std::to_string(response.body.size()) + "\r\n\r\n" + response.body;
  [[maybe_unused]] const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
}

unsigned whole_seconds(Duration duration) {
  return static_cast<unsigned>(std::max<int64_t>(1, duration.count() / kSecond.count()));
}

}  // namespace

HttpServerState::~HttpServerState() { stop(); }

Result<void> HttpServerState::start() {
  const unsigned own_flags =
      has_tls() ? static_cast<unsigned>(MHD_USE_TLS) : static_cast<unsigned>(MHD_ALLOW_UPGRADE);
  // Its texts must live until the daemon stops: they are the options' own.
  MHD_OptionItem tls_options[] = {
      {MHD_OPTION_HTTPS_MEM_CERT, 0, const_cast<char*>(options.tls_certificate.c_str())},
      {MHD_OPTION_HTTPS_MEM_KEY, 0, const_cast<char*>(options.tls_key.c_str())},
      {MHD_OPTION_HTTPS_PRIORITIES, 0, const_cast<char*>(kTlsPriorities)},
      {MHD_OPTION_END, 0, nullptr}};
  MHD_OptionItem no_options[] = {{MHD_OPTION_END, 0, nullptr}};
  daemon = ::MHD_start_daemon(
      MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | own_flags,
      /* port= */ 0, nullptr, nullptr, &on_http_request, this, MHD_OPTION_EXTERNAL_LOGGER, &log_of_library,
      nullptr, MHD_OPTION_CONNECTION_LIMIT, options.connections_max, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      options.connection_memory, MHD_OPTION_CONNECTION_TIMEOUT, whole_seconds(options.response_timeout),
      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_UNESCAPE_CALLBACK, &leave_escaped, nullptr,
      MHD_OPTION_URI_LOG_CALLBACK, &on_http_target, this, MHD_OPTION_NOTIFY_COMPLETED, &on_http_completed,
      this, MHD_OPTION_NOTIFY_CONNECTION, &on_http_connection, this, MHD_OPTION_ARRAY,
      has_tls() ? tls_options : no_options, MHD_OPTION_END);
  if (daemon == nullptr && has_tls()) {
    return fail(ErrorCode::invalid_argument,
                "the certificate and the key do not make a TLS server: they must be PEM and belong together");
  }
  if (daemon == nullptr) return fail(system_error("starting the HTTP server"));
  const MHD_DaemonInfo* info = ::MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
  TRANCHE_ASSERT(info != nullptr && info->epoll_fd >= 0);
  daemon_watch = reactor.on_readable(info->epoll_fd, [this] { pump(); });
  return {};
}

// Runs libmicrohttpd until it has nothing to do now. One MHD_run is not enough: what a run resumes or reads
// ahead (pipelined requests) is only reported by MHD_get_timeout, and no descriptor becomes readable for it.
void HttpServerState::pump() {
  if (is_pumping || daemon == nullptr) return;
  is_pumping = true;
  MHD_UNSIGNED_LONG_LONG timeout = 0;
  int runs = 0;
  bool is_due = true;
  while (is_due && runs < kRunsPerTurn) {
    ::MHD_run(daemon);
    ++runs;
    is_due = close_upgraded() || (::MHD_get_timeout(daemon, &timeout) == MHD_YES && timeout == 0);
  }
  is_pumping = false;
  if (is_due) pump_soon();
  arm_timer();
}

// True if there were any; another run then forgets their connections.
bool HttpServerState::close_upgraded() {
  const auto handles = std::exchange(upgrades_to_close, {});
  for (MHD_UpgradeResponseHandle* handle : handles) ::MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
  return !handles.empty();
}

void HttpServerState::pump_soon() {
  if (is_pump_posted) return;
  is_pump_posted = true;
  reactor.post([weak = weak_from_this()] {
    const auto state = weak.lock();
    if (state == nullptr) return;
    state->is_pump_posted = false;
    state->pump();
  });
}

void HttpServerState::arm_timer() {
  MHD_UNSIGNED_LONG_LONG milliseconds = 0;
  daemon_timer.reset();
  if (::MHD_get_timeout(daemon, &milliseconds) != MHD_YES || milliseconds == 0) return;
  const auto wait = static_cast<int64_t>(std::min<MHD_UNSIGNED_LONG_LONG>(milliseconds, 3'600'000));
  daemon_timer = reactor.at(now() + kMillisecond * wait, [this] { pump(); });
}

Result<void> HttpServerState::add_listener(UniqueFd socket) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) {
    return fail(system_error("looking at a listening socket"));
  }
  const int flags = ::fcntl(socket.get(), F_GETFL);
  ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK);  // a client may be gone before it is accepted
  auto listener = std::make_unique<Listener>();
  listener->socket = std::move(socket);
  listener->is_unix = domain == AF_UNIX;
  watch_listener(*listener);
  listeners.push_back(std::move(listener));
  return {};
}

void HttpServerState::watch_listener(Listener& listener) {
  listener.watch =
      reactor.on_readable(listener.socket.get(), [this, &listener] { accept_clients(listener); });
}

void HttpServerState::accept_clients(Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd client(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client.is_open()) {
      admit(std::move(client), listener.is_unix);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) {
      // Out of descriptors or memory: the socket stays readable, so without a pause this would spin.
      log(LogLevel::warning, "accept_failed", {{"error", system_error("accepting a connection")}});
      listener.watch.reset();
      listener.pause = reactor.at(now() + kListenPause, [this, &listener] { watch_listener(listener); });
    }
    break;
  }
  pump();
}

bool HttpServerState::is_over_limit(int64_t owner) const {
  if (connections.size() >= options.connections_max) return true;
  const auto found = usage.find(owner);
  return owner != 0 && found != usage.end() && found->second.connections >= options.connections_per_uid_max;
}

void HttpServerState::admit(UniqueFd socket, bool is_unix) {
  auto client = std::make_unique<HttpConnection>();
  client->socket = socket.get();
  client->owner = kTcpOwner;
  client->deadline = now() + options.request_timeout;
  if (is_unix) {
    auto credentials = peer_credentials(socket.get());
    if (!credentials) {
      log(LogLevel::warning, "peer_unknown", {{"error", credentials.error()}});
      return;
    }
    client->owner = credentials->uid;
    client->peer.credentials = std::move(*credentials);
  } else if (has_tls()) {
    const InternetAddress address = peer_address(socket.get());
    client->owner = client->peer.address_key = address.key;
    client->peer.address = address.text;
    send_without_delay(socket.get());
  }
  if (is_over_limit(client->owner)) {
    note_refusal(client->owner);
    if (!has_tls()) refuse(socket.get());  // whoever waits for a handshake would not read it
    return;
  }
  sockaddr_storage address = {};  // libmicrohttpd only stores it
  address.ss_family = is_unix ? AF_UNIX : AF_INET;
  const socklen_t address_size = is_unix ? sizeof(sa_family_t) : sizeof(sockaddr_in);
  const int number = socket.get();
  const int64_t owner = client->owner;
  ++usage[owner].connections;
  connections[number] = std::move(client);
  // From here on the socket is libmicrohttpd's, also when it refuses it.
  if (::MHD_add_connection(daemon, socket.release(), reinterpret_cast<sockaddr*>(&address), address_size) !=
      MHD_YES) {
    note_refusal(owner);
    if (const auto found = connections.find(number); found != connections.end())
      connection_closed(*found->second);
    return;
  }
  arm_sweep();
}

// A client in a loop must not fill the disk: one line a second for each user.
void HttpServerState::note_refusal(int64_t owner) {
  const uint64_t count = refusals.happened(owner, now());
  if (count > 0) log_refusals(owner, count);
  arm_sweep();
}

void HttpServerState::log_refusals(int64_t owner, uint64_t count) const {
  log(LogLevel::warning, "connection_refused",
      {{owner < 0 ? "address" : "uid", owner < 0 ? address_text(owner) : std::to_string(owner)},
       {"count", count},
       {"connections", connections.size()}});
}

void HttpServerState::arm_sweep() {
  if (sweep_timer != nullptr || (connections.empty() && refusals.is_empty())) return;
  const Duration shortest = std::min({options.heartbeat, options.request_timeout, options.response_timeout});
  const Duration period = std::clamp(Duration(shortest.count() / 2), 10 * kMillisecond, kSecond);
  sweep_timer = reactor.at(now() + period, [this] { sweep(); });
}

// Ends connections whose time is up, sends heartbeats and logs what was kept back. libmicrohttpd's own
// timeout counts silence, so a client that sends a byte now and then would stay for ever.
void HttpServerState::sweep() {
  const Duration time = now();
  for (const auto& [socket, client] : connections) {
    if (client->deadline.count() != 0 && client->deadline <= time) {
      client->deadline = Duration();
      ::shutdown(socket, SHUT_RDWR);  // libmicrohttpd reads the end and closes
      continue;
    }
    EventStreamState* stream = client->exchange != nullptr ? client->exchange->stream.get() : nullptr;
    const bool is_quiet = stream != nullptr && stream->waiting.empty();  // a slow client has enough to read
    if (is_quiet && stream->last_activity + options.heartbeat <= time) stream->append(0, ":\n\n");
  }
  refusals.tell_overdue(time, [&](int64_t owner, uint64_t count) { log_refusals(owner, count); });
  sweep_timer.reset();
  arm_sweep();
}

// Answers and ends everything. libmicrohttpd insists that nothing is suspended when it stops.
void HttpServerState::stop() {
  if (daemon == nullptr) return;
  is_stopping = true;
  listeners.clear();
  sweep_timer.reset();
  for (const auto& [socket, client] : connections) {
    const auto exchange = client->exchange;
    if (exchange == nullptr) continue;
    if (exchange->stream != nullptr) {
      exchange->stream->is_ended = true;
      exchange->stream->wake();
    } else if (exchange->phase == HttpExchange::Phase::kWaiting) {
      exchange->wants_answer = false;
      exchange->response =
          problem_response(Error(ErrorCode::unavailable, "the daemon is stopping: try again"));
      exchange->deliver();
    }
  }
  pump();
  close_upgraded();
  daemon_watch.reset();
  daemon_timer.reset();
  is_pumping = true;  // what the callbacks of stopping ask for is too late
  ::MHD_stop_daemon(daemon);
  daemon = nullptr;
  while (!connections.empty()) connection_closed(*connections.begin()->second);
}

Result<std::unique_ptr<HttpServer>> HttpServer::create(Reactor& reactor, Handler handler, Options options) {
  auto state = std::make_shared<HttpServerState>(reactor, std::move(handler), options);
  TRY(state->start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::shared_ptr<HttpServerState> state) : state_(std::move(state)) {}
HttpServer::~HttpServer() { state_->stop(); }

Result<void> HttpServer::listen_unix_path(const std::string& path, mode_t mode) {
  TRY_ASSIGN(UniqueFd socket, listen_unix(path, SocketKind::kStream, mode, kBacklog));
  return state_->add_listener(std::move(socket));
}

Result<uint16_t> HttpServer::listen_loopback(uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return fail(system_error("making a socket"));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, size) != 0 || ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    return fail(system_error("listening at 127.0.0.1:" + std::to_string(port)));
  }
  TRY(state_->add_listener(std::move(socket)));
  return ntohs(address.sin_port);
}

Result<uint16_t> HttpServer::listen_tls(const std::string& address) {
  TRANCHE_ASSERT(state_->has_tls());
  TRY_ASSIGN(ListeningSocket listening, listen_internet(address, kBacklog));
  TRY(state_->add_listener(std::move(listening.socket)));
  return listening.port;
}

Result<void> HttpServer::listen_inherited(UniqueFd socket) {
  int is_listening = 0;
  socklen_t size = sizeof is_listening;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0 || is_listening == 0) {
    return fail(ErrorCode::invalid_argument, "the inherited descriptor is not a listening socket");
  }
  return state_->add_listener(std::move(socket));
}

void HttpServer::stop_listening() { state_->listeners.clear(); }
size_t HttpServer::connections() const { return state_->connections.size(); }
size_t HttpServer::streams() const { return state_->stream_count; }

}  // namespace tranche
