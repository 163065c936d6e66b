// Trace files are from outside: what is damaged is refused with its line, and nothing is read past its end.
#include "replay/trace_file.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tranche::replay {
namespace {

TEST(TraceTable, CsvCellsByNameOfTheColumn) {
  const auto table = TraceTable::parse_csv("a,b,c\n1,,x\r\n2.0,7\n", "t.csv");
  ASSERT_TRUE(table);
  ASSERT_EQ(table->rows(), 2u);
  EXPECT_EQ(*table->column("c"), 2u);
  EXPECT_FALSE(table->has_column("d"));
  EXPECT_EQ(table->cell(0, 2), "x");
  EXPECT_EQ(table->cell(1, 2), "");
  EXPECT_EQ(table->integer(0, 1, 9), 9);
  EXPECT_EQ(table->integer(1, 0), 2);
  EXPECT_TRUE(table->check());
}

TEST(TraceTable, WhatIsNoNumberIsNamedWithItsLine) {
  const auto table = TraceTable::parse_csv("a\n1\nseven\n", "t.csv");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->integer(1, 0), 0);
  ASSERT_FALSE(table->check());
  EXPECT_NE(table->check().error().message().find("line 3"), std::string::npos);
}

TEST(TraceTable, ColumnsBetweenBlanksWithoutComments) {
  const auto table = TraceTable::parse_columns("; header\n  1   2\t3\n\n 4 5 6 \n", "t.swf", ';');
  ASSERT_TRUE(table);
  ASSERT_EQ(table->rows(), 2u);
  EXPECT_EQ(table->integer(1, 2), 6);
  EXPECT_EQ(table->cell(1, 3), "");
}

TEST(TraceTable, AnyBytesAreReadOrRefused) {
  const uint64_t seed = 7;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random.below(200), '\0');
    for (char& c : text) c = "0123456789.,-eE \t\r\n;\0\xff"[random.below(22)];
    for (const auto& table : {TraceTable::parse_csv(text, "t"), TraceTable::parse_columns(text, "t", ';')}) {
      if (!table) continue;
      for (size_t row = 0; row < table->rows(); ++row) {
        for (size_t column = 0; column < 4; ++column) table->micro(row, column);
      }
    }
  }
}

}  // namespace
}  // namespace tranche::replay
