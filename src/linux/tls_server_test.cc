// The server with TLS against our own client of it: a real handshake on a real port.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "linux/certificate.h"
#include "linux/files.h"
#include "linux/http_server.h"
#include "linux/internet_address.h"
#include "linux/sd_event_reactor.h"
#include "linux/test_support.h"
#include "linux/tls_relay.h"
#include "linux/unix_socket.h"

namespace tranche {
namespace {

struct Pem {
  std::string certificate;
  std::string key;
};

std::string text_of(BIO* memory) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory, &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

// A certificate for localhost that is its own authority.
Pem make_certificate() {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1,
                             0);
  X509_set_issuer_name(certificate.get(), name);
  X509_set_pubkey(certificate.get(), key.get());
  X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost");
  X509_add_ext(certificate.get(), names, -1);
  X509_EXTENSION_free(names);
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  const std::unique_ptr<BIO, int (*)(BIO*)> first(BIO_new(BIO_s_mem()), &BIO_free);
  const std::unique_ptr<BIO, int (*)(BIO*)> second(BIO_new(BIO_s_mem()), &BIO_free);
  PEM_write_bio_X509(first.get(), certificate.get());
  PEM_write_bio_PrivateKey(second.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {text_of(first.get()), text_of(second.get())};
}

class TlsServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Pem pem = make_certificate();
    ASSERT_TRUE(write_file_atomically(folder_.file("ca.pem"), pem.certificate, 0600));
    ASSERT_TRUE(write_file_atomically(folder_.file("other.pem"), make_certificate().certificate, 0600));
    HttpServer::Options options;
    options.tls_certificate = pem.certificate;
    options.tls_key = pem.key;
    options.connections_per_uid_max = 4;
    std::promise<void> started;
    thread_ = std::thread([this, &started, options] {
      reactor_ = std::move(*SdEventReactor::create());
      server_ = std::move(*HttpServer::create(
          *reactor_,
          [](const HttpRequest& request, Responder responder) {
            HttpResponse response;
            response.body = request.peer.address + " " + std::to_string(request.body.size());
            if (request.path == "/upgrade") {
              EXPECT_FALSE(responder.upgrade("x", {}, [](UniqueFd, const std::string&) {}));
              return;
            }
            responder.respond(std::move(response));
          },
          options));
      port_ = *server_->listen_tls("127.0.0.1:0");
      started.set_value();
      EXPECT_TRUE(reactor_->run());
      server_.reset();
      reactor_.reset();
    });
    started.get_future().wait();
  }
  void TearDown() override {
    reactor_->stop();
    thread_.join();
  }
  TlsServerName name(const std::string& authority = "ca.pem", const std::string& host = "localhost") {
    return {host, std::to_string(port_), folder_.file(authority)};
  }
  // What the server answers to `text` on one connection.
  std::string asked(const std::string& text) {
    auto connection = TlsConnection::connect(name(), 5 * kSecond);
    EXPECT_TRUE(connection) << connection.error().message();
    if (!connection) return "";
    auto ends = std::move(*unix_socket_pair(SocketKind::kStream));
    std::thread relay([&] {
      connection->relay(ends.second.get());
      ends.second.reset();
    });
    EXPECT_TRUE(write_all(ends.first.get(), text));
    std::string answer;
    char block[4096];
    for (ssize_t size = 0; (size = ::read(ends.first.get(), block, sizeof block)) > 0;)
      answer.append(block, static_cast<size_t>(size));
    ends.first.reset();
    relay.join();
    return answer;
  }

  TemporaryDirectory folder_;
  std::unique_ptr<SdEventReactor> reactor_;
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
  std::thread thread_;
};

constexpr const char* kEnd = "Connection: close\r\n\r\n";

TEST_F(TlsServerTest, AnswersAndSaysWhoAsks) {
  const std::string answer = asked("GET / HTTP/1.1\r\nHost: localhost\r\n" + std::string(kEnd));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_TRUE(answer.ends_with("127.0.0.1 0")) << answer;
}

TEST_F(TlsServerTest, LargeBodiesPassBothBuffers) {
  const std::string body(900'000, 'x');
  const std::string answer =
      asked("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n" + std::string(kEnd) + body);
  EXPECT_TRUE(answer.ends_with("127.0.0.1 900000")) << answer;
}

TEST_F(TlsServerTest, NothingIsUpgradedAndWebPagesAreRefused) {
  const std::string upgraded =
      asked("GET /upgrade HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: x\r\n\r\n");
  EXPECT_TRUE(upgraded.starts_with("HTTP/1.1 400")) << upgraded;
  const std::string page =
      asked("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n" + std::string(kEnd));
  EXPECT_TRUE(page.starts_with("HTTP/1.1 403")) << page;
}

TEST_F(TlsServerTest, TheClientBelievesOnlyItsAuthorityAndTheName) {
  const auto wrong_authority = TlsConnection::connect(name("other.pem"), 5 * kSecond);
  ASSERT_FALSE(wrong_authority);
  EXPECT_EQ(wrong_authority.error().code(), ErrorCode::denied);
  const auto wrong_name = TlsConnection::connect(name("ca.pem", "127.0.0.1"), 5 * kSecond);
  ASSERT_FALSE(wrong_name);
  EXPECT_EQ(wrong_name.error().code(), ErrorCode::denied);
}

TEST_F(TlsServerTest, OneAddressHasItsShareOfConnections) {
  std::vector<TlsConnection> held;
  for (int i = 0; i < 4; ++i) held.push_back(std::move(*TlsConnection::connect(name(), 5 * kSecond)));
  // Refused while the client still speaks: an error each time, never the end of the program by SIGPIPE.
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(TlsConnection::connect(name(), 5 * kSecond));
}

TEST(TlsServer, ACertificateWithoutItsKeyIsRefused) {
  const auto reactor = std::move(*SdEventReactor::create());
  HttpServer::Options options;
  options.tls_certificate = make_certificate().certificate;
  options.tls_key = make_certificate().key;
  const auto handler = [](const HttpRequest&, Responder) {};
  const auto mixed = HttpServer::create(*reactor, handler, options);
  EXPECT_FALSE(mixed);
  options.tls_certificate = options.tls_key = "no PEM";
  EXPECT_FALSE(HttpServer::create(*reactor, handler, options));
}

TEST(InternetAddress, ListensAtNumericAddressesOnly) {
  for (const char* bad :
       {"", "7443", "localhost:7443", "127.0.0.1", "127.0.0.1:70000", "[::1:7443", "1.2.3:80"}) {
    EXPECT_FALSE(listen_internet(bad, 1)) << bad;
  }
  const auto four = listen_internet("127.0.0.1:0", 1);
  ASSERT_TRUE(four);
  EXPECT_NE(four->port, 0);
}

TEST(InternetAddress, KeysTellAddressesApart) {
  EXPECT_EQ(address_text(-2), "0.0.0.0");
  EXPECT_EQ(address_text(-2 - 0x7f000001LL), "127.0.0.1");
  EXPECT_EQ(address_text(-2 - 0xffffffffLL), "255.255.255.255");
  EXPECT_EQ(address_text(-2 - (1LL << 32) - static_cast<int64_t>(0x20010db800000000ULL >> 2)),
            "2001:db8::/64");
}

TEST(Certificate, TellsWhenItEnds) {
  const auto end = certificate_end(make_certificate().certificate);
  ASSERT_TRUE(end) << end.error().message();
  // It was made for an hour from now on.
  const Time now(int64_t{::time(nullptr)} * kSecond.count());
  EXPECT_GT(*end, now);
  EXPECT_LE(*end - now, kHour);
  EXPECT_FALSE(certificate_end("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"));
  EXPECT_FALSE(certificate_end(""));
}

}  // namespace
}  // namespace tranche
