#include "codec/json_document.h"

#include <gtest/gtest.h>

#include "codec/json_encoder.h"
#include "codec/limits.h"

namespace tranche::json {
namespace {

std::string error_of(std::string_view text) {
  const auto document = Document::parse(text, ErrorCode::invalid_argument);
  return document ? std::string("(parsed)") : document.error().message();
}

TEST(JsonDocument, LaysOutWhatStandsThere) {
  const auto document =
      Document::parse(R"({"a":[1,-2,"x"],"b":{"c":null,"d":true},"e":2.50})", ErrorCode::corrupt);
  ASSERT_TRUE(document.has_value());
  const Value root = document->root();
  ASSERT_EQ(root.size(), 3u);
  const Value a = root.first();
  EXPECT_EQ(a.key(), "a");
  ASSERT_EQ(a.size(), 3u);
  int64_t number = 0;
  EXPECT_TRUE(a.first().integer(0, 5, &number));
  EXPECT_EQ(number, 1);
  EXPECT_TRUE(a.first().next().integer(-5, 5, &number));
  EXPECT_EQ(number, -2);
  EXPECT_FALSE(a.first().next().integer(0, 5, &number));
  EXPECT_EQ(a.first().next().next().text(), "x");
  const Value b = a.next();
  EXPECT_EQ(b.key(), "b");
  EXPECT_EQ(b.first().kind(), Kind::null);
  EXPECT_TRUE(b.first().next().flag());
  const Value e = b.next();
  EXPECT_EQ(e.kind(), Kind::decimal);
  EXPECT_EQ(e.describe(), "2.50");
}

TEST(JsonDocument, MalformedTextIsRefusedWithItsPlace) {
  EXPECT_EQ(error_of("{\n \"a\": nope}"), "line 2, column 7: not valid JSON at \"nope}\"");
  EXPECT_EQ(error_of("{\"a\":1"), "line 1, column 7: the JSON text ends too early");
  EXPECT_NE(error_of(""), "(parsed)");
  EXPECT_NE(error_of("{\"a\":1} x"), "(parsed)");
  EXPECT_NE(error_of("{\"a\":1,}"), "(parsed)");
  EXPECT_NE(error_of("[1 2]"), "(parsed)");
  EXPECT_NE(error_of("NaN"), "(parsed)");
  EXPECT_NE(error_of("[Infinity]"), "(parsed)");
  EXPECT_NE(error_of("[01]"), "(parsed)");
  EXPECT_NE(error_of("[1.]"), "(parsed)");
  EXPECT_NE(error_of("[-]"), "(parsed)");
  EXPECT_NE(error_of("[+1]"), "(parsed)");
  EXPECT_NE(error_of("\xEF\xBB\xBF[]"), "(parsed)");
  EXPECT_NE(error_of("\"\xff\""), "(parsed)");
  EXPECT_NE(error_of("\"\xc0\xaf\""), "(parsed)");
  EXPECT_NE(error_of("\"\\ud800\""), "(parsed)");
  EXPECT_NE(error_of("\"a\nb\""), "(parsed)");
  EXPECT_NE(error_of(std::string("{\"a\":1}\0", 8)), "(parsed)");
}

TEST(JsonDocument, NestingIsBounded) {
  const std::string at_limit = std::string(limits::kJsonDepth, '[') + std::string(limits::kJsonDepth, ']');
  EXPECT_EQ(error_of(at_limit), "(parsed)");
  EXPECT_EQ(error_of("[" + at_limit + "]"), "nested deeper than 32 levels");
  EXPECT_EQ(error_of(std::string(1'000'000, '[')), "nested deeper than 32 levels");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(error_of(objects), "nested deeper than 32 levels");
}

TEST(JsonDocument, ANameStandsOnce) {
  EXPECT_EQ(error_of(R"({"a":1,"b":{"a":1},"a":2})"), "the name \"a\" stands twice in one object");
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += "\"n" + std::to_string(i) + "\":0,";
  EXPECT_EQ(error_of(many + "\"m\":0}"), "(parsed)");
  EXPECT_EQ(error_of(many + "\"n500\":0}"), "the name \"n500\" stands twice in one object");
}

TEST(JsonDocument, NumbersBeyond64BitsAreNotIntegers) {
  const auto document =
      Document::parse("[9223372036854775807,9223372036854775808,18446744073709551616,-9223372036854775808]",
                      ErrorCode::corrupt);
  ASSERT_TRUE(document.has_value());
  int64_t number = 0;
  Value value = document->root().first();
  EXPECT_TRUE(value.integer(0, INT64_MAX, &number));
  value = value.next();
  EXPECT_FALSE(value.integer(INT64_MIN, INT64_MAX, &number));
  value = value.next();
  EXPECT_EQ(value.kind(), Kind::decimal);
  value = value.next();
  EXPECT_TRUE(value.integer(INT64_MIN, 0, &number));
  EXPECT_EQ(number, INT64_MIN);
}

TEST(JsonEncoder, WritesValidTextOfAnyBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  std::string text;
  append_text(text, all);
  EXPECT_TRUE(Document::parse(text, ErrorCode::corrupt).has_value()) << text;
  text.clear();
  append_text(text, "a\xC3\xA9\xff\xED\xA0\x80\"\\\n\x01");
  EXPECT_EQ(text, "\"a\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\\\"\\\\\\n\\u0001\"");
}

TEST(JsonDocument, ShownTextIsShortAndOneLine) {
  EXPECT_EQ(shown("a\"b\nc"), "\"a?b?c\"");
  EXPECT_LE(shown(std::string(1000, 'x')).size(), 70u);
}

}  // namespace
}  // namespace tranche::json
