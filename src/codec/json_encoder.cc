#include "codec/json_encoder.h"

#include "base/utf8.h"
#include "codec/duration_text.h"

namespace tranche::json {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool needs_no_care(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

void append_escaped(std::string& output, char c) {
  switch (c) {
    case '"':
      output += "\\\"";
      return;
    case '\\':
      output += "\\\\";
      return;
    case '\n':
      output += "\\n";
      return;
    case '\t':
      output += "\\t";
      return;
    case '\r':
      output += "\\r";
      return;
    default:
      break;
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
  encoder.text(format_exact_duration(value));
}

void put_value(Encoder& encoder, const uint64_t& value, const Hex64&) {
  constexpr char kDigits[] = "0123456789abcdef";
  char text[16];
  for (int i = 0; i < 16; ++i) text[i] = kDigits[(value >> (60 - 4 * i)) & 15];
  encoder.text(std::string_view(text, sizeof text));
}

}  // namespace detail
}  // namespace tranche::json
