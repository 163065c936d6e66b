#include "linux/log_throttle.h"

#include <utility>

namespace tranche {

uint64_t LogThrottle::happened(int64_t owner, Duration now) {
  const auto [entry, is_new] = owners_.try_emplace(owner);
  Owner& found = entry->second;
  ++found.kept_back;
  if (!is_new && now - found.told < kInterval) return 0;
  found.told = now;
  return std::exchange(found.kept_back, 0);
}

void LogThrottle::tell_overdue(Duration now, const std::function<void(int64_t, uint64_t)>& tell) {
  for (auto entry = owners_.begin(); entry != owners_.end();) {
    Owner& owner = entry->second;
    if (now - owner.told < kInterval) {
      ++entry;
    } else if (owner.kept_back == 0) {
      entry = owners_.erase(entry);
    } else {
      owner.told = now;
      tell(entry->first, std::exchange(owner.kept_back, 0));
      ++entry;
    }
  }
}

}  // namespace tranche
