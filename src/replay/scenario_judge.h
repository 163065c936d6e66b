// Whether what became of a scenario is what its table expects.
//
// A start is a start, on idle room or on room that left. In a table of one action a task that was evicted and
// started again counts as moved (`pipelined`), and one that was evicted as `releasing` wherever it is by now:
// the tables read their state in the middle, here all is brought to its end.
#pragma once

#include <string>
#include <vector>

#include "replay/scenario.h"
#include "replay/scenario_run.h"

namespace tranche::replay {

// What is not as expected, each a clause; empty if all is.
std::vector<std::string> judge(const Scenario& scenario, const ScenarioCluster& cluster,
                               const ScenarioResult& result);

}  // namespace tranche::replay
