#include "replay/conformance.h"

#include "replay/fair_share_case.h"
#include "replay/json_input.h"
#include "replay/scenario_judge.h"

namespace tranche::replay {
namespace {

std::string id_of(json::Value value) {
  JsonInput input(value);
  std::string id = input.text("id");
  return id.empty() ? "(no id)" : id;
}

bool is_fair_share_case(json::Value value) {
  JsonInput input(value);
  return input.has("total") && !input.has("jobs");
}

std::vector<std::string> run_scheduling_case(json::Value value, const Policy& policy) {
  const auto scenario = read_scenario(value);
  if (!scenario) return {scenario.error().message()};
  const auto cluster = ScenarioCluster::build(*scenario, policy);
  if (!cluster) return {cluster.error().message()};
  return judge(*scenario, *cluster, run_scenario(*scenario, *cluster));
}

}  // namespace

Result<std::vector<CaseResult>> run_tables(std::string_view text, const Policy& policy) {
  TRY_ASSIGN(const json::Document document, json::Document::parse(text, ErrorCode::corrupt));
  const json::Value root = document.root();
  if (root.kind() != json::Kind::array) return fail(ErrorCode::corrupt, "a table is a list of cases");
  std::vector<CaseResult> results;
  json::Value child = root.first();
  for (uint32_t i = 0; i < root.size(); ++i, child = child.next()) {
    CaseResult result{id_of(child), {}};
    result.problems =
        is_fair_share_case(child) ? run_fair_share_case(child) : run_scheduling_case(child, policy);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace tranche::replay
