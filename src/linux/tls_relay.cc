#include "linux/tls_relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "linux/internet_address.h"
#include "linux/system_error.h"
#include "linux/unique_fd.h"

namespace tranche {
namespace {

using Context = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;
using Connection = std::unique_ptr<SSL, void (*)(SSL*)>;

constexpr size_t kBlock = 16 * 1024;

int milliseconds(Duration time) { return static_cast<int>(time.count() / kMillisecond.count()); }

bool wait_for(int descriptor, short events, Duration timeout) {
  pollfd watched{descriptor, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&watched, 1, milliseconds(timeout));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

void make_non_blocking(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

Result<UniqueFd> connect_to(const addrinfo& address, Duration timeout) {
  UniqueFd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return fail(system_error("making a socket"));
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return fail(system_error("connecting"));
  if (!wait_for(socket.get(), POLLOUT, timeout)) return fail(ErrorCode::timed_out, "it does not answer");
  int problem = 0;
  socklen_t size = sizeof problem;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &size);
  if (problem != 0) return fail(system_error("connecting", problem));
  return socket;
}

Result<UniqueFd> connect_any(const TlsServerName& server, Duration timeout) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(server.host.c_str(), server.port.c_str(), &wanted, &found);
  if (problem != 0) {
    return fail(ErrorCode::unavailable,
                "there is no address of " + server.host + ": " + ::gai_strerror(problem));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &::freeaddrinfo);
  Error last(ErrorCode::unavailable, "it has no address");
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    auto socket = connect_to(*address, timeout);
    if (socket) return socket;
    last = std::move(socket).error();
  }
  const ErrorCode code = last.code() == ErrorCode::timed_out ? ErrorCode::timed_out : ErrorCode::unavailable;
  return fail(code, last.message());
}

bool is_numeric(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

Result<Context> make_context(const TlsServerName& server) {
  Context context(::SSL_CTX_new(::TLS_client_method()), &::SSL_CTX_free);
  if (!context) return fail(ErrorCode::internal, "OpenSSL cannot be used");
  ::SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  const int loaded = server.ca_file.empty()
                         ? ::SSL_CTX_set_default_verify_paths(context.get())
                         : ::SSL_CTX_load_verify_locations(context.get(), server.ca_file.c_str(), nullptr);
  if (loaded != 1) {
    return fail(ErrorCode::invalid_argument, server.ca_file + " holds no certificate of an authority (PEM)");
  }
  return context;
}

// SSL_set_tlsext_host_name without its C cast.
void set_server_name(SSL* connection, const std::string& host) {
  std::string name = host;
  ::SSL_ctrl(connection, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
}

// OpenSSL's own socket BIO writes without MSG_NOSIGNAL: a server that hangs up would end the program.
int send_without_signal(BIO* bio, const char* bytes, int size) {
  const ssize_t sent =
      ::send(static_cast<int>(::BIO_get_fd(bio, nullptr)), bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
  ::BIO_clear_retry_flags(bio);
  if (sent <= 0 && ::BIO_sock_should_retry(static_cast<int>(sent)) != 0) ::BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

const BIO_METHOD* make_socket_method() {
  const BIO_METHOD* standard = ::BIO_s_socket();
  BIO_METHOD* method = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR,
                                      "socket without signals");
  if (method == nullptr) return nullptr;
  ::BIO_meth_set_write(method, send_without_signal);
  ::BIO_meth_set_read(method, ::BIO_meth_get_read(standard));
  ::BIO_meth_set_puts(method, ::BIO_meth_get_puts(standard));
  ::BIO_meth_set_ctrl(method, ::BIO_meth_get_ctrl(standard));
  ::BIO_meth_set_create(method, ::BIO_meth_get_create(standard));
  ::BIO_meth_set_destroy(method, ::BIO_meth_get_destroy(standard));
  return method;
}

// The caller keeps `socket` and closes it.
bool use_socket(SSL* connection, int socket) {
  static const BIO_METHOD* const method = make_socket_method();
  BIO* bio = method == nullptr ? nullptr : ::BIO_new(method);
  if (bio == nullptr) return false;
  ::BIO_set_fd(bio, socket, BIO_NOCLOSE);
  ::SSL_set_bio(connection, bio, bio);
  return true;
}

Result<Connection> make_connection(SSL_CTX* context, const TlsServerName& server, int socket) {
  Connection connection(::SSL_new(context), &::SSL_free);
  if (!connection || !use_socket(connection.get(), socket))
    return fail(ErrorCode::internal, "OpenSSL cannot be used");
  const int named = is_numeric(server.host) ? ::X509_VERIFY_PARAM_set1_ip_asc(
                                                  ::SSL_get0_param(connection.get()), server.host.c_str())
                                            : ::SSL_set1_host(connection.get(), server.host.c_str());
  if (named != 1) return fail(ErrorCode::invalid_argument, server.host + " is no name of a host");
  if (!is_numeric(server.host)) set_server_name(connection.get(), server.host);
  return connection;
}

Result<void> shake_hands(SSL* connection, int socket, const TlsServerName& server, Duration timeout) {
  while (true) {
    const int done = ::SSL_connect(connection);
    if (done == 1) return {};
    const int wants = ::SSL_get_error(connection, done);
    if (wants == SSL_ERROR_WANT_READ || wants == SSL_ERROR_WANT_WRITE) {
      if (wait_for(socket, wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, timeout)) continue;
      return fail(ErrorCode::timed_out, "it does not answer the handshake");
    }
    const long verdict = ::SSL_get_verify_result(connection);
    if (verdict != X509_V_OK) {
      return fail(ErrorCode::denied,
                  std::string("its certificate is not believed: ") +
                      ::X509_verify_cert_error_string(verdict) +
                      (server.ca_file.empty() ? "; name its authority in TRANCHE_CA_FILE" : ""));
    }
    return fail(ErrorCode::unavailable, "it does not speak TLS 1.3");
  }
}

}  // namespace

struct TlsConnection::State {
  // Bytes on their way in one direction.
  struct Flow {
    std::array<char, kBlock> bytes{};
    size_t begin = 0;
    size_t end = 0;
    bool is_empty() const { return begin == end; }
  };

  UniqueFd socket;
  Context context{nullptr, &::SSL_CTX_free};
  Connection connection{nullptr, &::SSL_free};
  Flow out;  // from here to the server
  Flow in;

  // Each answers false when its side has ended.
  bool read_local(int local) {
    const ssize_t size = ::read(local, out.bytes.data(), out.bytes.size());
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    out.begin = 0;
    out.end = static_cast<size_t>(size);
    return size > 0;
  }
  bool write_local(int local) {
    const ssize_t size = ::send(local, in.bytes.data() + in.begin, in.end - in.begin, MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    in.begin += static_cast<size_t>(size);
    return true;
  }
  bool goes_on(int done) const {
    const int wants = ::SSL_get_error(connection.get(), done);
    return wants == SSL_ERROR_WANT_READ || wants == SSL_ERROR_WANT_WRITE;
  }
  bool read_server() {
    const int size = ::SSL_read(connection.get(), in.bytes.data(), static_cast<int>(in.bytes.size()));
    if (size <= 0) return goes_on(size);
    in.begin = 0;
    in.end = static_cast<size_t>(size);
    return true;
  }
  bool write_server() {
    const int size =
        ::SSL_write(connection.get(), out.bytes.data() + out.begin, static_cast<int>(out.end - out.begin));
    if (size <= 0) return goes_on(size);
    out.begin += static_cast<size_t>(size);
    return true;
  }
};

Result<TlsConnection> TlsConnection::connect(const TlsServerName& server, Duration timeout) {
  auto state = std::make_unique<State>();
  TRY_ASSIGN(state->context, make_context(server));
  TRY_ASSIGN(state->socket, connect_any(server, timeout));
  send_without_delay(state->socket.get());
  TRY_ASSIGN(state->connection, make_connection(state->context.get(), server, state->socket.get()));
  ::SSL_set_mode(state->connection.get(),
                 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  TRY(shake_hands(state->connection.get(), state->socket.get(), server, timeout));
  return TlsConnection(std::move(state));
}

void TlsConnection::relay(int local) {
  make_non_blocking(local);
  State& own = *state_;
  while (true) {
    // What OpenSSL has decrypted already makes no descriptor readable.
    const bool has_more = own.in.is_empty() && ::SSL_pending(own.connection.get()) > 0;
    short wanted_local = 0;
    if (own.out.is_empty()) wanted_local |= POLLIN;
    if (!own.in.is_empty()) wanted_local |= POLLOUT;
    short wanted_server = 0;
    if (own.in.is_empty()) wanted_server |= POLLIN;
    if (!own.out.is_empty()) wanted_server |= POLLOUT;
    pollfd watched[] = {{local, wanted_local, 0}, {own.socket.get(), wanted_server, 0}};
    if (::poll(watched, 2, has_more ? 0 : -1) < 0 && errno != EINTR) return;
    const bool local_moved = watched[0].revents != 0;
    const bool server_moved = watched[1].revents != 0 || has_more;
    if (local_moved && own.out.is_empty() && !own.read_local(local)) return;
    if (!own.out.is_empty() && !own.write_server()) return;
    if (server_moved && own.in.is_empty() && !own.read_server()) return;
    if (!own.in.is_empty() && !own.write_local(local)) return;
  }
}

TlsConnection::TlsConnection(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsConnection::TlsConnection(TlsConnection&&) noexcept = default;
TlsConnection& TlsConnection::operator=(TlsConnection&&) noexcept = default;

TlsConnection::~TlsConnection() {
  if (state_ != nullptr && state_->connection != nullptr) ::SSL_shutdown(state_->connection.get());
}

}  // namespace tranche
