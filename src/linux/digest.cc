#include "linux/digest.h"

#include <openssl/sha.h>

namespace tranche {

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * sizeof digest);
  for (const unsigned char byte : digest) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

}  // namespace tranche
