#include "linux/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "linux/files.h"
#include "linux/http_client.h"
#include "linux/log.h"
#include "linux/sd_event_reactor.h"
#include "linux/test_support.h"
#include "linux/unix_socket.h"

namespace tranche {
namespace {

HttpResponse text_response(std::string body) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

// A server with its reactor in a thread of its own, as a process would have it.
class RunningServer {
 public:
  explicit RunningServer(HttpServer::Handler handler, HttpServer::Options options = HttpServer::Options()) {
    std::promise<void> started;
    thread_ = std::thread([this, &started, handler = std::move(handler), options] {
      reactor_ = std::move(*SdEventReactor::create());
      server_ = std::move(*HttpServer::create(*reactor_, handler, options));
      EXPECT_TRUE(server_->listen_unix_path(socket_path(), 0666));
      port_ = *server_->listen_loopback(0);
      started.set_value();
      EXPECT_TRUE(reactor_->run());
      server_.reset();
      reactor_.reset();
    });
    started.get_future().wait();
  }
  ~RunningServer() { stop(); }

  void stop() {
    if (!thread_.joinable()) return;
    reactor_->stop();
    thread_.join();
  }
  // Runs `work` on the loop's thread and waits for it.
  void on_loop(const std::function<void()>& work) {
    std::promise<void> done;
    reactor_->post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  std::string socket_path() const { return directory_.file("sock"); }
  uint16_t port() const { return port_; }
  SdEventReactor& reactor() { return *reactor_; }
  HttpServer& server() { return *server_; }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<SdEventReactor> reactor_;
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
  std::thread thread_;
};

void echo(HttpRequest request, Responder responder) {
  responder.respond(text_response(request.method + " " + request.path + " " + request.body));
}

UniqueFd connect_raw(const RunningServer& server) {
  auto socket = connect_unix(server.socket_path(), SocketKind::kStream);
  EXPECT_TRUE(socket);
  return std::move(*socket);
}

// Reads until the text holds `count` times `needle`, or the end. Every wait is bounded, so that a fault
// fails.
std::string read_until(int socket, std::string_view needle, size_t count = 1) {
  std::string text;
  while (true) {
    size_t found = 0;
    for (size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + 1)) ++found;
    if (found >= count) return text;
    if (!wait_readable(socket, 20 * kSecond)) return text + "<silence>";
    char block[65536];
    const ssize_t size = ::recv(socket, block, sizeof block, 0);
    if (size <= 0) return text + "<end>";
    text.append(block, static_cast<size_t>(size));
  }
}

void send_text(int socket, std::string_view text) {
  ASSERT_EQ(::send(socket, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

TEST(HttpServer, AnswersManyRequestsOnOneConnection) {
  RunningServer server(echo);
  HttpClient client(server.socket_path());
  for (int i = 0; i < 500; ++i) {
    const auto reply = client.request("POST", "/v1/jobs?x=1", {}, "body" + std::to_string(i));
    ASSERT_TRUE(reply) << reply.error().message();
    ASSERT_EQ(reply->status, 200);
    ASSERT_EQ(reply->body, "POST /v1/jobs body" + std::to_string(i));
  }
  server.on_loop([&] { EXPECT_EQ(server.server().connections(), 1u); });
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  RunningServer server(echo);
  const UniqueFd socket = connect_raw(server);
  std::string requests;
  for (int i = 0; i < 20; ++i) requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  send_text(socket.get(), requests);
  const std::string replies = read_until(socket.get(), "GET /", 20);
  size_t at = 0;
  for (int i = 0; i < 20; ++i) {
    at = replies.find("GET /" + std::to_string(i) + " ", at);
    ASSERT_NE(at, std::string::npos) << i << replies;
  }
}

TEST(HttpServer, AnswersLaterWhileOthersAreServed) {
  std::vector<Responder> waiting;
  RunningServer server([&](HttpRequest request, Responder responder) {
    if (request.path == "/later") return waiting.push_back(std::move(responder));
    echo(std::move(request), std::move(responder));
  });
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(connect_raw(server));
    // Two requests each: the second is pipelined behind one that waits.
    send_text(clients.back().get(),
              "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  HttpClient other(server.socket_path());
  for (size_t arrived = 0; arrived < clients.size();) {
    ASSERT_TRUE(other.request("GET", "/now"));
    server.on_loop([&] { arrived = waiting.size(); });
  }
  server.on_loop([&] {
    for (Responder& one : waiting) one.respond(text_response("at last"));
    waiting.clear();
  });
  for (const UniqueFd& client : clients) {
    const std::string text = read_until(client.get(), "GET /next");
    EXPECT_NE(text.find("at last"), std::string::npos);
    EXPECT_NE(text.find("GET /next"), std::string::npos);
  }
}

TEST(HttpServer, ToleratesAClientThatGoesBeforeItsAnswer) {
  std::vector<Responder> waiting;
  RunningServer server([&](HttpRequest, Responder responder) { waiting.push_back(std::move(responder)); });
  std::promise<void> noticed;
  UniqueFd socket = connect_raw(server);
  send_text(socket.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  for (bool arrived = false; !arrived;) server.on_loop([&] { arrived = !waiting.empty(); });
  server.on_loop([&] { waiting.front().on_gone([&] { noticed.set_value(); }); });
  socket.reset();
  noticed.get_future().wait();
  server.on_loop([&] {
    EXPECT_TRUE(waiting.front().is_gone());
    waiting.front().respond(text_response("for nobody"));
    waiting.clear();
  });
}

TEST(HttpServer, RefusesBodiesOverTheCapWhetherAnnouncedOrNot) {
  HttpServer::Options options;
  options.body_max = 1000;
  RunningServer server(echo, options);
  HttpClient client(server.socket_path());
  const auto allowed = client.request("POST", "/", {}, std::string(1000, 'a'));
  ASSERT_TRUE(allowed);
  EXPECT_EQ(allowed->status, 200);
  const auto announced = client.request("POST", "/", {}, std::string(1001, 'a'));
  ASSERT_TRUE(announced) << announced.error().message();
  EXPECT_EQ(announced->status, 413);
  EXPECT_EQ(*announced->header("content-type"), "application/problem+json");
  EXPECT_NE(announced->body.find(R"("type":"too_large")"), std::string::npos);

  const UniqueFd socket = connect_raw(server);
  send_text(socket.get(), "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 2; ++i) send_text(socket.get(), "300\r\n" + std::string(0x300, 'b') + "\r\n");
  send_text(socket.get(), "0\r\n\r\n");
  EXPECT_NE(read_until(socket.get(), "too_large").find("HTTP/1.1 413"), std::string::npos);
}

TEST(HttpServer, RefusesWhatIsNotAProperTarget) {
  RunningServer server(echo);
  HttpClient client(server.socket_path());
  EXPECT_EQ(client.request("GET", "/a%2fb")->status, 400);
  EXPECT_EQ(client.request("GET", "/a%0ab")->status, 400);
  EXPECT_EQ(client.request("GET", "/" + std::string(5000, 'a'))->status, 414);
  EXPECT_EQ(client.request("GET", "/a%20b")->body, "GET /a b ");
}

TEST(HttpServer, DoesNotLetASlowClientHoldUpOthersAndEndsIt) {
  HttpServer::Options options;
  options.request_timeout = 300 * kMillisecond;
  RunningServer server(echo, options);
  const UniqueFd slow = connect_raw(server);
  send_text(slow.get(), "POST / HTTP/1.1\r\nHost: x\r\nContent-Le");
  HttpClient client(server.socket_path());
  ASSERT_TRUE(client.request("GET", "/"));
  // It goes on sending a byte at a time, which must not keep it alive.
  std::string end;
  while (end.empty()) {
    if (::send(slow.get(), "n", 1, MSG_NOSIGNAL) < 0) break;
    if (wait_readable(slow.get(), 20 * kMillisecond)) end = read_until(slow.get(), "no such text");
  }
  EXPECT_TRUE(end.empty() || end.find("<end>") != std::string::npos) << end;
  EXPECT_TRUE(client.request("GET", "/"));
}

TEST(HttpServer, LimitsConnectionsOfOneUserWithAnAnswer) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to be another user";
  HttpServer::Options options;
  options.connections_per_uid_max = 3;
  RunningServer server(echo, options);
  std::filesystem::permissions(std::filesystem::path(server.socket_path()).parent_path(),
                               std::filesystem::perms(0755));
  ChildProcess other([&] {
    if (::setgroups(0, nullptr) != 0 || ::setgid(12345) != 0 || ::setuid(12345) != 0) return 90;
    std::vector<HttpClient> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back(server.socket_path());
      const auto reply = clients.back().request("GET", "/");
      if (!reply || reply->status != (i < 3 ? 200 : 503)) return i + 1;
    }
    return 0;
  });
  EXPECT_EQ(other.wait(), 0);
  HttpClient root(server.socket_path());
  EXPECT_EQ(root.request("GET", "/")->status, 200);
}

TEST(HttpServer, RefusingOneUserAgainAndAgainFillsNoLog) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to be another user";
  constexpr int kRefused = 200;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t told = 0;
  uint64_t lines = 0;
  set_log_sink([&](LogLevel, std::string_view line) {
    const size_t count = line.find("count=");
    if (line.find("event=connection_refused uid=12345 ") == line.npos || count == line.npos) return;
    const std::lock_guard lock(mutex);
    ++lines;
    told += static_cast<uint64_t>(std::stoi(std::string(line.substr(count + 6))));
    changed.notify_all();
  });
  {
    HttpServer::Options options;
    options.connections_per_uid_max = 1;
    RunningServer server(echo, options);
    std::filesystem::permissions(std::filesystem::path(server.socket_path()).parent_path(),
                                 std::filesystem::perms(0755));
    ChildProcess other([&] {
      if (::setgroups(0, nullptr) != 0 || ::setgid(12345) != 0 || ::setuid(12345) != 0) return 90;
      HttpClient first(server.socket_path());
      if (!first.request("GET", "/")) return 91;
      for (int i = 0; i < kRefused; ++i) {
        const auto reply = HttpClient(server.socket_path()).request("GET", "/");
        if (!reply || reply->status != 503) return 1;
      }
      return 0;
    });
    EXPECT_EQ(other.wait(), 0);
    // The client has gone: the rest is told all the same.
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return told == kRefused; })) << told;
    EXPECT_LT(lines, uint64_t{kRefused} / 2);
  }
  set_log_sink({});
}

TEST(HttpServer, KnowsItsPeerWithSupplementaryGroups) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to be another user";
  RunningServer server([](HttpRequest request, Responder responder) {
    const PeerCredentials& peer = *request.peer.credentials;
    std::string text =
        std::to_string(peer.pid) + " " + std::to_string(peer.uid) + " " + std::to_string(peer.gid);
    for (const gid_t group : peer.groups) text += " " + std::to_string(group);
    responder.respond(text_response(text));
  });
  std::filesystem::permissions(std::filesystem::path(server.socket_path()).parent_path(),
                               std::filesystem::perms(0755));
  ChildProcess other([&] {
    const gid_t groups[] = {20001, 20002};
    if (::setgroups(2, groups) != 0 || ::setgid(12346) != 0 || ::setuid(12345) != 0) return 90;
    HttpClient client(server.socket_path());
    const auto reply = client.request("GET", "/");
    if (!reply) return 91;
    return reply->body == std::to_string(::getpid()) + " 12345 12346 20001 20002" ? 0 : 1;
  });
  EXPECT_EQ(other.wait(), 0);
}

TEST(HttpServer, ServesPlainRequestsBesideManyStreams) {
  std::vector<EventStream> streams;
  RunningServer server([&](HttpRequest request, Responder responder) {
    if (request.path != "/events") return echo(std::move(request), std::move(responder));
    auto stream = responder.stream();
    ASSERT_TRUE(stream);
    stream->send(1, "hello", "first\nsecond");
    streams.push_back(std::move(*stream));
  });
  constexpr size_t kClients = 200;
  std::vector<UniqueFd> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(connect_raw(server));
    send_text(clients.back().get(), "GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  const std::string first = "id: 1\nevent: hello\ndata: first\ndata: second\n\n";
  for (const UniqueFd& client : clients)
    ASSERT_NE(read_until(client.get(), first).find(first), std::string::npos);
  HttpClient plain(server.socket_path());
  EXPECT_EQ(plain.request("GET", "/plain")->body, "GET /plain ");
  server.on_loop([&] {
    EXPECT_EQ(server.server().streams(), kClients);
    for (EventStream& stream : streams) EXPECT_EQ(stream.send(2, "", "again"), EventStream::Sent::buffered);
  });
  for (const UniqueFd& client : clients) {
    ASSERT_NE(read_until(client.get(), "id: 2\ndata: again\n\n").find("id: 2"), std::string::npos);
  }
  EXPECT_EQ(plain.request("GET", "/plain")->status, 200);
  server.on_loop([&] { streams.clear(); });
  for (const UniqueFd& client : clients)
    ASSERT_NE(read_until(client.get(), "0\r\n\r\n").find("0\r\n\r\n"), std::string::npos);
  server.on_loop([&] { EXPECT_EQ(server.server().streams(), 0u); });
}

TEST(HttpServer, NoticesAStreamsClientThatGoes) {
  std::unique_ptr<EventStream> stream;
  std::promise<void> closed;
  RunningServer server([&](HttpRequest, Responder responder) {
    stream = std::make_unique<EventStream>(std::move(*responder.stream()));
    stream->on_close([&] { closed.set_value(); });
  });
  UniqueFd client = connect_raw(server);
  send_text(client.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  read_until(client.get(), "\r\n\r\n");
  client.reset();
  closed.get_future().wait();
  server.on_loop([&] {
    EXPECT_FALSE(stream->is_open());
    EXPECT_EQ(stream->send(1, "a", "b"), EventStream::Sent::closed);
    stream.reset();
  });
  for (size_t left = 1; left > 0;) server.on_loop([&] { left = server.server().connections(); });
}

TEST(HttpServer, SendsHeartbeatsOnQuietStreams) {
  std::vector<EventStream> streams;
  HttpServer::Options options;
  options.heartbeat = 20 * kMillisecond;
  RunningServer server(
      [&](HttpRequest, Responder responder) { streams.push_back(std::move(*responder.stream())); }, options);
  const UniqueFd client = connect_raw(server);
  send_text(client.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(read_until(client.get(), ":\n\n", 3).find("<"), std::string::npos);
  server.on_loop([&] { streams.clear(); });
}

TEST(HttpServer, TellsASlowStreamsClientToResynchronise) {
  std::unique_ptr<EventStream> stream;
  HttpServer::Options options;
  options.stream_buffer_max = 8192;
  RunningServer server(
      [&](HttpRequest, Responder responder) {
        stream = std::make_unique<EventStream>(std::move(*responder.stream()));
      },
      options);
  const UniqueFd client = connect_raw(server);
  send_text(client.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  read_until(client.get(), "\r\n\r\n");
  uint64_t last = 0;
  for (bool is_resynced = false; !is_resynced;) {
    server.on_loop([&] {
      is_resynced = stream->send(++last, "big", std::string(1000, 'x')) == EventStream::Sent::resynced;
      EXPECT_LE(stream->buffered_bytes(), options.stream_buffer_max);
    });
    ASSERT_LT(last, 100000u);
  }
  server.on_loop([&] { stream->send(last + 1, "after", "end"); });
  const std::string text = read_until(client.get(), "event: after");
  EXPECT_NE(text.find("id: " + std::to_string(last) + "\nevent: resync\ndata: {}\n\n"), std::string::npos);
  // What was half sent was finished: every event that began has its whole data.
  EXPECT_EQ(text.find("<"), std::string::npos);
  server.on_loop([&] { stream.reset(); });
}

TEST(HttpServer, LimitsStreamsOfOneUser) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to be another user";
  std::vector<EventStream> streams;
  HttpServer::Options options;
  options.streams_per_uid_max = 1;
  RunningServer server(
      [&](HttpRequest, Responder responder) {
        auto stream = responder.stream();
        if (stream) streams.push_back(std::move(*stream));
      },
      options);
  std::filesystem::permissions(std::filesystem::path(server.socket_path()).parent_path(),
                               std::filesystem::perms(0755));
  ChildProcess other([&] {
    if (::setgid(12345) != 0 || ::setuid(12345) != 0) return 90;
    const auto first = connect_unix(server.socket_path(), SocketKind::kStream);
    if (!first) return 91;
    send_text(first->get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    if (read_until(first->get(), "\r\n\r\n").find("200 OK") == std::string::npos) return 1;
    HttpClient second(server.socket_path());
    const auto reply = second.request("GET", "/");
    return reply && reply->status == 429 ? 0 : 2;
  });
  EXPECT_EQ(other.wait(), 0);
  server.on_loop([&] { streams.clear(); });
}

// The daemon's hand-over: client -> server -> another process, which goes on when the server is killed.
TEST(HttpServer, HandsTheRealSocketToAProcessThatOutlivesIt) {
  TemporaryDirectory directory;
  auto channel = unix_socket_pair(SocketKind::kPacket);
  ASSERT_TRUE(channel);
  auto& [to_shepherd, shepherd_end] = *channel;
  ChildProcess shepherd([&] {
    to_shepherd.reset();
    std::byte buffer[4096];
    auto message = receive_message(shepherd_end.get(), buffer);
    if (!message || message->file_descriptors.size() != 1) return 1;
    const int client = message->file_descriptors[0].get();
    ::fcntl(client, F_SETFL, ::fcntl(client, F_GETFL) & ~O_NONBLOCK);
    std::string hello = "early=" + std::string(reinterpret_cast<char*>(buffer), message->size) + "\n";
    if (!write_all(client, hello)) return 2;
    char block[100];
    while (true) {
      const ssize_t size = ::read(client, block, sizeof block);
      if (size <= 0) return 0;
      if (!write_all(client, "echo " + std::string(block, static_cast<size_t>(size)))) return 3;
    }
  });
  ChildProcess daemon([&] {
    auto reactor = SdEventReactor::create();
    auto server = HttpServer::create(
        **reactor,
        [&](HttpRequest request, Responder responder) {
          if (!request.wants_upgrade("tranche-stream")) {
            responder.respond(Error(ErrorCode::invalid_argument, "no"));
            return;
          }
          const auto taken = [&](UniqueFd socket, std::string early) {
            early = "[" + early + "]";
            const int descriptors[] = {socket.get()};
            if (!send_message(to_shepherd.get(), std::as_bytes(std::span(early)), descriptors)) ::_exit(9);
          };
          if (!responder.upgrade("tranche-stream", {{"Tranche-Job", request.body}}, taken)) ::_exit(10);
        },
        HttpServer::Options());
    if (!(*server)->listen_unix_path(directory.file("sock"), 0666)) return 1;
    if (!write_file_atomically(directory.file("ready"), "", 0644)) return 2;
    return (*reactor)->run() ? 0 : 3;
  });
  to_shepherd.reset();
  shepherd_end.reset();
  while (!std::filesystem::exists(directory.file("ready"))) ::usleep(1000);

  HttpClient client(directory.file("sock"));
  auto refused = client.upgrade("POST", "/attach", "something-else");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reply.status, 400);
  EXPECT_FALSE(refused->socket.is_open());
  auto upgraded = client.upgrade("POST", "/attach", "tranche-stream", {}, "7");
  ASSERT_TRUE(upgraded) << upgraded.error().message();
  EXPECT_EQ(upgraded->reply.status, 101);
  EXPECT_EQ(*upgraded->reply.header("tranche-job"), "7");
  const std::string hello =
      upgraded->early_bytes.empty() ? read_until(upgraded->socket.get(), "\n") : upgraded->early_bytes;
  ASSERT_EQ(hello, "early=[]\n");
  EXPECT_EQ(daemon.finish(SIGKILL), -SIGKILL);
  ASSERT_TRUE(write_all(upgraded->socket.get(), "ping\n"));
  EXPECT_EQ(read_until(upgraded->socket.get(), "\n"), "echo ping\n");
  upgraded->socket.reset();
  EXPECT_EQ(shepherd.wait(), 0);
}

TEST(HttpServer, GivesBytesThatFollowAnUpgradeToItsTaker) {
  std::promise<std::string> early;
  UniqueFd kept;
  RunningServer server([&](HttpRequest, Responder responder) {
    EXPECT_TRUE(responder.upgrade("x", {}, [&](UniqueFd socket, std::string bytes) {
      kept = std::move(socket);
      early.set_value(bytes);
    }));
  });
  const UniqueFd client = connect_raw(server);
  send_text(client.get(),
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nalready here");
  EXPECT_EQ(early.get_future().get(), "already here");
  ASSERT_TRUE(write_all(kept.get(), "answer\n"));
  EXPECT_NE(read_until(client.get(), "answer\n").find("HTTP/1.1 101"), std::string::npos);
  for (size_t left = 1; left > 0;) server.on_loop([&] { left = server.server().connections(); });
}

UniqueFd connect_tcp(uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

std::string over_tcp(uint16_t port, const std::string& headers) {
  const UniqueFd socket = connect_tcp(port);
  send_text(socket.get(), "GET / HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n");
  return read_until(socket.get(), "no such text").substr(0, 12);
}

TEST(HttpServer, RefusesPagesOfOtherSitesOnLoopback) {
  RunningServer server(echo);
  const std::string host = "localhost:" + std::to_string(server.port());
  EXPECT_EQ(over_tcp(server.port(), "Host: " + host + "\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(over_tcp(server.port(), "Host: " + host + "\r\nOrigin: http://" + host + "\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(over_tcp(server.port(), "Host: [::1]:80\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(over_tcp(server.port(), "Host: " + host + "\r\nOrigin: http://evil.example\r\n"), "HTTP/1.1 403");
  EXPECT_EQ(over_tcp(server.port(), "Host: evil.example\r\n"), "HTTP/1.1 403");
  EXPECT_EQ(over_tcp(server.port(), "Host: localhost.evil.example\r\n"), "HTTP/1.1 403");
}

TEST(HttpServer, SendsStreamedEventsOverTcpAtOnce) {
  std::vector<EventStream> streams;
  RunningServer server([&](HttpRequest request, Responder responder) {
    EXPECT_FALSE(request.peer.credentials);
    streams.push_back(std::move(*responder.stream()));
  });
  const UniqueFd client = connect_tcp(server.port());
  send_text(client.get(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(read_until(client.get(), "\r\n\r\n").find("text/event-stream"), std::string::npos);
  server.on_loop([&] { streams.front().send(5, "a", "b"); });
  EXPECT_NE(read_until(client.get(), "data: b").find("id: 5"), std::string::npos);
  server.on_loop([&] { streams.clear(); });
}

TEST(HttpServer, AnswersWhatWaitsWhenItStops) {
  auto waiting = std::make_unique<std::vector<Responder>>();
  auto streams = std::make_unique<std::vector<EventStream>>();
  RunningServer server([&](HttpRequest request, Responder responder) {
    if (request.path == "/stream") {
      streams->push_back(std::move(*responder.stream()));
    } else {
      waiting->push_back(std::move(responder));
    }
  });
  const UniqueFd first = connect_raw(server);
  const UniqueFd second = connect_raw(server);
  const UniqueFd idle = connect_raw(server);
  send_text(first.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  send_text(second.get(), "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  for (bool arrived = false; !arrived;) {
    server.on_loop(
        [&] { arrived = !waiting->empty() && !streams->empty() && server.server().connections() == 3; });
  }
  server.stop();
  EXPECT_NE(read_until(first.get(), "no such text").find("HTTP/1.1 503"), std::string::npos);
  EXPECT_NE(read_until(second.get(), "no such text").find("<end>"), std::string::npos);
  // They outlive the server and do nothing.
  EXPECT_TRUE(waiting->front().is_gone());
  waiting->front().respond(text_response("late"));
  EXPECT_EQ(streams->front().send(1, "a", "b"), EventStream::Sent::closed);
}

TEST(HttpServer, ARequestDroppedWithoutAnswerIsAnInternalError) {
  RunningServer server([](HttpRequest, Responder) {});
  HttpClient client(server.socket_path());
  EXPECT_EQ(client.request("GET", "/")->status, 500);
}

TEST(HttpServer, LeavesTheBodyOfHeadOut) {
  RunningServer server(echo);
  HttpClient client(server.socket_path());
  const auto head = client.request("HEAD", "/");
  ASSERT_TRUE(head) << head.error().message();
  EXPECT_EQ(head->body, "");
  EXPECT_EQ(*head->header("Content-Length"), "7");
  EXPECT_EQ(client.request("GET", "/")->body, "GET / ");
}

TEST(HttpServer, SendsLargeAnswersWhole) {
  const std::string large(10'000'000, 'z');
  RunningServer server([&](HttpRequest, Responder responder) { responder.respond(text_response(large)); });
  HttpClient client(server.socket_path());
  const auto reply = client.request("GET", "/");
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->body == large);
}

TEST(ProblemResponse, EscapesWhatTheMessageHolds) {
  const HttpResponse response = problem_response(Error(ErrorCode::not_found, "no job \"7\n\" here"));
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.body,
            "{\"type\":\"not_found\",\"title\":\"Not Found\",\"status\":404,\"detail\":\"no job \\\"7\\n\\\" "
            "here\"}\n");
}

}  // namespace
}  // namespace tranche
