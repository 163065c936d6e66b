#include "codec/duration_text.h"

#include "base/quantity_text.h"
#include "codec/json_document.h"

namespace tranche {
namespace {

// "1500ms", "20ns": the units that people do not write and parse_duration() does not read.
bool parse_fine_duration(std::string_view text, int64_t* nanoseconds) {
  int64_t unit = 0;
  if (text.ends_with("ns")) unit = 1;
  if (text.ends_with("ms")) unit = kMillisecond.count();
  if (unit == 0 || text.size() < 3 || text.size() > 20) return false;
  int64_t value = 0;
  for (const char c : text.substr(0, text.size() - 2)) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
  }
  if (value > kDurationMax.count() / unit) return false;
  *nanoseconds = value * unit;
  return true;
}

bool is_bare_number(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string format_exact_duration(Duration duration) {
  struct Unit {
    Duration size;
    const char* name;
  };
  constexpr Unit kUnits[] = {{kDay, "d"}, {kHour, "h"}, {kMinute, "m"}, {kSecond, "s"}, {kMillisecond, "ms"}};
  const int64_t count = duration.count();
  if (count == 0) return "0s";
  for (const Unit& unit : kUnits) {
    if (count % unit.size.count() == 0) return std::to_string(count / unit.size.count()) + unit.name;
  }
  return std::to_string(count) + "ns";
}

Result<Duration> parse_exact_duration(std::string_view text) {
  if (is_bare_number(text)) {
    return fail(ErrorCode::invalid_argument,
                json::shown(text) + " has no unit: write a duration like \"90s\", \"30m\", \"2h\" or \"7d\"");
  }
  int64_t nanoseconds = 0;
  if (parse_fine_duration(text, &nanoseconds)) return Duration(nanoseconds);
  return parse_duration(text);
}

}  // namespace tranche
