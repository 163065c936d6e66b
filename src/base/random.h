// Random numbers that are the same on every machine: our own generator and our own distributions, since
// the standard library's distributions differ between implementations.
#pragma once

#include <cstdint>

#include "base/assert.h"

namespace tranche {

// xoshiro256** by Blackman and Vigna (public domain), seeded through splitmix64. Not for secrets.
class Random {
 public:
  explicit Random(uint64_t seed);

  // Uniform over all 64-bit values.
  uint64_t next();
  // Uniform over [0, bound), without modulo bias. `bound` is not 0.
  uint64_t below(uint64_t bound);
  // Uniform over [low, high], both included.
  int64_t between(int64_t low, int64_t high);
  // True in `numerator` of `denominator` cases.
  bool chance(uint64_t numerator, uint64_t denominator);
  // Exponential with the given mean, in integers: for arrivals and durations of tests and traces.
  int64_t exponential(int64_t mean);

 private:
  uint64_t state_[4];
};

}  // namespace tranche
