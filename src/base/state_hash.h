// A 64-bit digest of a state, to compare two runs of the same history. Not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

namespace tranche {

class StateHash {
 public:
  void add(uint64_t value) {
    // One round of the mixer of MurmurHash3 (public domain), chained.
    value *= 0x87c37b91114253d5;
    value = (value << 31) | (value >> 33);
    digest_ = (digest_ ^ value) * 5 + 0x52dce729;
    digest_ ^= digest_ >> 33;
    digest_ *= 0xff51afd7ed558ccd;
  }
  void add(int64_t value) { add(static_cast<uint64_t>(value)); }
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  uint64_t digest() const { return digest_; }

 private:
  uint64_t digest_ = 0x7472616e63686501;
};

}  // namespace tranche
