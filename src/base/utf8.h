// UTF-8 as RFC 3629 has it (no overlong forms, no surrogates, nothing past U+10FFFF), and which of its
// characters a person can see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tranche {

struct Utf8Character {
  uint32_t point = 0;  // of an invalid one: its byte
  size_t size = 1;     // bytes; an invalid one is a single byte
  bool is_valid = false;
};

// The character at the front of `text`, which is not empty.
Utf8Character first_character(std::string_view text);

// The length of the valid sequence at the front of `text` (not empty), or 0.
size_t utf8_length(std::string_view text);

bool is_valid_utf8(std::string_view text);

// False for what acts on a terminal (the controls C0, DEL and C1; U+009B begins an escape sequence) and for
// what hides characters or changes their order, so that one name can look like another (zero-width marks,
// direction overrides, tags). Unassigned characters count as printable.
bool is_printable(uint32_t point);

// Valid UTF-8 that is_printable throughout.
bool is_printable_text(std::string_view text);

// `text` without what is not printable, cut to at most `bytes_max` between characters.
std::string printable_part(std::string_view text, size_t bytes_max);

}  // namespace tranche
