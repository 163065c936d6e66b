// Where time comes from. Only composition roots and adapters read a real clock; everything else is given
// one of these, or is told the time.
#pragma once

#include "base/units.h"

namespace tranche {

class Clock {
 public:
  virtual ~Clock() = default;
  // Time since an arbitrary start that never steps and goes on while the machine sleeps (CLOCK_BOOTTIME).
  virtual Duration since_boot() const = 0;
  // What a calendar says now; may step either way.
  virtual Time wall() const = 0;
};

// A clock that stands still until it is told to move: for tests and simulation.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Time wall) : wall_(wall) {}

  Duration since_boot() const override { return since_boot_; }
  Time wall() const override { return wall_; }

  void advance(Duration by) {
    since_boot_ += by;
    wall_ = wall_ + by;
  }
  void step_wall(Duration by) { wall_ = wall_ + by; }

 private:
  Duration since_boot_;
  Time wall_;
};

// Event time (design section 2): max(last + 1, wall time at start + boot time elapsed), so strictly
// increasing and indifferent to steps of the wall clock.
class EventClock {
 public:
  // `last` is the newest time in the log that is continued, or unset for a new log.
  EventClock(const Clock& clock, Time last)
      : clock_(clock), wall_at_start_(clock.wall()), boot_at_start_(clock.since_boot()), last_(last) {}

  // The time for the next event; each call gives a later one.
  Time next() {
    last_ = peek();
    return last_;
  }
  // What next() would give now.
  Time peek() const {
    const Time now = wall_at_start_ + (clock_.since_boot() - boot_at_start_);
    return now > last_ ? now : last_ + kNanosecond;
  }

  // The instant of since_boot() at which event time reaches `time`: what a timer is armed with.
  Duration boot_time_of(Time time) const { return boot_at_start_ + (time - wall_at_start_); }

 private:
  const Clock& clock_;
  Time wall_at_start_;
  Duration boot_at_start_;
  Time last_;
};

}  // namespace tranche
