#include "base/utf8.h"

#include <algorithm>
#include <iterator>

namespace tranche {
namespace {

struct PointRange {
  uint32_t first;
  uint32_t last;
};

// Unicode 15: the controls (Cc), and of the format characters (Cf) and separators (Zl, Zp) those that are
// invisible or change the order of others.
constexpr PointRange kNotPrintable[] = {{0x00, 0x1F},     {0x7F, 0x9F},      {0xAD, 0xAD},
                                        {0x61C, 0x61C},   {0x180E, 0x180E},  {0x200B, 0x200F},
                                        {0x2028, 0x202E}, {0x2060, 0x206F},  {0xFEFF, 0xFEFF},
                                        {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};

}  // namespace

// Unicode 15, table 3-7: well-formed sequences.
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

Utf8Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t size = utf8_length(text);
  if (size <= 1) return {byte(0), 1, size == 1};
  uint32_t point = byte(0) & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) point = point << 6 | (byte(i) & 0x3FU);
  return {point, size, true};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool is_printable(uint32_t point) {
  if (point < 0x7F) return point >= 0x20;
  return std::none_of(std::begin(kNotPrintable), std::end(kNotPrintable),
                      [&](const PointRange& range) { return point >= range.first && point <= range.last; });
}

bool is_printable_text(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    if (!character.is_valid || !is_printable(character.point)) return false;
    text.remove_prefix(character.size);
  }
  return true;
}

std::string printable_part(std::string_view text, size_t bytes_max) {
  std::string part;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const bool is_kept = character.is_valid && is_printable(character.point);
    if (is_kept && part.size() + character.size > bytes_max) break;
    if (is_kept) part += text.substr(0, character.size);
    text.remove_prefix(character.size);
  }
  return part;
}

}  // namespace tranche
