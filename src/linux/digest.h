// Cryptographic digests.
#pragma once

#include <string>
#include <string_view>

namespace tranche {

// SHA-256 of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace tranche
