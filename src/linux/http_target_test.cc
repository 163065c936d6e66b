#include "linux/http_target.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "linux/http_router.h"
#include "linux/http_types.h"

namespace tranche {
namespace {

TEST(HttpTarget, DecodesPathAndQuery) {
  const auto target = parse_http_target("/v1/jobs%20x?state=a+b%2Bc&flag&&x=1=2&x=%C3%A9");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/v1/jobs x");
  EXPECT_EQ(target->query, (QueryParameters{{"state", "a b+c"}, {"flag", ""}, {"x", "1=2"}, {"x", "é"}}));
}

TEST(HttpTarget, RefusesWhatCouldMeanSomethingElse) {
  for (const char* text :
       {"", "v1", "*", "http://x/", "/%", "/%4", "/%zz", "/a%2Fb", "/%00", "/%0a", "/?x=%00"}) {
    const auto target = parse_http_target(text);
    ASSERT_FALSE(target) << text;
    EXPECT_EQ(target.error().code(), ErrorCode::invalid_argument) << text;
  }
  EXPECT_EQ(parse_http_target("/" + std::string(kTargetLengthMax, 'a')).error().code(), ErrorCode::too_large);
  std::string many = "/?";
  for (size_t i = 0; i <= kQueryParametersMax; ++i) many += "a=1&";
  EXPECT_EQ(parse_http_target(many).error().code(), ErrorCode::invalid_argument);
}

TEST(HttpTarget, ReadsBackWhatPercentEncodeWrites) {
  const uint64_t seed = 42;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 1000; ++round) {
    std::string value;
    for (uint64_t i = random.below(40); i > 0; --i) value += static_cast<char>(random.between(1, 255));
    const auto target = parse_http_target("/x?v=" + percent_encode(value));
    ASSERT_TRUE(target);
    ASSERT_EQ(target->query[0].second, value);
  }
}

TEST(HttpTarget, SurvivesRandomBytes) {
  const uint64_t seed = 43;
  SCOPED_TRACE(seed);
  Random random(seed);
  constexpr std::string_view kAlphabet = "/?&=%+0aF\x01\xff";
  for (int round = 0; round < 20000; ++round) {
    std::string text = "/";
    for (uint64_t i = random.below(30); i > 0; --i) text += kAlphabet[random.below(kAlphabet.size())];
    const auto target = parse_http_target(text);
    if (target) {
      ASSERT_EQ(target->path[0], '/');
    }
  }
}

constexpr HttpRoute<int> kRoutes[] = {
    {"GET", "/v1/jobs", 1},      {"POST", "/v1/jobs", 2}, {"GET", "/v1/jobs/{id}", 3},
    {"GET", "/v1/{a}/x/{b}", 4}, {"GET", "/", 5},
};

TEST(HttpRouter, FindsTheEntryAndItsParameters) {
  EXPECT_EQ(match_route(std::span(kRoutes), "POST", "/v1/jobs").route->action, 2);
  EXPECT_EQ(match_route(std::span(kRoutes), "HEAD", "/v1/jobs").route->action, 1);
  EXPECT_EQ(match_route(std::span(kRoutes), "GET", "/").route->action, 5);
  const auto one = match_route(std::span(kRoutes), "GET", "/v1/jobs/7_3");
  ASSERT_NE(one.route, nullptr);
  EXPECT_EQ(one.route->action, 3);
  EXPECT_EQ(one.parameters[0], "7_3");
  const auto two = match_route(std::span(kRoutes), "GET", "/v1/p/x/q");
  ASSERT_EQ(two.parameters.count, 2u);
  EXPECT_EQ(two.parameters[1], "q");
}

TEST(HttpRouter, TellsUnknownPathsFromWrongMethods) {
  EXPECT_EQ(match_route(std::span(kRoutes), "DELETE", "/v1/jobs").allowed_methods, "GET, POST");
  for (const char* path : {"", "/v1", "/v1/jobs/", "/v1/jobs/7/", "/v1/jobs/7/x", "//v1/jobs", "/v1//jobs"}) {
    const auto match = match_route(std::span(kRoutes), "GET", path);
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_EQ(match.allowed_methods, "") << path;
  }
}

TEST(HttpHeaders, AreFoundAndCheckedByTheRules) {
  const HttpHeaders headers = {{"Content-TYPE", "a"}, {"content-type", "b"}};
  EXPECT_EQ(*find_header(headers, "content-type"), "a");
  EXPECT_EQ(find_header(headers, "accept"), nullptr);
  EXPECT_TRUE(list_has_token("keep-alive, Upgrade", "upgrade"));
  EXPECT_FALSE(list_has_token("upgraded", "upgrade"));
  EXPECT_FALSE(list_has_token("", "upgrade"));
  EXPECT_TRUE(is_valid_header({"X-Y", "a\tb é"}));
  EXPECT_FALSE(is_valid_header({"X-Y", "a\r\nSet-Cookie: x"}));
  EXPECT_FALSE(is_valid_header({"X Y", "a"}));
  EXPECT_FALSE(is_valid_header({"", "a"}));
}

}  // namespace
}  // namespace tranche
