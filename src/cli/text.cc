#include "cli/text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace tranche::cli {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// `ranges` ascend.
bool contains(std::span<const Range> ranges, uint32_t point) {
  if (point < ranges.front().first) return false;  // nearly everything
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), point,
                                      [](uint32_t value, const Range& range) { return value < range.first; });
  return point <= std::prev(after)->last;
}

// Unicode's general categories Mn and Me, the common blocks.
constexpr Range kCombining[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},
                                {0x64B, 0x65F},   {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF},
                                {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
// East_Asian_Width W and F, and emoji shown as pictures.
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0x33FF},  {0x3400, 0x4DBF},
                           {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},
                           {0xFE30, 0xFE4F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F},
                           {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

size_t character_width(uint32_t point) {
  if (contains(kCombining, point)) return 0;
  return contains(kWide, point) ? 2 : 1;
}

void append_byte_escape(std::string& out, unsigned char byte) {
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\x";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

void append_json_escape(std::string& out, uint32_t point) {
  if (point > 0xFFFF) {
    const uint32_t rest = point - 0x10000;
    append_json_escape(out, 0xD800 + (rest >> 10));
    point = 0xDC00 + (rest & 0x3FF);
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[point >> shift & 15];
}

void append_character(std::string& out, std::string_view bytes, const Utf8Character& character) {
  if (character.point == '\n' && character.is_valid) {
    out += "\\n";
  } else if (character.point == '\t' && character.is_valid) {
    out += "\\t";
  } else if (!character.is_valid || !is_printable(character.point)) {
    for (const char byte : bytes) append_byte_escape(out, static_cast<unsigned char>(byte));
  } else {
    out += bytes;
  }
}

// What nearly all text is: a character a byte, a cell each, nothing to escape.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

void append_printable(std::string& out, std::string_view text) {
  if (is_plain(text)) {
    out += text;
    return;
  }
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    append_character(out, text.substr(0, character.size), character);
    text.remove_prefix(character.size);
  }
}

std::string printable(std::string_view text) {
  std::string out;
  append_printable(out, text);
  return out;
}

std::string in_quotes(std::string_view text) {
  // Long input (a whole file given as a name) would bury the sentence.
  constexpr size_t kQuotedMax = 80;
  const std::string shown = fit_width(printable(text), kQuotedMax);
  return "'" + shown + "'";
}

std::string safe_json(std::string_view document) {
  std::string out;
  out.reserve(document.size());
  while (!document.empty()) {
    const Utf8Character character = first_character(document);
    const bool layout = character.point == '\n' || character.point == '\t';
    if (character.is_valid && !layout && !is_printable(character.point)) {
      append_json_escape(out, character.point);
    } else {
      out += document.substr(0, character.size);
    }
    document.remove_prefix(character.size);
  }
  return out;
}

size_t display_width(std::string_view text) {
  if (is_plain(text)) return text.size();
  size_t width = 0;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    width += character_width(character.point);
    text.remove_prefix(character.size);
  }
  return width;
}

std::string fit_width(std::string_view text, size_t cells) {
  if (display_width(text) <= cells) return std::string(text);
  if (cells == 0) return {};
  size_t width = 0;
  size_t size = 0;
  while (size < text.size()) {
    const Utf8Character character = first_character(text.substr(size));
    const size_t next = width + character_width(character.point);
    if (next > cells - 1) break;
    width = next;
    size += character.size;
  }
  return std::string(text.substr(0, size)) + "…";
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string> shell_words(std::string_view line, bool& unclosed) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < line.size();
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (escapes && (quote == 0 || line[i + 1] == '"' || line[i + 1] == '\\')) {
      word += line[++i];
      in_word = true;
    } else if (quote != 0) {
      word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else if (c == '#' && !in_word) {
      break;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (in_word) words.push_back(word);
  unclosed = quote != 0;
  return words;
}

}  // namespace tranche::cli
