// "Did you mean": the known name that is closest to what somebody wrote.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tranche {

// The name within edit distance (insert, delete, replace, swap of neighbours) of a third of its length, at
// least 1; the first of equals; empty if there is none.
std::string_view nearest_name(std::string_view written, std::span<const std::string_view> known);

// `; did you mean "limit"?`, or `; known are: a, b, c` when nothing is near.
std::string nearest_name_hint(std::string_view written, std::span<const std::string_view> known);

}  // namespace tranche
