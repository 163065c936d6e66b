// Text on its way to a terminal. Whatever came from other people (names, reasons, log paths) or from the
// server passes `printable`, so that nobody can move another's cursor, retitle a window or forge a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace tranche::cli {

// `text` with control characters, invalid UTF-8 and direction overrides replaced by escapes: "a\nb" becomes
// a\nb on one line, ESC becomes \x1b.
std::string printable(std::string_view text);

// The same, appended.
void append_printable(std::string& out, std::string_view text);

// The same within single quotes, for names in sentences.
std::string in_quotes(std::string_view text);

// JSON with the same characters as \u escapes, which mean the same there; line ends stay.
std::string safe_json(std::string_view document);

// Terminal cells that printable text takes: 2 for East Asian wide characters and emoji, 0 for combining
// marks.
size_t display_width(std::string_view text);

// The longest beginning of at most `cells` cells; what is cut ends in "…" (if cells > 0).
std::string fit_width(std::string_view text, size_t cells);

std::vector<std::string> split(std::string_view text, char separator);

// Words as a shell would read them from one line: single and double quotes, backslash, # starts a comment at
// a word's beginning. An unclosed quote ends at the end of the line and sets `unclosed`.
std::vector<std::string> shell_words(std::string_view line, bool& unclosed);

}  // namespace tranche::cli
