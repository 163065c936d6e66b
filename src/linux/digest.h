// Cryptographic digests.
#pragma once

#include <string>
#include <string_view>

namespace tranche {

// SHA-256 of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

// HMAC-SHA-256 (RFC 2104), likewise.
std::string hmac_sha256_hex(std::string_view key, std::string_view bytes);

// `bytes` random bytes of the kernel as hexadecimal digits.
std::string random_hex(size_t bytes);

// Whether two texts are equal, in a time that tells nothing but their lengths.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace tranche
