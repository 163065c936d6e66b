// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing past U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace tranche {

// The length of the valid sequence at the front of `text` (not empty), or 0.
size_t utf8_length(std::string_view text);

}  // namespace tranche
