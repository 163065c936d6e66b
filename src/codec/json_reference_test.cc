// Our parser against nlohmann's, on random texts and random damage: what one accepts the other accepts, with
// the same values. The only file of the tree that includes nlohmann. Ours is stricter where it says so: no
// NUL, no byte order mark, no name twice, bounded nesting; and it keeps numbers that no double holds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "codec/json_document.h"
#include "codec/json_encoder.h"
#include "codec/random_values.h"

namespace tranche::json {
namespace {

// The text again, so that both parsers can be compared by what nlohmann reads from it. `overflow`: a number
// is past what a double holds, where nlohmann gives up and ours keeps the spelling.
void write_again(Value value, std::string& out, bool& overflow) {
  switch (value.kind()) {
    case Kind::text:
      append_text(out, value.text());
      return;
    case Kind::decimal:
      overflow = overflow || std::isinf(std::strtod(std::string(value.text()).c_str(), nullptr));
      out += value.text();
      return;
    case Kind::integer:
    case Kind::boolean:
    case Kind::null:
      out += value.describe();
      return;
    case Kind::array:
    case Kind::object:
      break;
  }
  const bool is_object = value.kind() == Kind::object;
  out += is_object ? '{' : '[';
  Value child = value.first();
  for (uint32_t i = 0; i < value.size(); ++i, child = child.next()) {
    if (i > 0) out += ',';
    if (is_object) {
      append_text(out, child.key());
      out += ':';
    }
    write_again(child, out, overflow);
  }
  out += is_object ? '}' : ']';
}

bool is_stricter_here(std::string_view text, const std::string& message) {
  return text.find('\0') != std::string_view::npos || text.starts_with("\xEF\xBB\xBF") ||
         message.find("stands twice") != std::string::npos ||
         message.find("nested deeper") != std::string::npos;
}

void expect_agreement(const std::string& text) {
  const auto ours = Document::parse(text, ErrorCode::corrupt);
  const auto theirs = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!ours) {
    const bool agreed = theirs.is_discarded() || is_stricter_here(text, ours.error().message());
    ASSERT_TRUE(agreed) << text << "\n" << ours.error().message();
    return;
  }
  std::string again;
  bool overflow = false;
  write_again(ours->root(), again, overflow);
  if (overflow && theirs.is_discarded()) return;
  ASSERT_FALSE(theirs.is_discarded()) << text;
  const auto reread = nlohmann::json::parse(again, nullptr, false);
  ASSERT_EQ(reread, theirs) << text << "\n" << again;
}

TEST(JsonReference, RandomTextsAndDamageAreReadAlike) {
  constexpr uint64_t kReferenceSeed = 8259;
  for (uint64_t i = 0; i < 60; ++i) {
    SCOPED_TRACE("seed " + std::to_string(kReferenceSeed + i));
    RandomFiller filler(kReferenceSeed + i);
    const std::string text = encode_row(random_row(filler, i + 1).event, {});
    expect_agreement(text);
    constexpr std::string_view kPieces[] = {
        "{", "}",   "[",  "]",    ",",   ":", "\"", "\\",       "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "0",
        "-", "1.5", "e9", "true", "nul", " ", "\n", "\xC3\xA9", "\xff"};
    for (int change = 0; change < 60; ++change) {
      std::string damaged = text;
      for (uint64_t n = 0, count = 1 + filler.random.below(2); n < count; ++n) {
        const std::string_view piece = kPieces[filler.random.below(std::size(kPieces))];
        damaged.replace(filler.random.below(damaged.size()), filler.random.below(2), piece);
      }
      expect_agreement(damaged);
    }
  }
}

TEST(JsonReference, EdgesAreReadAlike) {
  for (const char* text : {"",
                           " ",
                           "0",
                           "-0",
                           "-",
                           "00",
                           "1.",
                           "1.0",
                           ".5",
                           "1e5",
                           "1E+5",
                           "1e",
                           "1e+",
                           "18446744073709551615",
                           "-9223372036854775808",
                           "-9223372036854775809",
                           "true",
                           "tru",
                           "truex",
                           "null",
                           "[]",
                           "[ ]",
                           "[,]",
                           "[1,]",
                           "[1 ,2]",
                           "{}",
                           "{ }",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{\"\":1}",
                           "\"\\u0041\"",
                           "\"\\uD800\"",
                           "\"\\uDC00\"",
                           "\"\\uD800\\uDC00\"",
                           "\"\\u12\"",
                           "\"\\x\"",
                           "\"\\\"",
                           "\"\t\"",
                           "\"\x7f\"",
                           "\"\xC3\xA9\"",
                           "\"\xC3\"",
                           "\"\xED\xA0\x80\"",
                           "\"\xF4\x90\x80\x80\"",
                           "[1]2",
                           "[1] ",
                           "//x",
                           "'a'",
                           "NaN",
                           "Infinity",
                           "[1}",
                           "{\"a\":1]"}) {
    expect_agreement(text);
  }
}

}  // namespace
}  // namespace tranche::json
