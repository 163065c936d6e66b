// The time a task has run, which stands still while it is frozen, and when its limit is reached. Pure; times
// are CLOCK_BOOTTIME in ns.
#pragma once

#include <cstdint>

namespace tranche::launcher {

class TimeLimit {
 public:
  void start(uint64_t now) { started_ = now; }
  void set_limit(uint64_t limit) { limit_ = limit; }  // 0: none
  void freeze(uint64_t now) {
    if (frozen_since_ == 0) frozen_since_ = now;
  }
  void thaw(uint64_t now) {
    if (frozen_since_ != 0 && started_ != 0) stood_still_ += now - frozen_since_;
    frozen_since_ = 0;
  }
  // When the limit is reached if nothing changes; 0: never.
  uint64_t deadline() const {
    if (limit_ == 0 || started_ == 0 || frozen_since_ != 0) return 0;
    const uint64_t end = started_ + limit_;
    const uint64_t moved = end + stood_still_;
    return end < started_ || moved < end ? 0 : moved;  // beyond what a clock will ever show
  }

 private:
  uint64_t started_ = 0;
  uint64_t limit_ = 0;
  uint64_t frozen_since_ = 0;
  uint64_t stood_still_ = 0;
};

}  // namespace tranche::launcher
