#include "codec/nearest_name.h"

#include <gtest/gtest.h>

namespace tranche {
namespace {

constexpr std::string_view kKnown[] = {"quota", "limit", "weight", "user_limit"};

TEST(NearestName, FindsSlips) {
  EXPECT_EQ(nearest_name("qouta", kKnown), "quota");
  EXPECT_EQ(nearest_name("limt", kKnown), "limit");
  EXPECT_EQ(nearest_name("user-limit", kKnown), "user_limit");
  EXPECT_EQ(nearest_name("wieghts", kKnown), "weight");
}

TEST(NearestName, LeavesStrangersAlone) {
  EXPECT_EQ(nearest_name("colour", kKnown), "");
  EXPECT_EQ(nearest_name("", kKnown), "");
  EXPECT_EQ(nearest_name(std::string(10'000, 'q'), kKnown), "");
  EXPECT_EQ(nearest_name_hint("colour", kKnown), "; known are: quota, limit, weight, user_limit");
  EXPECT_EQ(nearest_name_hint("qouta", kKnown), "; did you mean \"quota\"?");
}

}  // namespace
}  // namespace tranche
