#include "codec/sweep.h"

#include <gtest/gtest.h>

#include "codec/limits.h"

namespace tranche::api {
namespace {

std::vector<SweepParameter> parsed(std::string_view text) {
  auto sweep = parse_sweep(text);
  EXPECT_TRUE(sweep.has_value()) << text << ": " << (sweep ? "" : sweep.error().message());
  return sweep ? sweep->parameters : std::vector<SweepParameter>();
}

TEST(Sweep, TheLastParameterVariesFastest) {
  const auto sweep = parsed("lr=0.1,0.01 seed=1..3");
  ASSERT_EQ(sweep_size(sweep), 6u);
  EXPECT_EQ(sweep_values(sweep, 1), (SweepValues{{"lr", "0.1"}, {"seed", "1"}}));
  EXPECT_EQ(sweep_values(sweep, 3), (SweepValues{{"lr", "0.1"}, {"seed", "3"}}));
  EXPECT_EQ(sweep_values(sweep, 4), (SweepValues{{"lr", "0.01"}, {"seed", "1"}}));
  EXPECT_EQ(sweep_values(sweep, 6), (SweepValues{{"lr", "0.01"}, {"seed", "3"}}));
  EXPECT_TRUE(sweep_values(sweep, 0).empty());
  EXPECT_TRUE(sweep_values(sweep, 7).empty());
}

TEST(Sweep, EveryCombinationComesOnce) {
  const auto sweep = parsed("a=1..4 b=x,y,z c=0..100:25");
  ASSERT_EQ(sweep_size(sweep), 60u);
  std::vector<SweepValues> seen;
  for (uint32_t index = 1; index <= 60; ++index) seen.push_back(sweep_values(sweep, index));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(Sweep, ValuesAreTextUnlessBothEndsAreWholeNumbers) {
  EXPECT_EQ(parsed("x=0.1..0.5")[0].values, (std::vector<std::string>{"0.1..0.5"}));
  EXPECT_EQ(parsed("x=../data")[0].values, (std::vector<std::string>{"../data"}));
  EXPECT_EQ(parsed("x=-1..1,7")[0].values, (std::vector<std::string>{"-1", "0", "1", "7"}));
  EXPECT_EQ(parsed("flag=--a=b")[0].values, (std::vector<std::string>{"--a=b"}));
}

TEST(Sweep, WhatIsWrongIsSaid) {
  for (const char* text :
       {"", "lr", "lr=", "lr=1,,2", "=1", "1r=2", "l-r=2", "lr=1 lr=2", "lr=5..1", "lr=1..5:0", "lr=1 %0",
        "lr=1 %2 seed=1", "lr=1..", "a=1..1000 b=1..1000", "a=1..99999999"}) {
    const auto sweep = parse_sweep(text);
    ASSERT_FALSE(sweep.has_value()) << text;
    EXPECT_EQ(sweep.error().code(), ErrorCode::invalid_argument) << text;
    EXPECT_FALSE(sweep.error().message().empty());
  }
  EXPECT_EQ(parse_sweep("lr=1,2 %7")->running_max, 7u);
}

TEST(Sweep, PlaceholdersAreThoseOfTheParametersOnly) {
  const SweepValues values = {{"lr", "0.1"}, {"name", "{lr}"}};
  EXPECT_EQ(fill_placeholders("--lr={lr} {name} {other} {} {lr", values), "--lr=0.1 {lr} {other} {} {lr");
  EXPECT_EQ(fill_placeholders("{{lr}}", values), "{0.1}");
}

TEST(Sweep, AnElementRunsWithItsValues) {
  SubmitRequest request;
  request.argv = {"train", "--lr", "{lr}", "{data}"};
  request.environment = {{"HOME", "/home/ada"}, {"lr", "9"}};
  request.stdout_path = "out-{data}.log";
  request.sweep = parsed("lr=0.1,0.01 data=/data/a,/data/b");
  const SubmitRequest element = element_request(request, 2);
  EXPECT_EQ(element.argv, (std::vector<std::string>{"train", "--lr", "0.1", "/data/b"}));
  EXPECT_EQ(element.stdout_path, "out-_data_b.log") << "a value does not lead a log into another folder";
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"HOME", "/home/ada"}, {"data", "/data/b"}, {"lr", "0.1"}};
  EXPECT_EQ(element.environment, expected);
  EXPECT_TRUE(element.sweep.empty());
}

TEST(Sweep, ElementsAreNamedFromWhatIsStored) {
  const auto sweep = parsed("lr=0.1,0.01 seed=1..2");
  EXPECT_EQ(element_name(stored_name("train", sweep), 4), "train lr=0.01 seed=2");
  EXPECT_EQ(element_name(stored_name("run-{seed}", sweep), 1), "run-1");
  EXPECT_EQ(element_name("plain {lr}", 1), "plain {lr}");
  EXPECT_EQ(stored_name("train", parsed("seed=1..10000")), "train") << "a long one is not kept with the name";
  EXPECT_EQ(parsed(format_sweep(sweep)), sweep);
}

TEST(Sweep, ARequestSaysItsElements) {
  const auto decoded = [](const std::string& fields) {
    return decode<SubmitRequest>(
        R"({"argv":["t","{a}"],"directory":"/","sweep":[{"name":"a","values":["1","2"]}])" + fields + "}");
  };
  EXPECT_TRUE(decoded(R"(,"array":{"indices":[1,2]})").has_value());
  EXPECT_FALSE(decoded("").has_value());
  EXPECT_FALSE(decoded(R"(,"array":{"indices":[0,1]})").has_value());
  EXPECT_FALSE(decoded(R"(,"array":{"indices":[1,2,3]})").has_value());
  EXPECT_FALSE(decode<SubmitRequest>(R"({"argv":["t"],"directory":"/","array":{"indices":[1]},)"
                                     R"("sweep":[{"name":"a","values":["x y"]}]})")
                   .has_value());
}

TEST(Sweep, PlaceholdersCannotMakeACommandEndless) {
  SubmitRequest request;
  std::string word;
  for (int i = 0; i < 2'000; ++i) word += "{a}";
  request.argv = {word};
  request.directory = "/";
  request.sweep = {{"a", {std::string(limits::kSweepValueBytes, 'x')}}};
  request.array = ArraySpec{{1}, 0};
  const auto decoded = decode<SubmitRequest>(encode(request));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_NE(decoded.error().message().find("1 MiB"), std::string::npos);
}

}  // namespace
}  // namespace tranche::api
