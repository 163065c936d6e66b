#include "base/quantity_text.h"

#include <gtest/gtest.h>

namespace tranche {
namespace {

TEST(Memory, ReadsBinaryUnitsAndBareMebibytes) {
  EXPECT_EQ(parse_memory("20G")->count(), 20480);
  EXPECT_EQ(parse_memory("20Gi")->count(), 20480);
  EXPECT_EQ(parse_memory("20GiB")->count(), 20480);
  EXPECT_EQ(parse_memory("512")->count(), 512);
  EXPECT_EQ(parse_memory("512M")->count(), 512);
  EXPECT_EQ(parse_memory("1T")->count(), 1 << 20);
  EXPECT_EQ(parse_memory("1024T")->count(), 1 << 30);
  EXPECT_EQ(parse_memory("1.5G")->count(), 1536);
  EXPECT_EQ(parse_memory("0.5")->count(), 1);
  EXPECT_EQ(parse_memory("1025K")->count(), 2) << "a size that is asked for rounds up";
}

TEST(Memory, RefusesWhatCouldMeanTwoThings) {
  const auto decimal = parse_memory("20GB");
  ASSERT_FALSE(decimal);
  EXPECT_NE(decimal.error().message().find("write G"), std::string::npos);
  for (const char* bad : {"", "G", "-1G", "1.G", ".5G", "1.2345G", "1..2G", "1024.1T", "1e3", "NaN", "20 G",
                          "20X", "99999999999999999999", "2000T"}) {
    EXPECT_FALSE(parse_memory(bad)) << bad;
  }
}

TEST(Memory, RoundTrips) {
  for (const int64_t mebibytes : {1, 512, 1024, 1536, 20480, 1 << 20}) {
    EXPECT_EQ(parse_memory(format_memory(MiB(mebibytes)))->count(), mebibytes);
  }
}

TEST(Durations, ReadsUnitsAndSlurmForms) {
  const auto seconds = [](const char* text) { return parse_duration(text)->count() / kSecond.count(); };
  EXPECT_EQ(seconds("90"), 5400) << "a bare integer is minutes";
  EXPECT_EQ(seconds("90s"), 90);
  EXPECT_EQ(seconds("1h30m"), 5400);
  EXPECT_EQ(seconds("2d"), 172800);
  EXPECT_EQ(seconds("5:30"), 330);
  EXPECT_EQ(seconds("1:00:01"), 3601);
  EXPECT_EQ(seconds("1-0"), 86400);
  EXPECT_EQ(seconds("1-12:30"), 131400);
  EXPECT_EQ(seconds("1-12:30:15"), 131415);
}

TEST(Durations, RefusesNonsense) {
  for (const char* bad :
       {"", "m", "-5", "1m1h", "1h1h", "5x", "1:2:3:4", "1:", "1e9", "999999999999", "400d"}) {
    EXPECT_FALSE(parse_duration(bad)) << bad;
  }
}

TEST(Durations, ShowsTwoUnitsAtMost) {
  EXPECT_EQ(format_duration(kDay + kHour * 2 + kMinute), "1d02h");
  EXPECT_EQ(format_duration(kMinute * 150), "2h30m");
  EXPECT_EQ(format_duration(kSecond * 45), "45s");
  EXPECT_EQ(format_duration(kMillisecond * 350), "350ms");
  EXPECT_EQ(format_duration(Duration{}), "0s");
}

TEST(Thousandths, KeepsThreePlacesExactly) {
  EXPECT_EQ(*parse_thousandths("0.5"), 500);
  EXPECT_EQ(*parse_thousandths("0.125"), 125);
  EXPECT_EQ(*parse_thousandths("2"), 2000);
  for (const char* bad : {"NaN", "1e-9", "1.0000001", "-1", "+1", ".5", "0.", "inf", ""}) {
    EXPECT_FALSE(parse_thousandths(bad)) << bad;
  }
  EXPECT_EQ(format_thousandths(500), "0.5");
  EXPECT_EQ(format_thousandths(125), "0.125");
  EXPECT_EQ(format_thousandths(2000), "2");
}

TEST(Times, AreRfc3339WithNineDigits) {
  EXPECT_EQ(format_time(Time(1'796'038'187'000'000'001)), "2026-11-30T11:29:47.000000001Z");
  EXPECT_EQ(parse_time("2026-11-30T11:29:47.000000001Z")->nanoseconds(), 1'796'038'187'000'000'001);
  EXPECT_EQ(parse_time("1970-01-01T00:00:00Z")->nanoseconds(), 0);
  EXPECT_EQ(parse_time("2024-02-29T00:00:00.5Z")->nanoseconds(), 1'709'164'800'500'000'000);
  for (const char* bad :
       {"2023-02-29T00:00:00Z", "2026-11-30", "2026-13-01T00:00:00Z", "2026-11-30T11:29:47"}) {
    EXPECT_FALSE(parse_time(bad)) << bad;
  }
}

TEST(Errors, NeverEchoControlCharacters) {
  const auto error = parse_memory("\x1b[31mred\n");
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().message().find('\x1b'), std::string::npos);
  EXPECT_EQ(error.error().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace tranche
