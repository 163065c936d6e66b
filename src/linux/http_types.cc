#include "linux/http_types.h"

#include <algorithm>

namespace tranche {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// RFC 9110, 5.6.2.
bool is_token_character(char c) {
  const bool is_alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return is_alphanumeric || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_value_character(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
}

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

const std::string* find_header(const HttpHeaders& headers, std::string_view name) {
  for (const HttpHeader& header : headers) {
    if (equals_ignoring_case(header.name, name)) return &header.value;
  }
  return nullptr;
}

bool list_has_token(std::string_view value, std::string_view token) {
  while (!value.empty()) {
    const size_t comma = std::min(value.find(','), value.size());
    if (equals_ignoring_case(trimmed(value.substr(0, comma)), token)) return true;
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  return false;
}

bool is_valid_header(const HttpHeader& header) {
  return !header.name.empty() && std::all_of(header.name.begin(), header.name.end(), is_token_character) &&
         std::all_of(header.value.begin(), header.value.end(), is_value_character);
}

}  // namespace tranche
