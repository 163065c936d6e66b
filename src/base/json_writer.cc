#include "base/json_writer.h"

#include <charconv>
#include <cmath>

#include "base/assert.h"
#include "base/utf8.h"

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

// Beyond U+FFFF as two surrogates (RFC 8259, section 7).
void append_point_escape(std::string& output, uint32_t point) {
  if (point > 0xFFFF) {
    append_point_escape(output, 0xD800 + ((point - 0x10000) >> 10));
    point = 0xDC00 + ((point - 0x10000) & 0x3FF);
  }
  constexpr char kHex[] = "0123456789abcdef";
  output += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) output += kHex[point >> shift & 15];
}

// One character beyond ASCII at the front of `text`; returns how many bytes it has.
size_t append_beyond_ascii(std::string& output, std::string_view text) {
  const Utf8Character character = first_character(text);
  if (!character.is_valid) {
    output += kReplacement;
  } else if (is_printable(character.point)) {
    output += text.substr(0, character.size);
  } else {
    append_point_escape(output, character.point);
  }
  return character.size;
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
    } else {
      i += append_beyond_ascii(output, text.substr(i));
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
