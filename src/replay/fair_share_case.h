// A division of an amount among sibling queues, as a table states it, through the scheduler's own division.
#pragma once

#include <string>
#include <vector>

#include "codec/json_document.h"

namespace tranche::replay {

// What is not as expected; empty if all is. Amounts are compared in millionths.
std::vector<std::string> run_fair_share_case(json::Value value);

}  // namespace tranche::replay
