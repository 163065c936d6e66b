#include "machine/tokens.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "linux/digest.h"
#include "linux/files.h"
#include "machine/rate_limit.h"

namespace tranche::machine {
namespace {

constexpr Time kTokenTime(1'796'000'000'000'000'000);

class TokensTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tokens-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    ::unlink((folder_ + "/tokens").c_str());
    ::rmdir(folder_.c_str());
  }
  TokenStore opened() {
    auto store = TokenStore::open(folder_);
    EXPECT_TRUE(store.has_value()) << store.error().message();
    return std::move(*store);
  }
  static api::TokenRequest lasting(Duration lifetime) {
    api::TokenRequest request;
    request.scope = api::TokenScope::jobs;
    request.label = "lap\ttop";
    request.lifetime = lifetime;
    return request;
  }
  std::string folder_;
};

TEST_F(TokensTest, OneIsToldOnceAndKeptHashed) {
  TokenStore store = opened();
  const auto created = store.create(1000, "ada", lasting(kHour), kTokenTime);
  ASSERT_TRUE(created.has_value());
  const api::TokenRow* row = store.find(created->token, kTokenTime);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->user, "ada");
  EXPECT_EQ(row->label, "laptop") << "nothing that would break a line of the file";
  const std::string secret = created->token.substr(created->token.rfind('_') + 1);
  const std::string text = read_file(folder_ + "/tokens", 100'000).value_or("");
  EXPECT_EQ(text.find(secret), std::string::npos);
  EXPECT_NE(text.find(sha256_hex(secret)), std::string::npos);
  struct stat file {};
  ASSERT_EQ(::stat((folder_ + "/tokens").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_NE(opened().find(created->token, kTokenTime), nullptr) << "a restart knows it";
}

TEST_F(TokensTest, AWrongOneIsNone) {
  TokenStore store = opened();
  std::string token = store.create(1000, "ada", lasting(kHour), kTokenTime)->token;
  EXPECT_EQ(store.find(token, kTokenTime + kHour), nullptr) << "expired";
  EXPECT_NE(store.find(token, kTokenTime + (kHour - kSecond)), nullptr);
  token.back() = token.back() == '0' ? '1' : '0';
  for (const std::string& wrong : {token, std::string(), std::string("tranche_"), std::string("tranche_1_"),
                                   "tranche_2_" + std::string(64, '0'), "tranche_1_" + std::string(63, '0'),
                                   "tranche_-1_" + std::string(64, '0'), std::string(10'000, 'x')}) {
    EXPECT_EQ(store.find(wrong, kTokenTime), nullptr) << wrong.substr(0, 40);
  }
}

TEST_F(TokensTest, RevokedOnesAreGoneAndTheirIdsAreNotGivenAgain) {
  TokenStore store = opened();
  const auto first = store.create(1000, "ada", lasting(kHour), kTokenTime);
  ASSERT_TRUE(store.revoke(first->row.id).has_value());
  EXPECT_EQ(store.find(first->token, kTokenTime), nullptr);
  EXPECT_FALSE(store.revoke(first->row.id).has_value());
  TokenStore again = opened();
  EXPECT_EQ(again.create(1000, "ada", lasting(kHour), kTokenTime)->row.id, first->row.id + 1);
}

TEST_F(TokensTest, AUserHasABoundAndExpiredOnesDoNotCount) {
  TokenStore store = opened();
  for (size_t i = 0; i < TokenStore::kPerUserMax; ++i)
    ASSERT_TRUE(store.create(1000, "ada", lasting(kHour), kTokenTime).has_value());
  const auto refused = store.create(1000, "ada", lasting(kHour), kTokenTime);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::over_limit);
  EXPECT_TRUE(store.create(1001, "bob", lasting(kHour), kTokenTime).has_value());
  EXPECT_TRUE(store.create(1000, "ada", lasting(kHour), kTokenTime + kHour).has_value());
}

TEST_F(TokensTest, ADamagedFileIsAnErrorAndNotAnEmptyStore) {
  ASSERT_TRUE(opened().create(1000, "ada", lasting(kHour), kTokenTime).has_value());
  const std::string good = read_file(folder_ + "/tokens", 100'000).value_or("");
  const std::string bad_texts[] = {"", "x", good.substr(0, good.size() - 1), good + "1\t2\n",
                                   "tranche-tokens 1 1\n" + good.substr(good.find('\n') + 1)};
  for (const std::string& bad : bad_texts) {
    ASSERT_TRUE(write_file_atomically(folder_ + "/tokens", bad, 0600).has_value());
    EXPECT_FALSE(TokenStore::open(folder_).has_value()) << bad;
  }
}

TEST(RateLimit, FillsEvenlyAndForgetsNobodyWhoHasUsedIt) {
  RateLimit limit(3, kSecond);
  EXPECT_TRUE(limit.take(1, {}) && limit.take(1, {}) && limit.take(1, {}));
  EXPECT_FALSE(limit.take(1, {}));
  EXPECT_TRUE(limit.take(2, {})) << "another's bucket";
  EXPECT_TRUE(limit.take(1, kSecond));
  EXPECT_FALSE(limit.take(1, kSecond + 999 * kMillisecond));
  EXPECT_TRUE(limit.take(1, 2 * kSecond));
  RateLimit many(1, kHour);
  for (int64_t key = 0; key < static_cast<int64_t>(RateLimit::kKeysMax); ++key)
    ASSERT_TRUE(many.take(key, {}));
  EXPECT_FALSE(many.take(-1, {})) << "bounded, and nobody who is over is forgotten for a new one";
  EXPECT_FALSE(many.take(5, {}));
  EXPECT_TRUE(many.take(-1, 2 * kHour));
}

}  // namespace
}  // namespace tranche::machine
