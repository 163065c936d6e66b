#include "cli/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/assert.h"
#include "cli/program.h"
#include "linux/files.h"

namespace tranche::cli::testing {
namespace {

// Until `wanted` is in `input` or the connection ends.
bool read_until(int socket, std::string& input, std::string_view wanted) {
  char block[4096];
  while (input.find(wanted) == std::string::npos) {
    const ssize_t got = recv(socket, block, sizeof block, 0);
    if (got <= 0) return false;
    input.append(block, static_cast<size_t>(got));
  }
  return true;
}

size_t content_length(std::string_view head) {
  for (const std::string_view name : {"Content-Length: ", "content-length: "}) {
    const size_t at = head.find(name);
    if (at == std::string_view::npos) continue;
    size_t length = 0;
    std::from_chars(head.data() + at + name.size(), head.data() + head.size(), length);
    return length;
  }
  return 0;
}

void send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

bool read_request(int socket, std::string& input, FakeRequest& request) {
  if (!read_until(socket, input, "\r\n\r\n")) return false;
  const size_t end = input.find("\r\n\r\n") + 4;
  request.head = input.substr(0, end);
  const size_t space = request.head.find(' ');
  request.method = request.head.substr(0, space);
  request.target = request.head.substr(space + 1, request.head.find(' ', space + 1) - space - 1);
  const size_t length = content_length(request.head);
  input.erase(0, end);
  char block[4096];
  while (input.size() < length) {
    const ssize_t got = recv(socket, block, sizeof block, 0);
    if (got <= 0) return false;
    input.append(block, static_cast<size_t>(got));
  }
  request.body = input.substr(0, length);
  input.erase(0, length);
  return true;
}

std::string contents(int file) {
  std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

}  // namespace

FakeDaemon::FakeDaemon(Handler handler) : handler_(std::move(handler)), stop_(eventfd(0, EFD_CLOEXEC)) {
  char name[] = "/tmp/tranche-cli-XXXXXX";
  directory_ = mkdtemp(name);
  path_ = directory_ + "/socket";
  listening_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  TRANCHE_ASSERT(bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  TRANCHE_ASSERT(listen(listening_.get(), 16) == 0);
  acceptor_ = std::thread([this] { serve(); });
}

FakeDaemon::~FakeDaemon() {
  const uint64_t one = 1;
  TRANCHE_ASSERT(write(stop_.get(), &one, sizeof one) == sizeof one);
  acceptor_.join();
  for (std::thread& connection : connections_) connection.join();
  std::filesystem::remove_all(directory_);
}

void FakeDaemon::serve() {
  while (true) {
    pollfd waiting[] = {{listening_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(waiting, 2, -1);
    if (waiting[1].revents != 0) return;
    UniqueFd connection(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.is_open()) continue;
    connections_.emplace_back([this, socket = connection.release()] { serve_connection(UniqueFd(socket)); });
  }
}

void FakeDaemon::serve_connection(UniqueFd connection) {
  std::string input;
  FakeRequest request;
  while (true) {
    // A client that keeps its connection must not keep the test from ending.
    pollfd waiting[] = {{connection.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(waiting, 2, -1);
    if (waiting[0].revents == 0 || !read_request(connection.get(), input, request)) return;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const FakeReply reply = handler_(request);
    std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " X\r\n" + reply.extra_headers;
    if (reply.status == 101) {
      send_all(connection.get(), text + "Connection: Upgrade\r\nUpgrade: tranche-attach\r\n\r\n");
      reply.upgraded(connection.get());
      return;
    }
    send_all(connection.get(),
             text + "Content-Length: " + std::to_string(reply.body.size()) + "\r\n\r\n" + reply.body);
  }
}

std::vector<FakeRequest> FakeDaemon::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<std::string> FakeDaemon::asked() const {
  std::vector<std::string> lines;
  for (const FakeRequest& request : requests()) lines.push_back(request.method + " " + request.target);
  return lines;
}

FakeReply problem(int status, std::string_view type, std::string_view detail) {
  return {.status = status,
          .body = "{\"type\":\"" + std::string(type) + "\",\"title\":\"x\",\"status\":" +
                  std::to_string(status) + ",\"detail\":\"" + std::string(detail) + "\"}"};
}

Outcome run_words(const std::string& socket_path, std::vector<std::string> words, Session::Setup setup) {
  const UniqueFd output(memfd_create("output", MFD_CLOEXEC));
  const UniqueFd error(memfd_create("error", MFD_CLOEXEC));
  setup.output = output.get();
  setup.error = error.get();
  if (setup.user.empty()) setup.user = "ada";
  if (setup.directory.empty()) setup.directory = "/home/ada";
  Outcome outcome;
  {
    Session session(std::move(setup));
    session.socket_path = socket_path;
    outcome.code = run_program(session, std::move(words));
  }
  outcome.output = contents(output.get());
  outcome.error = contents(error.get());
  return outcome;
}

TemporaryDirectory::TemporaryDirectory() {
  char name[] = "/tmp/tranche-cli-XXXXXX";
  path_ = mkdtemp(name);
}

TemporaryDirectory::~TemporaryDirectory() { std::filesystem::remove_all(path_); }

void write_text(const std::string& path, std::string_view text) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  TRANCHE_ASSERT(write_all(file.get(), text).has_value());
}

}  // namespace tranche::cli::testing
