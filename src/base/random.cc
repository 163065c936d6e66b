#include "base/random.h"

namespace tranche {
namespace {

uint64_t rotate_left(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) word = splitmix64(seed);
}

uint64_t Random::next() {
  const uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = rotate_left(state_[3], 45);
  return result;
}

uint64_t Random::below(uint64_t bound) {
  TRANCHE_ASSERT(bound != 0);
  const uint64_t reject_below = (0 - bound) % bound;
  uint64_t value = next();
  while (value < reject_below) value = next();
  return value % bound;
}

int64_t Random::between(int64_t low, int64_t high) {
  TRANCHE_ASSERT(low <= high);
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t offset = span == 0 ? next() : below(span);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
}

bool Random::chance(uint64_t numerator, uint64_t denominator) { return below(denominator) < numerator; }

int64_t Random::exponential(int64_t mean) {
  // A geometric count of 1/64 steps of the mean: P(stop) = 1/64 at each, so the mean is 64 steps. Integers
  // only, hence equal on every processor.
  int64_t steps = 0;
  while (steps < 64 * 40 && !chance(1, 64)) ++steps;
  return mean * steps / 64 + between(0, mean / 64);
}

}  // namespace tranche
