// The target of a request, "/v1/jobs/7?state=running&limit=20", taken apart and decoded.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tranche {

using QueryParameters = std::vector<std::pair<std::string, std::string>>;

struct HttpTarget {
  std::string path;  // decoded; starts with '/'
  QueryParameters query;
};

inline constexpr size_t kTargetLengthMax = 4096;
inline constexpr size_t kQueryParametersMax = 64;

// invalid_argument: no leading '/', a bad escape, a control character or an encoded '/' in the path, invalid
// UTF-8, too many parameters; too_large: longer than kTargetLengthMax.
Result<HttpTarget> parse_http_target(std::string_view target);

// The reverse for one component: everything but unreserved characters as %XX.
std::string percent_encode(std::string_view text);

}  // namespace tranche
