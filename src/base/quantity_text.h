// Quantities as people write them, in both directions. Used by the command line, the configuration, the
// API and scripts, so that "20G" means the same everywhere (design section 13).
//
// Errors are one sentence that names the input and says what is understood. Integers only: "0.5" is read
// as 500 thousandths, and NaN, exponents, signs and more than three decimals are refused.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace tranche {

inline constexpr MiB kMemoryMax{int64_t{1} << 30};  // 1 PiB
inline constexpr Duration kDurationMax{366 * kDay.count()};

// Sizes: bare is MiB; K, M, G, T (also Ki, KiB, ... ) are binary. "GB" is refused with a hint. K rounds up.
Result<MiB> parse_memory(std::string_view text);
// "20G", "512M", "1536M": the largest unit that is exact.
std::string format_memory(MiB memory);

// Durations with unit: "90s", "30m", "2h", "1d", "1h30m", and Slurm's "M", "M:S", "H:M:S", "D-H", "D-H:M",
// "D-H:M:S"; a bare integer is minutes. "unlimited" is refused here: callers that allow it check first.
Result<Duration> parse_duration(std::string_view text);
// "1d02h", "2h30m", "45s", "350ms": two units at most, for people.
std::string format_duration(Duration duration);

// A decimal of at most three places as thousandths: "0.5" -> 500, "2" -> 2000.
Result<int64_t> parse_thousandths(std::string_view text);
// The reverse: 500 -> "0.5", 2000 -> "2".
std::string format_thousandths(int64_t thousandths);

// A plain unsigned decimal within [low, high]. `what` names it in the error.
Result<int64_t> parse_integer(std::string_view text, int64_t low, int64_t high, std::string_view what);

// RFC 3339 in UTC with nine digits: "2026-11-30T11:29:47.000000001Z". Calendar arithmetic by Hinnant's
// days-from-civil algorithm.
std::string format_time(Time time);
Result<Time> parse_time(std::string_view text);

}  // namespace tranche
