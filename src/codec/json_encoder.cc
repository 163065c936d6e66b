#include "codec/json_encoder.h"

namespace tranche::json {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The length of the valid UTF-8 sequence at the front of `text`, or 0. Overlong forms, surrogates and values
// past U+10FFFF are not valid (RFC 3629).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    if (lead == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

bool needs_no_care(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

void append_escaped(std::string& output, char c) {
  switch (c) {
    case '"': output += "\\\""; return;
    case '\\': output += "\\\\"; return;
    case '\n': output += "\\n"; return;
    case '\t': output += "\\t"; return;
    case '\r': output += "\\r"; return;
    default: break;
  }
  constexpr char kDigits[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  output += "\\u00";
  output += kDigits[byte >> 4];
  output += kDigits[byte & 15];
}

}  // namespace

void append_text(std::string& output, std::string_view text) {
  output += '"';
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && needs_no_care(text[plain])) ++plain;
    output.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    size_t length = 1;
    if (static_cast<unsigned char>(text.front()) < 0x80) {
      append_escaped(output, text.front());
    } else if (const size_t valid = utf8_length(text); valid > 0) {
      output.append(text.substr(0, valid));
      length = valid;
    } else {
      output += kReplacement;
    }
    text.remove_prefix(length);
  }
  output += '"';
}

void append_duration(std::string& output, Duration duration) {
  struct Unit {
    Duration size;
    std::string_view name;
  };
  constexpr Unit kUnits[] = {{kDay, "d"}, {kHour, "h"}, {kMinute, "m"}, {kSecond, "s"}, {kMillisecond, "ms"}};
  const int64_t count = duration.count();
  output += '"';
  if (count == 0) {
    output += "0s\"";
    return;
  }
  for (const Unit& unit : kUnits) {
    if (count % unit.size.count() != 0) continue;
    output += std::to_string(count / unit.size.count());
    output += unit.name;
    output += '"';
    return;
  }
  output += std::to_string(count) + "ns\"";
}

void Encoder::put_time(Time time) {
  if (spelling_ == TimeSpelling::nanoseconds) return integer(time.nanoseconds());
  if (time >= kLastSpelt) return text("never");
  output_ += '"';
  output_ += format_time(time);
  output_ += '"';
}

namespace detail {

void put_value(Encoder& encoder, const std::vector<std::pair<std::string, std::string>>& values, const Map&) {
  std::string name;
  encoder.begin_object();
  bool first = true;
  for (const auto& [key, value] : values) {
    name.clear();
    if (!first) name += ',';
    first = false;
    append_text(name, key);
    name += ':';
    encoder.raw(name);
    encoder.text(value);
  }
  encoder.end_object();
}

void put_value(Encoder& encoder, const Duration& value, const DurationText&) {
  std::string text;
  append_duration(text, value);
  encoder.raw(text);
}

void put_value(Encoder& encoder, const uint64_t& value, const Hex64&) {
  constexpr char kDigits[] = "0123456789abcdef";
  char text[16];
  for (int i = 0; i < 16; ++i) text[i] = kDigits[(value >> (60 - 4 * i)) & 15];
  encoder.text(std::string_view(text, sizeof text));
}

}  // namespace detail
}  // namespace tranche::json
