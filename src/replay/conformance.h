// Runs whole tables: reads a file, plays each case, says which pass. Both schemas of tables are understood:
// an element with `jobs` is a scheduling case, one with `total` a division of a fair share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/policy.h"

namespace tranche::replay {

struct CaseResult {
  std::string id;
  std::vector<std::string> problems;  // none: passed
};

// Errors: corrupt if the text is no list of cases; a case that cannot be read or said is a case that fails.
Result<std::vector<CaseResult>> run_tables(std::string_view text, const Policy& policy);

}  // namespace tranche::replay
