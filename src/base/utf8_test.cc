#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tranche {
namespace {

TEST(Utf8, ReadsCharactersAndOnlyTheShortestForms) {
  const Utf8Character euro = first_character("€x");
  EXPECT_TRUE(euro.is_valid);
  EXPECT_EQ(euro.point, 0x20ACu);
  EXPECT_EQ(euro.size, 3u);
  EXPECT_EQ(first_character("\U0001F600").point, 0x1F600u);
  EXPECT_EQ(first_character("a").point, uint32_t{'a'});
  for (const std::string_view bad : {"\xff", "\x80", "\xc0\xaf", "\xc3(", "\xe2\x82", "\xed\xa0\x80",
                                     "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(first_character(bad).is_valid);
    EXPECT_EQ(first_character(bad).size, 1u);
    EXPECT_FALSE(is_valid_utf8(bad));
    EXPECT_FALSE(is_valid_utf8("a" + std::string(bad)));
  }
  EXPECT_TRUE(is_valid_utf8("größer 東京 \U0001F600\x1b"));
}

TEST(Printable, IsWhatActsOnNoTerminalAndHidesNothing) {
  for (const std::string_view good : {"", "a b", "größer 東京", "é", "e\u0301", "\U0001F600", "\u00a0"}) {
    EXPECT_TRUE(is_printable_text(good)) << good;
  }
  for (const std::string_view bad : {"\x1b[2J", "a\nb", "\x7f", "\u0080", "\u009b31m", "\u009f", "\u200b",
                                     "\u202e", "\u2066", "\ufeff", "\U000E0041", "\u061c", "\xff"}) {
    EXPECT_FALSE(is_printable_text(bad)) << testing::PrintToString(bad);
  }
}

TEST(Printable, PartIsCutBetweenCharacters) {
  EXPECT_EQ(printable_part("a\u009b\x1b"
                           "b\xff\u202e"
                           "c",
                           64),
            "abc");
  EXPECT_EQ(printable_part("€€€", 8), "€€");
  EXPECT_EQ(printable_part("€€€", 9), "€€€");
  EXPECT_EQ(printable_part("\u009b", 8), "");
}

}  // namespace
}  // namespace tranche
