// What HTTP client and server have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tranche {

struct HttpHeader {
  std::string name;
  std::string value;
};
using HttpHeaders = std::vector<HttpHeader>;

// ASCII letters compare alike whatever their case.
bool equals_ignoring_case(std::string_view a, std::string_view b);

// The first header of that name in any case, or null.
const std::string* find_header(const HttpHeaders& headers, std::string_view name);

// Whether the comma-separated list in `value` holds `token` in any case ("keep-alive, Upgrade" holds
// "upgrade").
bool list_has_token(std::string_view value, std::string_view token);

// Whether a name (token characters) and a value (no control characters) may stand in a message head.
bool is_valid_header(const HttpHeader& header);

}  // namespace tranche
