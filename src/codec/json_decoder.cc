#include "codec/json_decoder.h"

#include <algorithm>

#include "base/quantity_text.h"
#include "codec/duration_text.h"

namespace tranche::json {
bool refuse_unknown(Decoder& decoder, Value object, std::span<const std::string_view> known) {
  Value child = object.first();
  for (uint32_t i = 0; i < object.size(); ++i, child = child.next()) {
    if (std::find(known.begin(), known.end(), child.key()) != known.end()) continue;
    return decoder.refuse("the field " + shown(child.key()) + " is not known" +
                          nearest_name_hint(child.key(), known) +
                          std::string(decoder.strictness().unknown_advice));
  }
  return true;
}

namespace detail {

bool read_bool(Decoder& decoder, Value value, bool& out) {
  if (value.kind() != Kind::boolean) return decoder.refuse("must be true or false, not " + value.describe());
  out = value.flag();
  return true;
}

bool read_integer(Decoder& decoder, Value value, int64_t low, int64_t high, int64_t* out) {
  if (value.integer(low, high, out)) return true;
  return decoder.refuse("must be a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
                        ", not " + value.describe());
}

bool read_text(Decoder& decoder, Value value, std::string& out, const Text& rule) {
  if (value.kind() != Kind::text) return decoder.refuse("must be text, not " + value.describe());
  const std::string_view text = value.text();
  if (text.size() > rule.bytes_max) {
    return decoder.refuse("must be at most " + std::to_string(rule.bytes_max) + " bytes long, not " +
                          std::to_string(text.size()));
  }
  if (text.size() < rule.bytes_min) return decoder.refuse("must not be empty");
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return decoder.refuse("must not hold a NUL character");
    if (rule.content == Content::line && (byte < 0x20 || byte == 0x7f)) {
      return decoder.refuse("must be one line without control characters, not " + value.describe());
    }
  }
  out = text;
  return true;
}

bool read_list_shape(Decoder& decoder, Value value, size_t count_max) {
  if (value.kind() != Kind::array) return decoder.refuse("must be a list, not " + value.describe());
  if (value.size() <= count_max) return true;
  return decoder.refuse("must have at most " + std::to_string(count_max) + " elements, not " +
                        std::to_string(value.size()));
}

bool refuse_choice(Decoder& decoder, Value value, std::span<const std::string_view> choices) {
  std::string problem = "must be one of";
  for (size_t i = 0; i < choices.size(); ++i) {
    problem += (i == 0 ? " " : ", ");
    problem += choices[i];
  }
  return decoder.refuse(problem + ", not " + value.describe());
}

bool read_value(Decoder& decoder, Value value, std::vector<std::pair<std::string, std::string>>& out,
                const Map& rule) {
  if (value.kind() != Kind::object) return decoder.refuse("must be an object, not " + value.describe());
  if (value.size() > rule.count_max) {
    return decoder.refuse("must have at most " + std::to_string(rule.count_max) + " names, not " +
                          std::to_string(value.size()));
  }
  out.clear();
  out.reserve(value.size());
  Value child = value.first();
  for (uint32_t i = 0; i < value.size(); ++i, child = child.next()) {
    const std::string_view name = child.key();
    const bool bad_name = name.empty() || name.size() > rule.name.bytes_max ||
                          name.find('=') != std::string_view::npos ||
                          name.find('\0') != std::string_view::npos;
    if (bad_name)
      return decoder.refuse("the name " + shown(name) +
                            " cannot be used: it is empty, too long or has a '=' or NUL");
    std::string text;
    if (!read_text(decoder, child, text, rule.value)) return decoder.in_member(shown(name));
    out.emplace_back(name, std::move(text));
  }
  std::sort(out.begin(), out.end());
  return true;
}

bool read_value(Decoder& decoder, Value value, Time& out, const Timestamp&) {
  const bool integers = decoder.strictness().times == TimeForms::text_or_nanoseconds;
  if (value.kind() == Kind::text) {
    if (value.text() == "never") {
      out = kNever;
      return true;
    }
    auto parsed = parse_time(value.text());
    if (!parsed) return decoder.refuse(parsed.error().message());
    out = *parsed;
    return true;
  }
  int64_t nanoseconds = 0;
  if (integers && value.integer(0, limits::kTimeMax, &nanoseconds)) {
    out = Time(nanoseconds);
    return true;
  }
  return decoder.refuse(std::string("must be a time like \"2026-11-30T18:00:00Z\"") +
                        (integers ? " or nanoseconds since 1970" : "") + ", not " + value.describe());
}

bool read_value(Decoder& decoder, Value value, Duration& out, const DurationText& rule) {
  if (value.kind() != Kind::text) {
    return decoder.refuse("must be a duration with its unit, like \"90s\" or \"2h\", not " +
                          value.describe());
  }
  const auto parsed = parse_exact_duration(value.text());
  if (!parsed) return decoder.refuse(parsed.error().message());
  const int64_t nanoseconds = parsed->count();
  if (nanoseconds < rule.low || nanoseconds > rule.high) {
    return decoder.refuse("must be from " + format_duration(Duration(rule.low)) + " to " +
                          format_duration(Duration(rule.high)) + ", not " + value.describe());
  }
  out = Duration(nanoseconds);
  return true;
}

bool read_value(Decoder& decoder, Value value, uint64_t& out, const Hex64&) {
  const std::string_view text = value.kind() == Kind::text ? value.text() : std::string_view();
  uint64_t number = 0;
  bool good = text.size() == 16;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    good = good && (digit || (c >= 'a' && c <= 'f'));
    number = (number << 4) | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  if (!good) return decoder.refuse("must be 16 hex digits, not " + value.describe());
  out = number;
  return true;
}

}  // namespace detail
}  // namespace tranche::json
