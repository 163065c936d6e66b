#include "base/json_writer.h"

#include <charconv>
#include <cmath>

#include "base/assert.h"

namespace tranche {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_plain(unsigned char byte) { return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\'; }

void append_escaped(std::string& output, unsigned char byte) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (byte) {
    case '"':
      output += "\\\"";
      return;
    case '\\':
      output += "\\\\";
      return;
    case '\n':
      output += "\\n";
      return;
    case '\r':
      output += "\\r";
      return;
    case '\t':
      output += "\\t";
      return;
    default:
      output += "\\u00";
      output += kHex[byte >> 4];
      output += kHex[byte & 15];
  }
}

// The length of the well-formed UTF-8 sequence at the start of `text`, or 0 (Unicode 15, table 3-7).
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned lead = byte(0);
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;   // no overlong forms
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;  // no surrogates
    return byte(1) >= low && byte(1) <= high && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;  // nothing above U+10FFFF
    return byte(1) >= low && byte(1) <= high && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

template <class Number>
void append_number(std::string& output, Number number) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  output.append(digits, end);
}

}  // namespace

void append_json_string(std::string& output, std::string_view text) {
  output += '"';
  size_t i = 0;
  while (i < text.size()) {
    const size_t start = i;
    while (i < text.size() && is_plain(static_cast<unsigned char>(text[i]))) ++i;
    output.append(text, start, i - start);
    if (i == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      append_escaped(output, byte);
      ++i;
    } else if (const size_t length = sequence_length(text.substr(i)); length > 0) {
      output.append(text, i, length);
      i += length;
    } else {
      output += kReplacement;
      ++i;
    }
  }
  output += '"';
}

void JsonWriter::before_value() {
  const bool in_object = depth_ > 0 && ((objects_ >> (depth_ - 1)) & 1) != 0;
  TRANCHE_ASSERT(has_key_ == in_object);
  if (needs_comma_ && !has_key_) {
    TRANCHE_ASSERT(depth_ > 0);
    output_ += ',';
  }
  has_key_ = false;
  needs_comma_ = true;
}

void JsonWriter::begin(char opening, bool is_object) {
  before_value();
  TRANCHE_ASSERT(depth_ < kDepthMax);
  const uint64_t bit = uint64_t{1} << depth_;
  objects_ = is_object ? objects_ | bit : objects_ & ~bit;
  ++depth_;
  needs_comma_ = false;
  output_ += opening;
}

void JsonWriter::end(char closing, bool is_object) {
  TRANCHE_ASSERT(depth_ > 0 && !has_key_);
  --depth_;
  TRANCHE_ASSERT((((objects_ >> depth_) & 1) != 0) == is_object);
  needs_comma_ = true;
  output_ += closing;
}

JsonWriter& JsonWriter::begin_object() {
  begin('{', true);
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  end('}', true);
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  begin('[', false);
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  end(']', false);
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  TRANCHE_ASSERT(depth_ > 0 && ((objects_ >> (depth_ - 1)) & 1) != 0 && !has_key_);
  if (needs_comma_) output_ += ',';
  append_json_string(output_, name);
  output_ += ':';
  has_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_json_string(output_, text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  before_value();
  append_number(output_, number);
  return *this;
}

JsonWriter& JsonWriter::null() { return raw("null"); }

JsonWriter& JsonWriter::raw(std::string_view json) {
  before_value();
  output_ += json;
  return *this;
}

JsonWriter& JsonWriter::write_bool(bool flag) { return raw(flag ? "true" : "false"); }

JsonWriter& JsonWriter::write_integer(int64_t number) {
  before_value();
  append_number(output_, number);
  return *this;
}

JsonWriter& JsonWriter::write_integer(uint64_t number) {
  before_value();
  append_number(output_, number);
  return *this;
}

}  // namespace tranche
