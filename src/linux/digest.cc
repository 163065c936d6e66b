#include "linux/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <vector>

#include "base/assert.h"

namespace tranche {

namespace {

std::string to_hex(const unsigned char* bytes, size_t size) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * size);
  for (size_t i = 0; i < size; ++i) {
    text += kHex[bytes[i] >> 4];
    text += kHex[bytes[i] & 15];
  }
  return text;
}

const unsigned char* as_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  ::SHA256(as_bytes(bytes), bytes.size(), digest);
  return to_hex(digest, sizeof digest);
}

std::string hmac_sha256_hex(std::string_view key, std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  const auto* made = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), as_bytes(bytes),
                            bytes.size(), digest, &size);
  TRANCHE_ASSERT(made != nullptr);
  return to_hex(digest, size);
}

std::string random_hex(size_t bytes) {
  std::vector<unsigned char> random(bytes);
  const ssize_t got = ::getrandom(random.data(), bytes, 0);
  TRANCHE_ASSERT(got == static_cast<ssize_t>(bytes));  // up to 256 bytes are never cut short
  return to_hex(random.data(), bytes);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tranche
