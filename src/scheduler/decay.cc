#include "scheduler/decay.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tranche::scheduler {
namespace {

constexpr int kFractionBits = 62;    // of the table: 1.0 is 2^62, so that 2.0 fits 64 bits
constexpr std::size_t kSteps = 256;  // linear in between: relative error below 1e-6, and monotone
constexpr Wide kReciprocalOfLn2 = 6'196'328'019;  // 1 / ln 2 in 2^-32

constexpr Wide square_root(Wide value) {
  Wide root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const Wide tried = root | (Wide{1} << bit);
    if (tried * tried <= value) root = tried;
  }
  return root;
}

// table[k] = 2^(k / 256), from eight square roots of 2: no library function, so the same bits everywhere.
constexpr std::array<uint64_t, kSteps + 1> make_table() {
  Wide root = Wide{2} << kFractionBits;
  for (int i = 0; i < 8; ++i) root = square_root(root << kFractionBits);
  std::array<uint64_t, kSteps + 1> table{};
  Wide power = Wide{1} << kFractionBits;
  for (std::size_t k = 0; k < kSteps; ++k) {
    table[k] = static_cast<uint64_t>(power);
    power = (power * root) >> kFractionBits;
  }
  table[kSteps] = uint64_t{1} << (kFractionBits + 1);
  return table;
}

constexpr std::array<uint64_t, kSteps + 1> kPowersOfTwo = make_table();

// 2^(part / whole) for 0 <= part < whole, in 2^-62.
Wide power_of_two(int64_t part, int64_t whole) {
  const Wide fraction = (wide(part) << 40) / wide(whole);  // in 2^-40
  const std::size_t step = static_cast<std::size_t>(fraction >> 32);
  const Wide rest = fraction & 0xffffffff;
  const Wide low = kPowersOfTwo[step];
  return low + (((Wide{kPowersOfTwo[step + 1]} - low) * rest) >> 32);
}

}  // namespace

Wide UsageClock::growth(Time now) const {
  if (half_life_.count() <= 0) return 0;
  const int64_t elapsed = (now - epoch_).count();
  const Wide scale = (wide(half_life_.count()) * kReciprocalOfLn2) >> 32;
  const Wide mantissa = power_of_two(elapsed % half_life_.count(), half_life_.count());
  return ((scale * mantissa) >> kFractionBits) << (elapsed / half_life_.count());
}

Wide UsageClock::decayed(Wide sum, Time now) const {
  if (half_life_.count() <= 0) return 0;
  const int64_t elapsed = (now - epoch_).count();
  const int64_t halvings = elapsed / half_life_.count();
  if (halvings > 127) return 0;
  const Wide mantissa = power_of_two(elapsed % half_life_.count(), half_life_.count());
  // Half of the mantissa's bits before the division and half after: the sum may have 110 bits.
  return ((sum >> halvings) / (mantissa >> 31)) << 31;
}

int64_t UsageClock::overdue(Time now) const {
  if (half_life_.count() <= 0) return 0;
  const int64_t halvings = (now - epoch_).count() / half_life_.count();
  return halvings >= kHopHalfLives ? halvings : 0;
}

}  // namespace tranche::scheduler
