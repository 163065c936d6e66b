// Against a server of a few lines in this process, which does what receivers of hooks do wrong.
#include "linux/http_post.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "linux/files.h"
#include "linux/send_mail.h"
#include "linux/unique_fd.h"

namespace tranche {
namespace {

// Answers each connection with what `answer` makes of the request's text; "" leaves it open and silent.
class TinyServer {
 public:
  explicit TinyServer(std::function<std::string(const std::string&)> answer) : answer_(std::move(answer)) {
    listening_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listening_.get(), 8), 0);
    EXPECT_EQ(::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TinyServer() {
    ::shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string url(const std::string& path = "/hook") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::string last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  int connections() const { return connections_; }

 private:
  void serve() {
    std::vector<UniqueFd> kept;
    while (true) {
      UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client.is_open()) return;
      ++connections_;
      std::string text;
      char block[4096];
      while (text.find("\r\n\r\n") == std::string::npos || !text.ends_with("}")) {
        const ssize_t size = ::read(client.get(), block, sizeof block);
        if (size <= 0) break;
        text.append(block, static_cast<size_t>(size));
      }
      {
        const std::lock_guard lock(mutex_);
        last_ = text;
      }
      const std::string reply = answer_(text);
      if (reply.empty()) {
        kept.push_back(std::move(client));
        continue;
      }
      (void)write_all(client.get(), reply);
    }
  }

  std::function<std::string(const std::string&)> answer_;
  UniqueFd listening_;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::string last_;
  std::atomic<int> connections_ = 0;
  std::thread thread_;
};

std::string reply(const std::string& status, const std::string& headers = "") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: 0\r\nConnection: close\r\n" + headers + "\r\n";
}

HttpPost to(const TinyServer& server) {
  HttpPost post;
  post.url = server.url();
  post.headers = {{"Content-Type", "application/json"}, {"Tranche-Notice", "7-job1"}};
  post.body = R"({"a":1})";
  post.private_address = true;
  return post;
}

TEST(HttpPost, SendsHeadersAndBody) {
  std::string seen;
  {
    TinyServer server([](const std::string&) { return reply("204 No Content"); });
    const auto status = http_post(to(server));
    ASSERT_TRUE(status.has_value()) << status.error().message();
    EXPECT_EQ(*status, 204);
    seen = server.last();
  }
  EXPECT_TRUE(seen.starts_with("POST /hook HTTP/1.1\r\n")) << seen;
  EXPECT_NE(seen.find("Tranche-Notice: 7-job1\r\n"), std::string::npos);
  EXPECT_TRUE(seen.ends_with("\r\n\r\n{\"a\":1}")) << seen;
}

TEST(HttpPost, ARedirectIsNotFollowed) {
  TinyServer other([](const std::string&) { return reply("200 OK"); });
  TinyServer server([&](const std::string&) {
    return reply("307 Temporary Redirect", "Location: " + other.url() + "\r\n");
  });
  const auto status = http_post(to(server));
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(*status, 307);
  EXPECT_EQ(other.connections(), 0);
}

TEST(HttpPost, AServerThatHangsTimesOut) {
  TinyServer server([](const std::string&) { return ""; });
  HttpPost post = to(server);
  post.timeout = 200 * kMillisecond;
  const auto status = http_post(post);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), ErrorCode::timed_out);
}

TEST(HttpPost, AnAnswerWithoutEndIsNotKept) {
  TinyServer server([](const std::string&) {
    return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + std::string(1 << 20, 'x');
  });
  const auto status = http_post(to(server));
  ASSERT_TRUE(status.has_value()) << status.error().message();
  EXPECT_EQ(*status, 200);
}

TEST(HttpPost, ThisMachineIsNotReachedUnlessThatIsMeant) {
  TinyServer server([](const std::string&) { return reply("200 OK"); });
  HttpPost post = to(server);
  post.private_address = false;
  const auto status = http_post(post);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), ErrorCode::denied);
  EXPECT_EQ(server.connections(), 0);
  post.url = "file:///etc/passwd";
  EXPECT_FALSE(http_post(post).has_value());
}

bool is_private(const std::string& text) {
  sockaddr_storage storage{};
  auto* four = reinterpret_cast<sockaddr_in*>(&storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
  if (text.find(':') == std::string::npos) {
    storage.ss_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &four->sin_addr), 1) << text;
  } else {
    storage.ss_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &six->sin6_addr), 1) << text;
  }
  // libcurl gives no more than a sockaddr's name; what is behind it is as long as the family says.
  return is_private_address(*reinterpret_cast<sockaddr*>(&storage));
}

TEST(HttpPost, PrivateAddressesAreKnownInEveryForm) {
  for (const char* address : {"127.0.0.1",
                              "127.9.9.9",
                              "10.1.2.3",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "169.254.169.254",
                              "100.64.0.1",
                              "0.0.0.0",
                              "224.0.0.1",
                              "255.255.255.255",
                              "::1",
                              "::",
                              "fe80::1",
                              "fc00::1",
                              "fd12::1",
                              "ff02::1",
                              "::ffff:127.0.0.1",
                              "::ffff:10.0.0.1",
                              "::127.0.0.1",
                              "64:ff9b::7f00:1"}) {
    EXPECT_TRUE(is_private(address)) << address;
  }
  for (const char* address : {"8.8.8.8", "172.32.0.1", "172.15.0.1", "193.0.0.1", "11.0.0.1", "100.128.0.1",
                              "2001:db8::1", "::ffff:8.8.8.8", "64:ff9b::808:808"}) {
    EXPECT_FALSE(is_private(address)) << address;
  }
}

TEST(SendMail, TheProgramGetsTheMessageAndNothingElse) {
  const std::string folder = ::testing::TempDir();
  const std::string program = folder + "/sendmail-test-" + std::to_string(::getpid());
  const std::string taken = program + ".taken";
  ASSERT_TRUE(write_file_atomically(
      program,
      "#!/bin/sh\n{ echo \"$@\"; env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= -e ^OLDPWD=; cat; } >" + taken +
          "\n",
      0700));
  ASSERT_TRUE(send_mail(program, "ada", "Subject: x\n\nbody\n", 30 * kSecond).has_value());
  EXPECT_EQ(read_file(taken, 10'000).value_or(""),
            "-i -- ada\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nSubject: x\n\nbody\n");
  ASSERT_TRUE(write_file_atomically(program, "#!/bin/sh\nexit 75\n", 0700));
  const auto refused = send_mail(program, "ada", "x", 30 * kSecond);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("exit code 75"), std::string::npos);
  ASSERT_TRUE(write_file_atomically(program, "#!/bin/sh\nsleep 600\n", 0700));
  const auto hung = send_mail(program, "ada", "x", 100 * kMillisecond);
  ASSERT_FALSE(hung.has_value());
  EXPECT_EQ(hung.error().code(), ErrorCode::timed_out);
  EXPECT_FALSE(send_mail(program + ".none", "ada", "x", kSecond).has_value());
  ::unlink(program.c_str());
  ::unlink(taken.c_str());
}

}  // namespace
}  // namespace tranche
