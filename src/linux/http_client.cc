#include "linux/http_client.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "linux/system_error.h"
#include "linux/unix_socket.h"

namespace tranche {
namespace {

constexpr size_t kHeadersMax = 100;
constexpr size_t kBlockSize = 65536;
constexpr size_t kCompactAbove = size_t{1} << 20;  // used-up input is dropped when it exceeds this

Error not_http(std::string_view what) {
  return Error(ErrorCode::corrupt, "the daemon's answer is not HTTP: " + std::string(what));
}

bool has_body(std::string_view method, int status) {
  return method != "HEAD" && status >= 200 && status != 204 && status != 304;
}

bool is_valid_target(std::string_view target) {
  return !target.empty() &&
         std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

template <class Number>
bool parse_number(std::string_view text, int base, Number* number) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *number, base);
  return parsed.ec == std::errc() && parsed.ptr == end && !text.empty();
}

// Zero is none. What fails here only loses the timeout.
void set_send_timeout(int socket, Duration timeout) {
  timeval limit = {};
  limit.tv_sec = timeout.count() / kSecond.count();
  limit.tv_usec = timeout.count() % kSecond.count() / 1000;
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// "HTTP/1.1 200 OK"
Result<int> parse_status_line(std::string_view line) {
  int status = 0;
  if (line.size() < 12 || line.substr(0, 7) != "HTTP/1." || line[8] != ' ' ||
      !parse_number(line.substr(9, 3), 10, &status) || status < 100) {
    return fail(not_http("bad status line"));
  }
  return status;
}

// Puts lines of an event stream together, by the rules of the HTML standard, 9.2.6.
class EventParser {
 public:
  EventParser(size_t event_max, const HttpClient::Received& received)
      : event_max_(event_max), received_(received) {}

  // False when the receiver has had enough.
  Result<bool> take(std::string_view bytes) {
    for (const char c : bytes) {
      if (c != '\n') {
        line_ += c;
        if (line_.size() + event_.data.size() > event_max_) {
          return fail(ErrorCode::too_large,
                      "an event is longer than " + std::to_string(event_max_) + " bytes");
        }
        continue;
      }
      if (!line_.empty() && line_.back() == '\r') line_.pop_back();
      if (!end_line()) return false;
      line_.clear();
    }
    return true;
  }

 private:
  bool end_line() {
    if (line_.empty()) return dispatch();
    const std::string_view line(line_);
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = line.substr(0, colon);
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    if (name == "data") {
      event_.data.append(value).append("\n");
    } else if (name == "event") {
      event_.type = value;
    } else if (name == "id") {
      event_.id = value;
    }
    return true;  // comments (no name) and unknown fields are skipped
  }

  bool dispatch() {
    bool goes_on = true;
    if (!event_.data.empty()) {  // every line of data has added its own end
      event_.data.pop_back();
      if (event_.type.empty()) event_.type = "message";
      goes_on = received_(event_);
    }
    event_.type.clear();
    event_.data.clear();
    return goes_on;
  }

  const size_t event_max_;
  const HttpClient::Received& received_;
  std::string line_;
  ServerSentEvent event_;
};

}  // namespace

namespace {

HttpClient::Remote& remote() {
  static HttpClient::Remote set;
  return set;
}

}  // namespace

void HttpClient::set_remote(Remote set) { remote() = std::move(set); }

HttpClient::HttpClient(std::string socket_path, Options options)
    : socket_path_(std::move(socket_path)), options_(options) {}

Result<void> HttpClient::connect() {
  input_.clear();
  input_offset_ = 0;
  if (socket_path_.starts_with("https://")) {
    if (!remote().connect)
      return fail(ErrorCode::not_available_yet, "a remote daemon cannot be reached from here");
    TRY_ASSIGN(own_headers_, remote().headers());
    TRY_ASSIGN(socket_, remote().connect(socket_path_));
    set_send_timeout(socket_.get(), options_.timeout);
    return {};
  }
  auto connected = connect_unix(socket_path_, SocketKind::kStream);
  if (connected) {
    socket_ = std::move(*connected);
    set_send_timeout(socket_.get(), options_.timeout);
    return {};
  }
  const ErrorCode code = connected.error().code();
  if (code == ErrorCode::unavailable) {
    return fail(code, "the Tranche daemon is not running at " + socket_path_ +
                          ": start it with 'tranche-up start' as root, or one of your own with 'tranche-up "
                          "start --personal'");
  }
  if (code == ErrorCode::denied) {
    return fail(code, "you may not open " + socket_path_ +
                          ": ask the administrator to make the socket and its folder reachable");
  }
  return fail(std::move(connected).error());
}

Result<void> HttpClient::send_request(std::string_view method, std::string_view target,
                                      const HttpHeaders& headers, std::string_view body) {
  if (!is_valid_target(target) || !is_valid_header({std::string(method), ""})) {
    return fail(ErrorCode::invalid_argument,
                "the request line holds a character it may not: percent-encode the address");
  }
  std::string message;
  message.reserve(256 + body.size());
  if (socket_path_.starts_with("https://") && !socket_.is_open()) TRY(connect());
  message.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n");
  for (const HttpHeader& header : own_headers_) {
    if (!is_valid_header(header))
      return fail(ErrorCode::invalid_argument, "the token holds a character it may not");
    message.append(header.name).append(": ").append(header.value).append("\r\n");
  }
  for (const HttpHeader& header : headers) {
    if (!is_valid_header(header)) {
      return fail(ErrorCode::invalid_argument, "the header " + header.name + " holds a character it may not");
    }
    message.append(header.name).append(": ").append(header.value).append("\r\n");
  }
  if (!body.empty() || (method != "GET" && method != "HEAD")) {
    message.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  }
  message.append("\r\n").append(body);

  // An idle connection that the server has ended reads as ended: replaced before anything is sent on it.
  char peek = 0;
  if (socket_.is_open() && ::recv(socket_.get(), &peek, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) socket_.reset();
  if (!socket_.is_open()) TRY(connect());
  std::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t size = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    // The server may answer and close before it has read a body that is too long: that answer is worth
    // reading.
    if (size < 0 && (errno == EPIPE || errno == ECONNRESET)) return {};
    if (size < 0 && errno == EAGAIN)
      return fail(ErrorCode::timed_out, "the Tranche daemon takes no data: see its log");
    if (size < 0) return fail(system_error("sending to the Tranche daemon"));
    rest.remove_prefix(static_cast<size_t>(size));
  }
  return {};
}

Result<void> HttpClient::fill() {
  if (input_offset_ == input_.size()) {
    input_.clear();
    input_offset_ = 0;
  } else if (input_offset_ > kCompactAbove) {
    input_.erase(0, input_offset_);
    input_offset_ = 0;
  }
  if (auto readable = wait_readable(socket_.get(), options_.timeout); !readable) {
    return fail(std::move(readable).error().with_context("the Tranche daemon is silent"));
  }
  char block[kBlockSize];
  ssize_t size = 0;
  do {
    size = ::recv(socket_.get(), block, sizeof block, 0);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) {
    return fail(ErrorCode::unavailable,
                "the Tranche daemon closed the connection: try again, and see its log");
  }
  input_.append(block, static_cast<size_t>(size));
  return {};
}

Result<std::string> HttpClient::read_line() {
  size_t searched = input_offset_;
  while (true) {
    const size_t end = input_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = input_.substr(input_offset_, end - input_offset_);
      input_offset_ = end + 1;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return line;
    }
    const size_t pending = input_.size() - input_offset_;
    if (pending > options_.head_max) return fail(not_http("a line is too long"));
    TRY(fill());
    searched = input_offset_ + pending;
  }
}

Result<HttpReply> HttpClient::read_head() {
  HttpReply reply;
  do {
    reply.headers.clear();
    TRY_ASSIGN(const std::string status_line, read_line());
    TRY_ASSIGN(reply.status, parse_status_line(status_line));
    size_t size = 0;
    while (true) {
      TRY_ASSIGN(const std::string line, read_line());
      if (line.empty()) break;
      size += line.size();
      const size_t colon = line.find(':');
      if (colon == std::string::npos) return fail(not_http("a header without colon"));
      if (size > options_.head_max || reply.headers.size() == kHeadersMax)
        return fail(not_http("too many headers"));
      reply.headers.push_back(
          {line.substr(0, colon), std::string(trim_blanks(std::string_view(line).substr(colon + 1)))});
    }
  } while (reply.status == 100);
  return reply;
}

// Gives the pieces of a chunked body to `take` until that returns false.
Result<void> HttpClient::read_chunked(const std::function<Result<bool>(std::string_view)>& take) {
  while (true) {
    TRY_ASSIGN(const std::string line, read_line());
    uint64_t left = 0;
    if (!parse_number(trim_blanks(std::string_view(line).substr(0, line.find(';'))), 16, &left)) {
      return fail(not_http("bad length of a chunk"));
    }
    const bool is_last = left == 0;
    while (left > 0) {
      if (input_offset_ == input_.size()) TRY(fill());
      const auto size = static_cast<size_t>(std::min<uint64_t>(left, input_.size() - input_offset_));
      TRY_ASSIGN(const bool goes_on, take(std::string_view(input_).substr(input_offset_, size)));
      if (!goes_on) return {};
      input_offset_ += size;
      left -= size;
    }
    TRY_ASSIGN(std::string end, read_line());
    if (!is_last && !end.empty()) return fail(not_http("a chunk without end"));
    if (!is_last) continue;
    while (!end.empty()) {  // trailers
      TRY_ASSIGN(end, read_line());
    }
    return {};
  }
}

Result<void> HttpClient::read_body(HttpReply& reply) {
  const auto too_large = [this] {
    return fail(ErrorCode::too_large,
                "the answer is longer than " + std::to_string(options_.body_max) + " bytes");
  };
  const std::string* encoding = reply.header("Transfer-Encoding");
  if (encoding != nullptr && list_has_token(*encoding, "chunked")) {
    return read_chunked([&](std::string_view piece) -> Result<bool> {
      if (reply.body.size() + piece.size() > options_.body_max) return too_large();
      reply.body += piece;
      return true;
    });
  }
  const std::string* length = reply.header("Content-Length");
  uint64_t left = 0;
  if (length == nullptr) return fail(not_http("an answer without length"));
  if (!parse_number(*length, 10, &left)) return fail(not_http("bad Content-Length"));
  if (left > options_.body_max) return too_large();
  reply.body.reserve(left);
  while (left > 0) {
    if (input_offset_ == input_.size()) TRY(fill());
    const auto size = static_cast<size_t>(std::min<uint64_t>(left, input_.size() - input_offset_));
    reply.body.append(input_, input_offset_, size);
    input_offset_ += size;
    left -= size;
  }
  return {};
}

Result<HttpReply> HttpClient::request(std::string_view method, std::string_view target,
                                      const HttpHeaders& headers, std::string_view body) {
  auto exchanged = [&]() -> Result<HttpReply> {
    TRY(send_request(method, target, headers, body));
    TRY_ASSIGN(HttpReply reply, read_head());
    if (has_body(method, reply.status)) TRY(read_body(reply));
    return reply;
  }();
  const std::string* connection = exchanged ? exchanged->header("Connection") : nullptr;
  if (!exchanged || (connection != nullptr && list_has_token(*connection, "close"))) socket_.reset();
  return exchanged;
}

Result<HttpReply> HttpClient::stream(std::string_view target, const HttpHeaders& headers,
                                     const Received& received) {
  HttpHeaders all = headers;
  all.push_back({"Accept", "text/event-stream"});
  auto exchanged = [&]() -> Result<HttpReply> {
    TRY(send_request("GET", target, all, {}));
    TRY_ASSIGN(HttpReply reply, read_head());
    const std::string* encoding = reply.header("Transfer-Encoding");
    if (reply.status != 200) {
      TRY(read_body(reply));
      return reply;
    }
    if (encoding == nullptr || !list_has_token(*encoding, "chunked"))
      return fail(not_http("a stream without chunks"));
    EventParser parser(options_.event_max, received);
    TRY(read_chunked([&](std::string_view piece) { return parser.take(piece); }));
    return reply;
  }();
  socket_.reset();
  return exchanged;
}

Result<HttpClient::Upgraded> HttpClient::upgrade(std::string_view method, std::string_view target,
                                                 std::string_view protocol, const HttpHeaders& headers,
                                                 std::string_view body) {
  HttpHeaders all = headers;
  all.push_back({"Connection", "Upgrade"});
  all.push_back({"Upgrade", std::string(protocol)});
  auto exchanged = [&]() -> Result<Upgraded> {
    TRY(send_request(method, target, all, body));
    Upgraded upgraded;
    TRY_ASSIGN(upgraded.reply, read_head());
    if (upgraded.reply.status == 101) {
      upgraded.early_bytes = input_.substr(input_offset_);
      upgraded.socket = std::move(socket_);
      set_send_timeout(upgraded.socket.get(), Duration());
    } else if (has_body(method, upgraded.reply.status)) {
      TRY(read_body(upgraded.reply));
    }
    return upgraded;
  }();
  socket_.reset();
  input_.clear();
  input_offset_ = 0;
  return exchanged;
}

}  // namespace tranche
