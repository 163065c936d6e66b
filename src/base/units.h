// Quantities as integers of one unit each, so that a MiB cannot be added to a milli-GPU.
//
// All decisions are made on these; there is no floating point in the scheduler (design section 2).
#pragma once

#include <compare>
#include <cstdint>

namespace tranche {

// A signed 64-bit count of one unit. Arithmetic is that of integers; overflow is the caller's business
// (every quantity that enters from outside is bounded by the codec).
template <class Unit>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t count) : count_(count) {}

  constexpr int64_t count() const { return count_; }

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return Quantity(-count_); }
  constexpr Quantity& operator+=(Quantity other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    count_ -= other.count_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, int64_t factor) { return Quantity(a.count_ * factor); }
  friend constexpr Quantity operator*(int64_t factor, Quantity a) { return Quantity(a.count_ * factor); }

 private:
  int64_t count_ = 0;
};

using MiB = Quantity<struct MiBUnit>;            // device and host memory
using MilliGpu = Quantity<struct MilliGpuUnit>;  // compute: 1000 is one whole GPU
using MilliCpu = Quantity<struct MilliCpuUnit>;  // host processors: 1000 is one core
using Duration = Quantity<struct DurationUnit>;  // nanoseconds

inline constexpr MilliGpu kWholeGpu{1000};
inline constexpr Duration kNanosecond{1};
inline constexpr Duration kMillisecond{1'000'000};
inline constexpr Duration kSecond{1'000'000'000};
inline constexpr Duration kMinute{60 * kSecond.count()};
inline constexpr Duration kHour{60 * kMinute.count()};
inline constexpr Duration kDay{24 * kHour.count()};

// A point of event time: nanoseconds since the Unix epoch, strictly increasing within one event log
// (design section 2). Zero means "not set".
class Time {
 public:
  constexpr Time() = default;
  constexpr explicit Time(int64_t nanoseconds) : nanoseconds_(nanoseconds) {}

  constexpr int64_t nanoseconds() const { return nanoseconds_; }
  constexpr bool is_set() const { return nanoseconds_ != 0; }

  constexpr auto operator<=>(const Time&) const = default;
  friend constexpr Time operator+(Time t, Duration d) { return Time(t.nanoseconds_ + d.count()); }
  friend constexpr Time operator-(Time t, Duration d) { return Time(t.nanoseconds_ - d.count()); }
  friend constexpr Duration operator-(Time a, Time b) { return Duration(a.nanoseconds_ - b.nanoseconds_); }

 private:
  int64_t nanoseconds_ = 0;
};

inline constexpr Time kNever{INT64_MAX};

}  // namespace tranche
