#include "base/quantity_text.h"

#include <cstdio>
#include <vector>

namespace tranche {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The input, safe to print in an error: short, and without control characters.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 60)) out += (c < 0x20 || c == 0x7f || c == '"') ? '?' : c;
  if (text.size() > 60) out += "...";
  return out + "\"";
}

tl::unexpected<Error> refuse(std::string_view text, std::string_view advice) {
  return fail(ErrorCode::invalid_argument, quoted(text) + " " + std::string(advice));
}

// Reads digits from the front of `text`; false if there is none or the value passes 10^15.
bool take_number(std::string_view& text, int64_t* value) {
  size_t length = 0;
  int64_t result = 0;
  while (length < text.size() && is_digit(text[length])) {
    result = result * 10 + (text[length] - '0');
    if (result > 1'000'000'000'000'000) return false;
    ++length;
  }
  text.remove_prefix(length);
  *value = result;
  return length > 0;
}

constexpr std::string_view kMemoryAdvice =
    "is not a size: write MiB as a plain number, or a number with K, M, G or T (binary), like 20G or 1.5G";
constexpr std::string_view kDurationAdvice =
    "is not a duration: write minutes as a plain number, a number with s, m, h or d like 90s or 1h30m, or "
    "Slurm's H:M:S and D-H:M:S";
constexpr std::string_view kDecimalAdvice =
    "is not a number that can be used here: write a plain decimal with at most three places, like 0.5";

Result<Duration> checked_duration(std::string_view text, int64_t seconds) {
  if (seconds > kDurationMax.count() / kSecond.count()) {
    return refuse(text, "is longer than 366 days, the longest that can be asked for");
  }
  return Duration(seconds * kSecond.count());
}

// "1h30m": numbers with units, each unit smaller than the one before.
Result<Duration> parse_unit_duration(std::string_view text) {
  std::string_view rest = text;
  int64_t total = 0;
  int64_t previous_unit = INT64_MAX;
  while (!rest.empty()) {
    int64_t value = 0;
    if (!take_number(rest, &value) || rest.empty()) return refuse(text, kDurationAdvice);
    int64_t unit = 0;
    switch (rest.front()) {
      case 's':
        unit = 1;
        break;
      case 'm':
        unit = 60;
        break;
      case 'h':
        unit = 3600;
        break;
      case 'd':
        unit = 86400;
        break;
      default:
        return refuse(text, kDurationAdvice);
    }
    rest.remove_prefix(1);
    if (unit >= previous_unit) return refuse(text, kDurationAdvice);
    previous_unit = unit;
    if (value > kDurationMax.count() / kSecond.count()) return checked_duration(text, value);
    total += value * unit;
  }
  return checked_duration(text, total);
}

// "[D-]H[:M[:S]]" and "M[:S]", as Slurm reads them.
Result<Duration> parse_colon_duration(std::string_view text) {
  std::string_view rest = text;
  int64_t days = 0;
  bool has_days = false;
  if (const size_t dash = rest.find('-'); dash != std::string_view::npos) {
    std::string_view head = rest.substr(0, dash);
    if (!take_number(head, &days) || !head.empty()) return refuse(text, kDurationAdvice);
    rest.remove_prefix(dash + 1);
    has_days = true;
  }
  std::vector<int64_t> parts;
  while (true) {
    int64_t value = 0;
    if (!take_number(rest, &value) || parts.size() == 3) return refuse(text, kDurationAdvice);
    parts.push_back(value);
    if (rest.empty()) break;
    if (rest.front() != ':') return refuse(text, kDurationAdvice);
    rest.remove_prefix(1);
  }
  constexpr int64_t kLargest = 100'000'000;
  for (const int64_t part : parts) {
    if (part > kLargest || days > kLargest) return checked_duration(text, INT64_MAX);
  }
  int64_t seconds = 0;
  if (has_days) {
    parts.resize(3);
    seconds = days * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2];
  } else if (parts.size() == 3) {
    seconds = parts[0] * 3600 + parts[1] * 60 + parts[2];
  } else {
    parts.resize(2);
    seconds = parts[0] * 60 + parts[1];
  }
  return checked_duration(text, seconds);
}

struct CivilDay {
  int64_t year;
  int month;
  int day;
};

CivilDay civil_from_days(int64_t days) {
  days += 719468;
  const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const int64_t day_of_era = days - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t shifted_month = (5 * day_of_year + 2) / 153;
  const int day = static_cast<int>(day_of_year - (153 * shifted_month + 2) / 5 + 1);
  const int month = static_cast<int>(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
  return {year_of_era + era * 400 + (month <= 2 ? 1 : 0), month, day};
}

int64_t days_from_civil(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  const int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

// ".5" as 500, if there is a dot; false if no digit, or more than three, come after it.
bool take_thousandths(std::string_view& text, int64_t* thousandths) {
  *thousandths = 0;
  if (text.empty() || text.front() != '.') return true;
  text.remove_prefix(1);
  int64_t place = 100;
  size_t digits = 0;
  for (; !text.empty() && is_digit(text.front()); text.remove_prefix(1), ++digits, place /= 10)
    *thousandths += (text.front() - '0') * place;
  return digits >= 1 && digits <= 3;
}

// Reads exactly `digits` digits; false otherwise.
bool take_digits(std::string_view& text, size_t digits, int64_t* value) {
  if (text.size() < digits) return false;
  *value = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (!is_digit(text[i])) return false;
    *value = *value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return true;
}

bool take_char(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

Result<MiB> parse_memory(std::string_view text) {
  std::string_view rest = text;
  int64_t value = 0;
  int64_t thousandths = 0;
  if (!take_number(rest, &value) || !take_thousandths(rest, &thousandths)) return refuse(text, kMemoryAdvice);
  if (rest == "KB" || rest == "MB" || rest == "GB" || rest == "TB") {
    const std::string unit(1, rest.front());
    return refuse(text, "is ambiguous between powers of 10 and of 2: write " + unit + " for binary units");
  }
  if (rest.size() >= 2 && rest.substr(1) == "iB") rest = rest.substr(0, 1);
  if (rest.size() == 2 && rest[1] == 'i') rest = rest.substr(0, 1);
  if (rest.size() > 1) return refuse(text, kMemoryAdvice);
  constexpr int64_t kKibibytesMax = kMemoryMax.count() << 10;
  int64_t unit = 0;  // KiB
  switch (rest.empty() ? 'M' : rest.front()) {
    case 'K':
    case 'k':
      unit = 1;
      break;
    case 'M':
    case 'm':
      unit = int64_t{1} << 10;
      break;
    case 'G':
    case 'g':
      unit = int64_t{1} << 20;
      break;
    case 'T':
    case 't':
      unit = int64_t{1} << 30;
      break;
    default:
      return refuse(text, kMemoryAdvice);
  }
  if (value > kKibibytesMax / unit) return refuse(text, "is more than 1024T, the most that can be asked for");
  const int64_t kibibytes = value * unit + (thousandths * unit + 999) / 1000;
  const int64_t mebibytes = (kibibytes + 1023) / 1024;
  if (mebibytes > kMemoryMax.count())
    return refuse(text, "is more than 1024T, the most that can be asked for");
  return MiB(mebibytes);
}

std::string format_memory(MiB memory) {
  const int64_t count = memory.count();
  if (count != 0 && count % (1 << 20) == 0) return std::to_string(count >> 20) + "T";
  if (count != 0 && count % (1 << 10) == 0) return std::to_string(count >> 10) + "G";
  return std::to_string(count) + "M";
}

Result<Duration> parse_duration(std::string_view text) {
  if (text.empty() || !is_digit(text.front())) return refuse(text, kDurationAdvice);
  if (text.find_first_of(":-") != std::string_view::npos) return parse_colon_duration(text);
  std::string_view rest = text;
  int64_t minutes = 0;
  if (!take_number(rest, &minutes)) return refuse(text, kDurationAdvice);
  if (!rest.empty()) return parse_unit_duration(text);
  if (minutes > kDurationMax.count() / kMinute.count()) return checked_duration(text, INT64_MAX);
  return checked_duration(text, minutes * 60);
}

std::string format_duration(Duration duration) {
  if (duration < Duration{}) return "-" + format_duration(-duration);
  const int64_t milliseconds = duration.count() / kMillisecond.count();
  if (milliseconds < 10'000 && milliseconds % 1000 != 0) return std::to_string(milliseconds) + "ms";
  const int64_t seconds = milliseconds / 1000;
  struct Unit {
    int64_t seconds;
    const char* name;
  };
  constexpr Unit kUnits[] = {{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}};
  for (size_t i = 0; i < 3; ++i) {
    if (seconds < kUnits[i].seconds) continue;
    const int64_t rest = seconds % kUnits[i].seconds / kUnits[i + 1].seconds;
    std::string out = std::to_string(seconds / kUnits[i].seconds) + kUnits[i].name;
    if (rest != 0) out += (rest < 10 ? "0" : "") + std::to_string(rest) + kUnits[i + 1].name;
    return out;
  }
  return std::to_string(seconds) + "s";
}

Result<int64_t> parse_thousandths(std::string_view text) {
  std::string_view rest = text;
  int64_t whole = 0;
  if (!take_number(rest, &whole) || whole > 1'000'000'000) return refuse(text, kDecimalAdvice);
  int64_t thousandths = 0;
  if (!take_thousandths(rest, &thousandths) || !rest.empty()) return refuse(text, kDecimalAdvice);
  return whole * 1000 + thousandths;
}

std::string format_thousandths(int64_t thousandths) {
  std::string out = std::to_string(thousandths / 1000);
  const int64_t rest = thousandths % 1000;
  if (rest == 0) return out;
  std::string places = std::to_string(1000 + rest).substr(1);
  while (places.back() == '0') places.pop_back();
  return out + "." + places;
}

Result<int64_t> parse_integer(std::string_view text, int64_t low, int64_t high, std::string_view what) {
  std::string_view rest = text;
  int64_t value = 0;
  if (!take_number(rest, &value) || !rest.empty() || value < low || value > high) {
    return refuse(text, "cannot be read: write " + std::string(what) + " as a whole number from " +
                            std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

std::string format_time(Time time) {
  constexpr int64_t kBillion = 1'000'000'000;
  int64_t seconds = time.nanoseconds() / kBillion;
  int64_t nanoseconds = time.nanoseconds() % kBillion;
  if (nanoseconds < 0) {
    nanoseconds += kBillion;
    --seconds;
  }
  int64_t days = seconds / 86400;
  int64_t second_of_day = seconds % 86400;
  if (second_of_day < 0) {
    second_of_day += 86400;
    --days;
  }
  const CivilDay day = civil_from_days(days);
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%04lld-%02d-%02dT%02lld:%02lld:%02lld.%09lldZ",
                static_cast<long long>(day.year), day.month, day.day,
                static_cast<long long>(second_of_day / 3600), static_cast<long long>(second_of_day / 60 % 60),
                static_cast<long long>(second_of_day % 60), static_cast<long long>(nanoseconds));
  return buffer;
}

Result<Time> parse_time(std::string_view text) {
  constexpr std::string_view kAdvice = "is not a time: write UTC like 2026-11-30T18:00:00Z";
  std::string_view rest = text;
  int64_t year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  const bool shaped = take_digits(rest, 4, &year) && take_char(rest, '-') && take_digits(rest, 2, &month) &&
                      take_char(rest, '-') && take_digits(rest, 2, &day) && take_char(rest, 'T') &&
                      take_digits(rest, 2, &hour) && take_char(rest, ':') && take_digits(rest, 2, &minute) &&
                      take_char(rest, ':') && take_digits(rest, 2, &second);
  if (!shaped || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59 ||
      year < 1970 || year > 2200) {
    return refuse(text, kAdvice);
  }
  int64_t nanoseconds = 0;
  if (take_char(rest, '.')) {
    int64_t place = 100'000'000;
    size_t digits = 0;
    while (!rest.empty() && is_digit(rest.front()) && digits < 9) {
      nanoseconds += (rest.front() - '0') * place;
      place /= 10;
      rest.remove_prefix(1);
      ++digits;
    }
    if (digits == 0) return refuse(text, kAdvice);
  }
  if (rest != "Z") return refuse(text, kAdvice);
  const int64_t days = days_from_civil(year, month, day);
  const CivilDay back = civil_from_days(days);
  if (back.day != day || back.month != month) return refuse(text, kAdvice);
  return Time((days * 86400 + hour * 3600 + minute * 60 + second) * 1'000'000'000 + nanoseconds);
}

}  // namespace tranche
