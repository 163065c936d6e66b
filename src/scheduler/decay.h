// Decayed past use in integers: use at time s counts 2^-((now - s) / half_life) at `now`.
//
// Instead of shrinking every queue's sum at every event, new use is scaled *up* by 2^((s - epoch) /
// half_life) and the sums are left alone. The order of two sums then cannot change while nothing is used
// (property P15), and a constant rate r over [a, b] adds exactly r * (growth(b) - growth(a)): sums of
// children and of their parent agree to the last bit.
#pragma once

#include "base/units.h"
#include "scheduler/wide.h"

namespace tranche::scheduler {

// The epoch moves up by this many half-lives at a time: 55 bits of time + 16 + 40 bits of rate fit 128.
inline constexpr int64_t kHopHalfLives = 16;

class UsageClock {
 public:
  // A zero half-life: past use does not count, growth stays zero.
  void restart(Time epoch, Duration half_life) {
    epoch_ = epoch;
    half_life_ = half_life;
  }

  // Integral of the scale from -infinity to `now`, in scaled nanoseconds; rises strictly with `now`.
  Wide growth(Time now) const;
  // A scaled sum (rate x growth) as it counts at `now`, in the rate's unit times nanoseconds.
  Wide decayed(Wide sum, Time now) const;
  // Half-lives by which the epoch should move up so that sums stay small; zero: not yet. growth() must not
  // be asked more than kHopHalfLives beyond the epoch.
  int64_t overdue(Time now) const;
  // Moves the epoch; the caller shifts all sums right by `half_lives` (to zero beyond 127).
  void advance(int64_t half_lives) { epoch_ = epoch_ + half_life_ * half_lives; }

  Time epoch() const { return epoch_; }
  Duration half_life() const { return half_life_; }

 private:
  Time epoch_;
  Duration half_life_;
};

}  // namespace tranche::scheduler
