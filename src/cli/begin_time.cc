// --begin: local wall-clock time as people write it.
#include <time.h>

#include "base/quantity_text.h"
#include "cli/job_request.h"
#include "cli/option_error.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

struct LocalTime {
  int year, month, day, hour, minute, second;
};

// Unsigned digits of a fixed count at `at`, or -1.
int digits(std::string_view text, size_t at, size_t count) {
  if (at + count > text.size()) return -1;
  int value = 0;
  for (size_t i = at; i < at + count; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

// "HH:MM" or "HH:MM:SS" into `local`.
bool read_clock(std::string_view text, LocalTime& local) {
  if (text.size() != 5 && text.size() != 8) return false;
  local.hour = digits(text, 0, 2);
  local.minute = digits(text, 3, 2);
  local.second = text.size() == 8 ? digits(text, 6, 2) : 0;
  const bool separated = text[2] == ':' && (text.size() == 5 || text[5] == ':');
  return separated && local.hour >= 0 && local.hour < 24 && local.minute >= 0 && local.minute < 60 &&
         local.second >= 0 && local.second < 60;
}

bool read_date(std::string_view text, LocalTime& local) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  local.year = digits(text, 0, 4);
  local.month = digits(text, 5, 2);
  local.day = digits(text, 8, 2);
  return local.year >= 1970 && local.month >= 1 && local.month <= 12 && local.day >= 1 && local.day <= 31;
}

Time from_local(const LocalTime& local) {
  tm broken{};
  broken.tm_year = local.year - 1900;
  broken.tm_mon = local.month - 1;
  broken.tm_mday = local.day;
  broken.tm_hour = local.hour;
  broken.tm_min = local.minute;
  broken.tm_sec = local.second;
  broken.tm_isdst = -1;
  return Time(int64_t{mktime(&broken)} * kSecond.count());
}

LocalTime to_local(Time time) {
  const time_t seconds = static_cast<time_t>(time.nanoseconds() / kSecond.count());
  tm broken{};
  localtime_r(&seconds, &broken);
  return {broken.tm_year + 1900, broken.tm_mon + 1, broken.tm_mday,
          broken.tm_hour,        broken.tm_min,     broken.tm_sec};
}

}  // namespace

Result<Time> parse_begin(std::string_view text, Time now) {
  if (text == "now") return now;
  if (text.starts_with("now+")) {
    TRY_ASSIGN(const Duration after, parse_duration(text.substr(4)));
    return now + after;
  }
  LocalTime local = to_local(now);
  if (read_clock(text, local)) {
    const Time today = from_local(local);
    if (today >= now) return today;
    ++local.day;  // mktime normalises the 32nd
    return from_local(local);
  }
  local = {};
  const std::string_view clock = text.size() > 11 ? text.substr(11) : std::string_view("00:00");
  const bool has_date = read_date(text.substr(0, 10), local) && (text.size() == 10 || text[10] == 'T');
  if (has_date && read_clock(clock, local)) return from_local(local);
  if (text.size() > 16 && has_date) {
    const Result<Time> time = parse_time(text);
    if (time) return *time;
  }
  return invalid("write 08:30, 2026-12-01T08:30, 2026-12-01T08:30:00Z or now+2h, not " + in_quotes(text));
}

}  // namespace tranche::cli
