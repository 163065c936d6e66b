#include "codec/api.h"

#include <gtest/gtest.h>

#include "codec/random_values.h"

namespace tranche::api {
namespace {

using json::RandomFiller;

constexpr uint64_t kApiSeed = 711;

template <class Type>
void expect_round_trips(const char* name) {
  for (uint64_t i = 0; i < 60; ++i) {
    SCOPED_TRACE(std::string(name) + ", seed " + std::to_string(kApiSeed + i));
    const auto value = RandomFiller(kApiSeed + i).make<Type>();
    const std::string text = encode(value);
    const auto decoded = decode<Type>(text);
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message() << "\n" << text;
    ASSERT_EQ(*decoded, value) << text;
  }
}

TEST(Api, RandomValuesComeBackAsTheyWere) {
#define TRANCHE_ROUND_TRIP(Type) expect_round_trips<Type>(#Type);
  TRANCHE_API_REQUESTS(TRANCHE_ROUND_TRIP)
  TRANCHE_API_ANSWERS(TRANCHE_ROUND_TRIP)
#undef TRANCHE_ROUND_TRIP
}

std::string submit_error(std::string_view fields) {
  const auto request =
      decode<SubmitRequest>("{\"argv\":[\"true\"],\"directory\":\"/home/ada\"" + std::string(fields) + "}");
  return request ? std::string("(accepted)") : request.error().message();
}

std::string body_error(std::string_view body) {
  const auto request = decode<SubmitRequest>(body);
  return request ? std::string("(accepted)") : request.error().message();
}

TEST(Api, SmallestRequestIsAccepted) {
  const auto request = decode<SubmitRequest>(R"({"argv":["true"],"directory":"/"})");
  ASSERT_TRUE(request.has_value()) << request.error().message();
  SubmitRequest expected;
  expected.argv = {"true"};
  expected.directory = "/";
  EXPECT_EQ(*request, expected);
}

struct BadRequest {
  const char* fields;  // after argv and directory
  const char* error;
};

constexpr BadRequest kBadRequests[] = {
    {R"(,"prioritty":1)", "the field \"prioritty\" is not known; did you mean \"priority\"?"},
    {R"(,"gpu":{"cuont":1})", "gpu: the field \"cuont\" is not known; did you mean \"count\"?"},
    {R"(,"user":"root")", "the field \"user\" is not known"},
    {R"(,"gpu":{"count":9e99})", "gpu.count: must be a whole number from 0 to 100000, not 9e99"},
    {R"(,"gpu":{"count":-1})", "gpu.count: must be a whole number from 0 to 100000, not -1"},
    {R"(,"gpu":{"count":1.5})", "gpu.count: must be a whole number from 0 to 100000, not 1.5"},
    {R"(,"gpu":{"count":0})", "gpu.count: must be at least 1; leave \"gpu\" out for a job without GPU"},
    {R"(,"gpu":{"count":"two"})", "gpu.count: must be a whole number from 0 to 100000, not \"two\""},
    {R"(,"gpu":{"count":18446744073709551616})", "gpu.count: must be a whole number"},
    {R"(,"gpu":{"count":1,"kind":"mig"})",
     "gpu.kind: MIG slices cannot be asked for, this is not available yet"},
    {R"(,"gpu":{"count":1,"kind":"fraction"})", "gpu: a fraction needs \"compute_milli\" or \"memory_mib\""},
    {R"(,"gpu":{"count":1,"kind":"fraction","compute_milli":1001})",
     "gpu.compute_milli: must be a whole number from 0 to 1000"},
    {R"(,"gpu":{"count":1,"compute_milli":500})", "gpu: whole GPUs take no"},
    {R"(,"gpu":{"count":1,"kind":"half"})", "gpu.kind: must be one of whole, fraction, mig, not \"half\""},
    {R"(,"gpu":[])", "gpu: must be an object, not a list"},
    {R"(,"name":"a\nb")", "name: must be one line without control characters, not \"a?b\""},
    {R"(,"name":"")", "name: must not be empty"},
    {R"(,"name":"\u009b31mred")",
     "name: must have no control characters and none that hide or reorder others, not \"?31mred\""},
    {R"(,"name":"gnp.\u202exe")", "name: must have no control characters and none that hide or reorder"},
    {R"(,"name":"a\u200bb")", "name: must have no control characters and none that hide or reorder"},
    {R"(,"queue":"physics\u0085")", "queue: must have no control characters"},
    {R"(,"gpu":{"count":1,"type":"h100\u009b"})", "gpu.type: must have no control characters"},
    {R"(,"node_pool":"\ufeffa")", "node_pool: must have no control characters"},
    {R"(,"queue":7)", "queue: must be text, not 7"},
    {R"(,"time_limit":90)", "time_limit: must be a duration with its unit"},
    {R"(,"time_limit":"90")", "time_limit: \"90\" has no unit"},
    {R"(,"time_limit":"0s")", "time_limit: must be from 1s to 366d"},
    {R"(,"time_limit":"-5s")", "time_limit: \"-5s\" is not a duration"},
    {R"(,"time_limit":"99999d")", "time_limit: \"99999d\" is longer than 366 days"},
    {R"(,"begin":1795000000000000000)", "begin: must be a time like"},
    {R"(,"begin":"tomorrow")", "begin: \"tomorrow\" is not a time"},
    {R"(,"tasks":0)", "tasks: must be a whole number from 1 to 1000000, not 0"},
    {R"(,"tasks":{"min":3,"max":2})", "tasks: \"min\" must not be above \"max\""},
    {R"(,"tasks":{"min":3})", "tasks: must be a number, or an object with \"min\" and \"max\""},
    {R"(,"tasks":{"min":1,"mx":2})", "tasks: the field \"mx\" is not known"},
    {R"(,"array":{"indices":[]})", "array.indices: must not be empty"},
    {R"(,"array":{"indices":[2,1]})", "array: indices must ascend and be distinct"},
    {R"(,"array":{"indices":[1,1]})", "array: indices must ascend and be distinct"},
    {R"(,"array":{"indices":[-1]})", "array.indices[0]: must be a whole number"},
    {R"(,"dependencies":[{"kind":"after_ok","job":0}])",
     "dependencies[0].job: must be a whole number from 1"},
    {R"(,"environment":{"A=B":"c"})", "environment: the name \"A=B\" cannot be used"},
    {R"(,"environment":{"A":1})", "environment.\"A\": must be text, not 1"},
    {R"(,"environment":{"A":"x\u0000y"})", "environment.\"A\": must not hold a NUL character"},
    {R"(,"umask":512)", "umask: must be a whole number from 0 to 511"},
    {R"(,"preemptible":"yes")", "preemptible: must be true or false, not \"yes\""},
    {R"(,"preemptible":null)", "preemptible: must be true or false, not null"},
    {R"(,"memory_mib":0)", "memory_mib: must be a whole number from 1"},
    {R"(,"script":"#!/bin/sh")", "give either \"argv\" (a command) or \"script\" (its text)"},
    {R"(,"script_args":["x"])", "\"script_args\" needs \"script\""},
    {R"(,"held":true,"held":false)", "the name \"held\" stands twice in one object"},
    {R"(,"held":maybe)", "line 1, column 49: not valid JSON at \"maybe}\""},
};

TEST(Api, BadRequestsAreRefusedInASentence) {
  for (const BadRequest& bad : kBadRequests) {
    SCOPED_TRACE(bad.fields);
    const std::string error = submit_error(bad.fields);
    EXPECT_TRUE(error.starts_with(bad.error)) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST(Api, CommandAndDirectoryAreChecked) {
  EXPECT_TRUE(body_error(R"({"directory":"/"})").starts_with("give either"));
  EXPECT_EQ(body_error(R"({"argv":["x"]})"), "the field \"directory\" is missing");
  EXPECT_EQ(body_error(R"({"argv":["x"],"directry":"/"})"),
            "the field \"directry\" is not known; did you mean \"directory\"?");
  EXPECT_EQ(body_error(R"({"argv":["x"],"directory":"home"})"), "directory: must be an absolute path");
  EXPECT_EQ(body_error(R"({"argv":[""],"directory":"/"})"), "argv[0]: the command must not be empty");
  EXPECT_EQ(body_error("[]"), "must be an object, not a list");
  EXPECT_EQ(body_error("null"), "must be an object, not null");
}

TEST(Api, SizesAreBounded) {
  SubmitRequest request;
  request.argv = {"true"};
  request.directory = "/";
  request.name = std::string(129, 'x');
  EXPECT_EQ(body_error(encode(request)), "name: must be at most 128 bytes long, not 129");
  request.name.reset();
  request.argv.assign(20'000, "x");
  EXPECT_EQ(body_error(encode(request)), "argv: must have at most 16384 elements, not 20000");
  request.argv.assign(9, std::string(131'000, 'x'));
  EXPECT_TRUE(body_error(encode(request)).starts_with("the arguments are longer than 1 MiB together"));
  request.argv = {"true"};
  for (int i = 0; i < 9; ++i)
    request.environment.emplace_back("N" + std::to_string(i), std::string(131'000, 'x'));
  EXPECT_TRUE(body_error(encode(request)).starts_with("the environment is larger than 1 MiB"));
  request.environment.clear();
  request.array.emplace();
  for (uint32_t i = 0; i <= limits::kArrayElements; ++i) request.array->indices.push_back(i);
  EXPECT_EQ(body_error(encode(request)), "array.indices: must have at most 100000 elements, not 100001");
  request.array->indices.pop_back();
  EXPECT_EQ(body_error(encode(request)), "(accepted)");
}

TEST(Api, AnswersIgnoreWhatANewerDaemonAdds) {
  const auto forecast = decode<Forecast>(R"({"known":true,"position":2,"confidence":0.9})");
  ASSERT_TRUE(forecast.has_value());
  EXPECT_EQ(forecast->position, 2u);
}

TEST(Api, ErrorsGoThroughProblemDocuments) {
  const Problem problem = to_problem(Error(ErrorCode::over_limit, "wait"));
  EXPECT_EQ(problem.type, "over_limit");
  EXPECT_EQ(problem.status, 429);
  const Error error = to_error(*decode<Problem>(encode(problem)));
  EXPECT_EQ(error.code(), ErrorCode::over_limit);
  EXPECT_EQ(error.message(), "wait");
  EXPECT_EQ(
      to_error(
          Problem{
              .type = "of_the_future", .title = "T", .status = 500, .detail = "", .line = {}, .column = {}})
          .code(),
      ErrorCode::internal);
}

TEST(Api, HostileBodiesAreAnswered) {
  RandomFiller filler(kApiSeed);
  for (int i = 0; i < 20; ++i) {
    const std::string text = encode(filler.make<SubmitRequest>());
    for (size_t size = 0; size < text.size(); ++size) {
      ASSERT_FALSE(decode<SubmitRequest>(std::string_view(text).substr(0, size)).has_value());
    }
    for (int change = 0; change < 200; ++change) {
      std::string changed = text;
      changed[filler.random.below(changed.size())] = static_cast<char>(filler.random.below(256));
      if (const auto decoded = decode<SubmitRequest>(changed)) {
        ASSERT_TRUE(decode<SubmitRequest>(encode(*decoded)).has_value()) << changed;
      }
    }
  }
}

}  // namespace
}  // namespace tranche::api
