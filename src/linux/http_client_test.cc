#include "linux/http_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "base/random.h"
#include "linux/files.h"
#include "linux/test_support.h"
#include "linux/unix_socket.h"

namespace tranche {
namespace {

// A peer that answers each connection with bytes given beforehand, whatever is asked, then closes.
class CannedServer {
 public:
  explicit CannedServer(std::vector<std::string> answers) {
    listening_ = std::move(*listen_unix(path(), SocketKind::kStream, 0600));
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const std::string& answer : answers) {
        const AfterClose count{&closed_};
        EXPECT_TRUE(wait_readable(listening_.get(), 20 * kSecond));
        const UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        char block[65536];
        ASSERT_GT(::recv(client.get(), block, sizeof block, 0), 0);
        // In small pieces, so that no reader depends on how bytes are cut.
        for (size_t at = 0; at < answer.size(); at += 7) {
          const std::string piece = answer.substr(at, 7);
          if (::send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
        }
      }
    });
  }
  ~CannedServer() { thread_.join(); }
  std::string path() const { return directory_.file("s"); }
  // Waits until it has answered and closed so many connections.
  void wait_closed(int connections) const {
    while (closed_ < connections) std::this_thread::yield();
  }

 private:
  // Counts when it goes; made before the connection, so it goes after.
  struct AfterClose {
    std::atomic<int>* closed;
    ~AfterClose() { ++*closed; }
  };

  std::atomic<int> closed_ = 0;
  TemporaryDirectory directory_;
  UniqueFd listening_;
  std::thread thread_;
};

Result<HttpReply> get_from(const std::string& answer, HttpClient::Options options = HttpClient::Options()) {
  CannedServer server({answer});
  HttpClient client(server.path(), options);
  return client.request("GET", "/");
}

TEST(HttpClient, SaysWhatToDoWhenTheDaemonIsNotRunning) {
  TemporaryDirectory directory;
  HttpClient client(directory.file("none"));
  const auto reply = client.request("GET", "/");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::unavailable);
  EXPECT_NE(reply.error().message().find("is not running at " + directory.file("none")), std::string::npos);
}

TEST(HttpClient, ReadsLengthsAndChunks) {
  const auto plain = get_from("HTTP/1.1 404 Not Found\r\ncontent-length:  5 \r\nX: y\r\n\r\nhello");
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ(plain->status, 404);
  EXPECT_EQ(plain->body, "hello");
  const auto chunked = get_from(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;x=y\r\nhello\r\n00A\r\n, world!!!\r\n0\r\nTrailer: x\r\n\r\n");
  ASSERT_TRUE(chunked) << chunked.error().message();
  EXPECT_EQ(chunked->body, "hello, world!!!");
  const auto empty = get_from("HTTP/1.1 204 No Content\r\n\r\n");
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->body, "");
}

TEST(HttpClient, RefusesAnswersThatAreNotHttp) {
  for (const char* answer : {"SSH-2.0-x\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nnocolon\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nno length",
                             "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n"}) {
    const auto reply = get_from(answer);
    ASSERT_FALSE(reply) << answer;
    EXPECT_EQ(reply.error().code(), ErrorCode::corrupt) << answer << reply.error().message();
  }
}

TEST(HttpClient, BoundsWhatItKeeps) {
  HttpClient::Options options;
  options.body_max = 10;
  options.head_max = 100;
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n", options).error().code(),
            ErrorCode::too_large);
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n", options)
                .error()
                .code(),
            ErrorCode::too_large);
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x'), options).error().code(),
            ErrorCode::corrupt);
}

TEST(HttpClient, SaysWhenTheAnswerBreaksOffOrNeverComes) {
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhel").error().code(),
            ErrorCode::unavailable);
  TemporaryDirectory directory;
  const auto listening = listen_unix(directory.file("s"), SocketKind::kStream, 0600);
  ASSERT_TRUE(listening);
  HttpClient::Options options;
  options.timeout = 50 * kMillisecond;
  HttpClient client(directory.file("s"), options);
  EXPECT_EQ(client.request("GET", "/").error().code(), ErrorCode::timed_out);
}

TEST(HttpClient, ConnectsAnewWhenTheServerClosedTheIdleConnection) {
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  CannedServer server({answer, answer});
  HttpClient client(server.path());
  ASSERT_TRUE(client.request("GET", "/"));
  server.wait_closed(1);
  const auto second = client.request("POST", "/", {}, "x");
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_EQ(second->body, "ok");
}

TEST(HttpClient, RefusesHeadersThatWouldForgeARequest) {
  HttpClient client("/nowhere");
  EXPECT_EQ(client.request("GET", "/", {{"X", "a\r\nY: b"}}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(client.request("GET", "/ HTTP/1.1\r\nX: y").error().code(), ErrorCode::invalid_argument);
}

TEST(HttpClient, GivesEventsByTheStandardsRules) {
  const std::string events =
      ": comment\n\nid: 7\nevent: state\ndata: a\ndata:b\nunknown: x\n\ndata\n\nevent: nothing\n\r\ndata: "
      "last\r\n\r\n";
  char length[16];
  std::snprintf(length, sizeof length, "%zx", events.size());
  CannedServer server({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(length) +
                       "\r\n" + events + "\r\n0\r\n\r\n"});
  HttpClient client(server.path());
  std::vector<std::string> seen;
  const auto reply = client.stream("/v1/events", {}, [&](const ServerSentEvent& event) {
    seen.push_back(event.id + "|" + event.type + "|" + event.data);
    return true;
  });
  ASSERT_TRUE(reply) << reply.error().message();
  // A lone "data" line is an empty line of data, which makes an event of no data.
  EXPECT_EQ(seen, (std::vector<std::string>{"7|state|a\nb", "7|message|", "7|message|last"}));
}

TEST(HttpClient, StopsAStreamWhenTheReceiverHasEnough) {
  CannedServer server(
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12\r\ndata: 1\n\ndata: 2\n\n\r\n"});
  HttpClient client(server.path());
  int count = 0;
  const auto reply = client.stream("/", {}, [&](const ServerSentEvent&) { return ++count < 1; });
  ASSERT_TRUE(reply) << reply.error().message();
  EXPECT_EQ(count, 1);
}

// Answers are untrusted: whatever comes, a request ends with a reply or an error.
TEST(HttpClient, SurvivesRandomAnswers) {
  const uint64_t seed = 44;
  SCOPED_TRACE(seed);
  Random random(seed);
  constexpr std::string_view kParts[] = {"HTTP/1.1 ",
                                         "200",
                                         "101 X\r\n",
                                         "\r\n",
                                         "Content-Length: 3",
                                         ":",
                                         "0",
                                         "ffffffffffffffff",
                                         "Transfer-Encoding: chunked\r\n",
                                         "\n",
                                         "abc",
                                         "\x00\xff"};
  std::vector<std::string> answers(300);
  for (std::string& answer : answers) {
    if (random.chance(1, 2)) answer = "HTTP/1.1 200 OK\r\n";
    for (uint64_t i = random.below(12); i > 0; --i) answer += kParts[random.below(std::size(kParts))];
  }
  const size_t count = answers.size();
  CannedServer server(std::move(answers));
  for (size_t i = 0; i < count; ++i) {
    HttpClient client(server.path());
    const auto reply = client.request("GET", "/");
    if (reply) {
      EXPECT_GE(reply->status, 100);
    }
  }
}

}  // namespace
}  // namespace tranche
