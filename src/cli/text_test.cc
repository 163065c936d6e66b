#include "cli/text.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tranche::cli {
namespace {

TEST(PrintableText, EscapesWhatActsOnATerminal) {
  EXPECT_EQ(printable("train \x1b[2J\x07"), "train \\x1b[2J\\x07");
  EXPECT_EQ(printable("two\nlines\tand\r"), "two\\nlines\\tand\\x0d");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // C1: a one-character CSI
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xae"
            "b");                                  // right-to-left override
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");  // not UTF-8
}

TEST(PrintableText, LeavesOtherLanguagesAlone) {
  EXPECT_EQ(printable("Entraînement 学習 🚀"), "Entraînement 学習 🚀");
}

TEST(PrintableText, NeverLetsAControlByteThrough) {
  Random random(20260101);
  for (int round = 0; round < 2000; ++round) {
    std::string input;
    const uint64_t size = random.below(40);
    for (uint64_t i = 0; i < size; ++i) input += static_cast<char>(random.below(256));
    const std::string shown = printable(input);
    ASSERT_TRUE(is_valid_utf8(shown)) << "round " << round;
    for (const char c : shown) ASSERT_GE(static_cast<unsigned char>(c), 0x20) << "round " << round;
  }
}

TEST(SafeJson, EscapesControlsAndKeepsTheRest) {
  EXPECT_EQ(safe_json("{\"name\":\"\xc2\x9b"
                      "x\"}\n"),
            "{\"name\":\"\\u009bx\"}\n");
  EXPECT_EQ(safe_json("{\"a\":\"学\"}"), "{\"a\":\"学\"}");
  EXPECT_EQ(safe_json("\xf3\xa0\x80\x81"), "\\udb40\\udc01");  // a tag character, outside the first plane
}

TEST(DisplayWidth, CountsTerminalCells) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("学習"), 4U);
  EXPECT_EQ(display_width("e\xcc\x81"), 1U);
}

TEST(FitWidth, CutsWholeCharacters) {
  EXPECT_EQ(fit_width("training", 8), "training");
  EXPECT_EQ(fit_width("training", 5), "trai…");
  EXPECT_EQ(fit_width("学習学", 4), "学…");
  EXPECT_EQ(fit_width("abc", 0), "");
}

TEST(ShellWords, ReadsQuotesAndComments) {
  bool unclosed = true;
  EXPECT_EQ(shell_words("-J 'two words' --x=\"a b\" c\\ d # rest", unclosed),
            (std::vector<std::string>{"-J", "two words", "--x=a b", "c d"}));
  EXPECT_FALSE(unclosed);
  EXPECT_EQ(shell_words("'' a#b", unclosed), (std::vector<std::string>{"", "a#b"}));
  shell_words("'open", unclosed);
  EXPECT_TRUE(unclosed);
}

}  // namespace
}  // namespace tranche::cli
