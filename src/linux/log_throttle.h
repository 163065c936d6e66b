// What others can cause without end is logged at most once in kInterval for each of them, with a count, so
// that nobody fills the disk. Not safe between threads. It holds who caused something within the last
// interval, if tell_overdue() is called about that often.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "base/units.h"

namespace tranche {

class LogThrottle {
 public:
  static constexpr Duration kInterval = kSecond;

  // It happened, by `owner`. How many times since it was last told, this one included, or 0: say nothing now.
  uint64_t happened(int64_t owner, Duration now);

  // Tells what has been kept back for an interval, and forgets who has been quiet for one.
  void tell_overdue(Duration now, const std::function<void(int64_t owner, uint64_t count)>& tell);

  // Nothing waits to be told or forgotten.
  bool is_empty() const { return owners_.empty(); }

 private:
  struct Owner {
    Duration told;
    uint64_t kept_back = 0;
  };
  std::map<int64_t, Owner> owners_;
};

}  // namespace tranche
