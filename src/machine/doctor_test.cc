#include "machine/doctor.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tranche::machine {
namespace {

// openssl req -x509 -newkey ec -days 30 -subj /CN=localhost; its key was thrown away.
constexpr const char* kCertificate = R"(-----BEGIN CERTIFICATE-----
MIIBfDCCASOgAwIBAgIUHAJ3XjMiW/rvavn/mz8pRPTKhfIwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MB4XDTI2MTIwMTAxMDgzNFoXDTI2MTIzMTAx
MDgzNFowFDESMBAGA1UEAwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEqDzav33k7tWKngS+5jeiyUa/VkBrqzRQOEKuFdEpNZ1oMcuGk0uqH+lw
9m5UHBmUm0gw5SGNZBg0uv8AfYt9m6NTMFEwHQYDVR0OBBYEFL4fznCxBH70gHw1
zLbQ0nbQNJKJMB8GA1UdIwQYMBaAFL4fznCxBH70gHw1zLbQ0nbQNJKJMA8GA1Ud
EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgJunDLrow3njuWeQe2IvtNKcq
08XSPLp+zBcrT8G/EEUCICKO3GZkcYq7CP/7QHzHtSRpFMefz/KkeG3+YhUT7sA+
-----END CERTIFICATE-----
)";
constexpr int64_t kEnd = 1798679314;  // Dec 31 01:08:34 2026 GMT

class CertificateCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/tranche-doctor-XXXXXX";
    folder_ = ::mkdtemp(folder);
    config_.certificate = folder_ + "/cert.pem";
    std::ofstream(config_.certificate) << kCertificate;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  api::DoctorCheck before_end(Duration left) {
    return certificate_check(config_, Time(kEnd * kSecond.count()) - left);
  }

  std::string folder_;
  ListenConfig config_;
};

TEST_F(CertificateCheck, SaysHowLongItIsGood) {
  EXPECT_EQ(before_end(20 * kDay).status, api::CheckStatus::ok);
  EXPECT_EQ(before_end(20 * kDay).detail, "the certificate is good for 20 days");
}

TEST_F(CertificateCheck, WarnsTwoWeeksBefore) {
  EXPECT_EQ(before_end(13 * kDay).status, api::CheckStatus::warn);
  EXPECT_FALSE(before_end(13 * kDay).help.empty());
  EXPECT_EQ(before_end(kSecond).status, api::CheckStatus::warn);
}

TEST_F(CertificateCheck, FailsOnceItHasExpired) {
  EXPECT_EQ(before_end(Duration{}).status, api::CheckStatus::fail);
  EXPECT_NE(before_end(Duration{}).detail.find("has expired"), std::string::npos);
}

TEST_F(CertificateCheck, FailsWithoutACertificate) {
  std::ofstream(config_.certificate) << "nothing";
  EXPECT_EQ(before_end(kDay).status, api::CheckStatus::fail);
  config_.certificate = folder_ + "/none.pem";
  EXPECT_EQ(before_end(kDay).status, api::CheckStatus::fail);
}

}  // namespace
}  // namespace tranche::machine
