// 128-bit intermediates, so that shares are compared exactly (a product of two 64-bit counts fits).
#pragma once

#include <cstdint>

namespace tranche::scheduler {

__extension__ using Wide = unsigned __int128;

constexpr Wide wide(int64_t value) { return static_cast<Wide>(static_cast<uint64_t>(value)); }

// floor(a * b / c) and its ceiling for non-negative a, b and positive c whose result fits.
constexpr int64_t scale_down(int64_t a, int64_t b, int64_t c) {
  return static_cast<int64_t>(wide(a) * wide(b) / wide(c));
}
constexpr int64_t scale_up(int64_t a, int64_t b, int64_t c) {
  return static_cast<int64_t>((wide(a) * wide(b) + wide(c) - 1) / wide(c));
}

}  // namespace tranche::scheduler
