// Durations as the API and the configuration spell them: always with a unit, and exact in both directions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace tranche {

// The largest unit that is exact: "0s", "90s", "2h", "1500ms", "1ns". `duration` is not negative.
std::string format_exact_duration(Duration duration);

// Reads those, and what parse_duration() reads with a unit or as Slurm's H:M:S; a bare number is refused.
Result<Duration> parse_exact_duration(std::string_view text);

}  // namespace tranche
