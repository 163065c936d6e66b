#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/random.h"

namespace tranche {
namespace {

std::string in_quotes(std::string_view text) {
  std::string output;
  append_json_string(output, text);
  return output;
}

TEST(JsonWriter, NestsAndSeparates) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("id", uint64_t{7}).field("name", "a").key("tags").begin_array();
  json.value(int64_t{-1}).value(true).null().begin_object().end_object().begin_array().end_array();
  json.end_array().key("next").begin_object().field("x", false).end_object().field("y", 2u).end_object();
  EXPECT_TRUE(json.is_complete());
  EXPECT_EQ(text, R"({"id":7,"name":"a","tags":[-1,true,null,{},[]],"next":{"x":false},"y":2})");
}

TEST(JsonWriter, WritesTheLimitsOfIntegersExactly) {
  std::string text;
  JsonWriter json(text);
  json.begin_array().value(std::numeric_limits<int64_t>::min()).value(std::numeric_limits<uint64_t>::max());
  json.end_array();
  EXPECT_EQ(text, "[-9223372036854775808,18446744073709551615]");
}

TEST(JsonWriter, WritesNumbersThatAreNotFiniteAsNull) {
  std::string text;
  JsonWriter json(text);
  json.begin_array().value(0.5).value(std::numeric_limits<double>::quiet_NaN());
  json.value(std::numeric_limits<double>::infinity()).end_array();
  EXPECT_EQ(text, "[0.5,null,null]");
}

TEST(JsonString, EscapesWhatWouldBreakOutOfIt) {
  EXPECT_EQ(in_quotes("a\"b\\c\n\r\t"), R"("a\"b\\c\n\r\t")");
  EXPECT_EQ(in_quotes(std::string_view("\0\x1f\x7f", 3)), R"("\u0000\u001f\u007f")");
}

TEST(JsonString, EscapesWhatActsOnATerminalOrHidesText) {
  EXPECT_EQ(in_quotes("\u009b31m"), R"("\u009b31m")");
  EXPECT_EQ(in_quotes("a\u202e\ufeffb"), R"("a\u202e\ufeffb")");
  EXPECT_EQ(in_quotes("\U000E0041"), R"("\udb40\udc41")");
}

TEST(JsonString, KeepsUtf8AndReplacesWhatIsNot) {
  EXPECT_EQ(in_quotes("é€😀"), "\"é€😀\"");
  EXPECT_EQ(in_quotes("\xff"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(in_quotes("\xc0\xaf"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");                  // overlong '/'
  EXPECT_EQ(in_quotes("\xed\xa0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // surrogate
  EXPECT_EQ(in_quotes("a\xe2\x82"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");                // cut short
}

// Whatever bytes come in, what goes out has no raw control character and only closed quotes.
TEST(JsonString, IsSafeForRandomBytes) {
  const uint64_t seed = 20261130;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (uint64_t i = random.below(24); i > 0; --i) bytes += static_cast<char>(random.below(256));
    const std::string text = in_quotes(bytes);
    size_t quotes = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      ASSERT_GE(static_cast<unsigned char>(text[i]), 0x20);
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        ++quotes;
    }
    ASSERT_EQ(quotes, 2u);
    // A second pass finds nothing invalid left: the byte count only grows by escapes.
    ASSERT_EQ(in_quotes(text).find("\xEF\xBF\xBD") == std::string::npos,
              text.find("\xEF\xBF\xBD") == std::string::npos);
  }
}

TEST(JsonWriterDeathTest, RefusesAValueWithoutItsKey) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  EXPECT_DEATH(json.value(1), "has_key_");
}

}  // namespace
}  // namespace tranche
