// Pieces of sentences for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace tranche::scheduler {

// "1 GPU", "2 GPUs".
std::string counted(int64_t count, std::string_view noun);
// 1500 -> "1.5 GPUs", 1000 -> "1 GPU".
std::string gpus_text(MilliGpu amount);
// "a, b and c"; at most `most` items, then "and N more".
std::string listed(const std::vector<std::string>& items, size_t most = 3);
// RFC 3339 in UTC to the second; the caller shows local time if it wants to.
std::string clock_text(Time time);
// The number of single-character edits between two names, for "did you mean".
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace tranche::scheduler
