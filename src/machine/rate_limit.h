// How often somebody may do something: a bucket for each key that fills evenly.
//
// Bounded: beyond kKeysMax keys those whose buckets are full again are forgotten, and if that makes no room a
// new key is refused. Threading: none of its own. Units: `now` is time since boot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <unordered_map>

#include "base/units.h"

namespace tranche::machine {

class RateLimit {
 public:
  // `burst` at once, then one each `interval`.
  RateLimit(uint32_t burst, Duration interval) : burst_(burst), interval_(interval) {}

  // Takes one out of the bucket of `key`; false: it is empty, and nothing was taken.
  bool take(int64_t key, Duration now) {
    if (buckets_.size() >= kKeysMax && !buckets_.contains(key)) forget_full(now);
    if (buckets_.size() >= kKeysMax && !buckets_.contains(key)) return false;
    Bucket& bucket = buckets_.try_emplace(key, Bucket{0, now}).first->second;
    refill(bucket, now);
    if (bucket.used >= burst_) return false;
    ++bucket.used;
    return true;
  }

  static constexpr size_t kKeysMax = 10'000;

 private:
  struct Bucket {
    uint32_t used = 0;
    Duration since;  // when the last one came back
  };

  void refill(Bucket& bucket, Duration now) const {
    const int64_t back = (now - bucket.since).count() / interval_.count();
    if (back <= 0) return;
    bucket.used -= static_cast<uint32_t>(std::min<int64_t>(back, bucket.used));
    bucket.since = Duration(bucket.since.count() + back * interval_.count());
  }

  void forget_full(Duration now) {
    for (auto entry = buckets_.begin(); entry != buckets_.end();) {
      refill(entry->second, now);
      entry = entry->second.used == 0 ? buckets_.erase(entry) : std::next(entry);
    }
  }

  uint32_t burst_;
  Duration interval_;
  std::unordered_map<int64_t, Bucket> buckets_;
};

}  // namespace tranche::machine
