#include "linux/http_router.h"

#include "base/assert.h"

namespace tranche {
namespace {

// Takes the segment up to the next '/' off `rest`, which starts with one.
std::string_view take_segment(std::string_view& rest) {
  rest.remove_prefix(1);
  const std::string_view segment = rest.substr(0, rest.find('/'));
  rest.remove_prefix(segment.size());
  return segment;
}

}  // namespace

bool match_pattern(std::string_view pattern, std::string_view path, RouteParameters* parameters) {
  parameters->count = 0;
  while (!pattern.empty() && !path.empty()) {
    if (pattern.front() != '/' || path.front() != '/') return false;
    const std::string_view expected = take_segment(pattern);
    const std::string_view segment = take_segment(path);
    if (!expected.empty() && expected.front() == '{') {
      if (segment.empty()) return false;
      TRANCHE_ASSERT(parameters->count < kRouteParametersMax);
      parameters->values[parameters->count++] = segment;
    } else if (expected != segment) {
      return false;
    }
  }
  return pattern.empty() && path.empty();
}

}  // namespace tranche
