// The conformance tables, as a floor: a case that does not pass must be listed with its reason. And that the
// runner itself judges: a table of our own whose expectations are wrong on purpose must fail.
#include "replay/conformance.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "codec/config.h"
#include "replay/json_input.h"
#include "replay/test_files.h"

namespace tranche::replay {
namespace {

Policy kai_policy() {
  const auto config = load_config(test::source_file("src/replay/kai.toml"));
  EXPECT_TRUE(config) << config.error().message();
  return config ? config->policy : Policy{};
}

std::map<std::string, std::string> open_cases() {
  std::map<std::string, std::string> reasons;
  std::istringstream lines(
      test::read_file(test::source_file("src/replay/testdata/conformance_open_cases.txt")));
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = line.find('\t');
    if (line.starts_with('#') || tab == std::string::npos) continue;
    reasons[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return reasons;
}

void hold_floor(const std::string& table) {
  const auto path = test::shared_file("conformance/" + table);
  if (!path) GTEST_SKIP() << "the conformance tables (shared/conformance) are not here";
  const auto results = run_tables(test::read_file(*path), kai_policy());
  ASSERT_TRUE(results) << results.error().message();
  const auto reasons = open_cases();
  size_t passed = 0;
  for (const CaseResult& result : *results) {
    if (result.problems.empty()) ++passed;
    if (!result.problems.empty() && !reasons.contains(result.id))
      ADD_FAILURE() << result.id << " does not pass and is not listed: " << result.problems.front();
    if (result.problems.empty() && reasons.contains(result.id))
      std::printf("%s passes now: take it off the list\n", result.id.c_str());
  }
  std::printf("%s: %zu of %zu pass\n", table.c_str(), passed, results->size());
}

TEST(Conformance, SchedulingCasesThatPassedStillPass) { hold_floor("kai-cases.json"); }
TEST(Conformance, FairShareCasesThatPassedStillPass) { hold_floor("fairshare.json"); }

// One node, one queue; `status` is what a 1-GPU job is said to become.
std::string small_table(const std::string& gpus, const std::string& status, const std::string& node) {
  return R"([{"id":"a","action":"integration","nodes":[{"name":"n0","gpus":1},{"name":"n1","gpus":1}],)"
         R"("queues":[{"name":"q","deserved_gpus":2,"limit_gpus":-1,"weight":1}],)"
         R"("jobs":[{"name":"r","queue":"q","priority":50,"created_order":0,)"
         R"("tasks":[{"id":"r-0","gpus":1,"state":"running","node":"n0"}]},)"
         R"({"name":"p","queue":"q","priority":50,"created_order":1,"tasks":[{"id":"p-0","gpus":)" +
         gpus + R"(,"state":"pending"}]}],"expected":{"jobs":{"p":{"status":")" + status + R"(","node":")" +
         node + R"("}}}}])";
}

size_t problems_of(const std::string& table) {
  const auto results = run_tables(table, kai_policy());
  EXPECT_TRUE(results) << results.error().message();
  return results ? results->front().problems.size() : 0;
}

TEST(Conformance, ARightAnswerPassesAndAWrongOneFails) {
  EXPECT_EQ(problems_of(small_table("1", "running", "n1")), 0u);
  EXPECT_EQ(problems_of(small_table("1", "running", "n0")), 1u);
  EXPECT_EQ(problems_of(small_table("1", "pending", "")), 1u);
  EXPECT_EQ(problems_of(small_table("2", "pending", "")), 0u);
  EXPECT_EQ(problems_of(small_table("2", "running", "")), 1u);
}

TEST(Conformance, AFieldThatIsNotOfTheSchemaFailsItsCase) {
  std::string table = small_table("1", "running", "n1");
  table.replace(table.find("\"state\":\"pending\""), 17, "\"state\":\"pending\",\"colour\":\"red\"");
  EXPECT_EQ(problems_of(table), 1u);
}

TEST(Conformance, ATableThatIsNoneIsRefused) {
  EXPECT_FALSE(run_tables("{}", Policy{}));
  EXPECT_FALSE(run_tables("[", Policy{}));
  EXPECT_EQ(run_tables("[]", Policy{})->size(), 0u);
  EXPECT_EQ(run_tables("[1]", Policy{})->front().problems.size(), 1u);
}

TEST(JsonInput, DecimalsBecomeMillionthsRounded) {
  EXPECT_EQ(parse_micro("0.5"), 500'000);
  EXPECT_EQ(parse_micro("32.54999999999996"), 32'550'000);
  EXPECT_EQ(parse_micro("0.0000004"), 0);
  EXPECT_EQ(parse_micro("0.0000005"), 1);
  EXPECT_EQ(parse_micro("-1.25"), -1'250'000);
  EXPECT_EQ(parse_micro("2e3"), 2'000 * kMicro);
  EXPECT_EQ(parse_micro("1e-2"), 10'000);
  EXPECT_EQ(parse_micro("1e99"), std::nullopt);
  EXPECT_EQ(parse_micro("abc"), std::nullopt);
  EXPECT_EQ(parse_micro(""), std::nullopt);
}

}  // namespace
}  // namespace tranche::replay
