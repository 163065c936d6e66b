#include "coverage.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace {

constexpr size_t kPlaces = size_t{1} << 17;
uint8_t taken[kPlaces];
uint8_t known[kPlaces];  // a bit for each order of magnitude
uintptr_t last_place;
size_t places_known;

}  // namespace

extern "C" __attribute__((no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  uint8_t& count = taken[(place ^ last_place) % kPlaces];
  if (count != UINT8_MAX) ++count;
  last_place = place << 3;
}

namespace tranche::fuzz {

void forget_branches() {
  std::memset(taken, 0, sizeof taken);
  last_place = 0;
}

__attribute__((no_sanitize("address", "undefined"))) bool took_new_branches() {
  bool is_new = false;
  for (size_t i = 0; i < kPlaces; i += sizeof(uint64_t)) {
    uint64_t eight = 0;
    std::memcpy(&eight, taken + i, sizeof eight);
    if (eight == 0) continue;
    for (size_t j = i; j < i + sizeof eight; ++j) {
      if (taken[j] == 0) continue;
      const auto magnitude = static_cast<uint8_t>(1U << (std::bit_width(taken[j]) - 1));
      if ((known[j] & magnitude) != 0) continue;
      places_known += known[j] == 0 ? 1 : 0;
      known[j] = static_cast<uint8_t>(known[j] | magnitude);
      is_new = true;
    }
  }
  return is_new;
}

size_t branches_known() { return places_known; }

}  // namespace tranche::fuzz
