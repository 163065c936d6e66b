// From an identifier to a position in an array, by open addressing: found in one or two cache lines, no
// allocation for each entry. It is only ever looked up, never walked, so its order decides nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/assert.h"

namespace tranche::scheduler {

// Spreads the bits of a key over the whole word (the finaliser of SplitMix64, public domain).
constexpr uint64_t mix_bits(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// `Hash` maps a Key to 64 well mixed bits; Key has operator==.
template <class Key, class Hash>
class FlatIndex {
 public:
  std::optional<uint32_t> find(const Key& key) const {
    if (used_ == 0) return std::nullopt;
    for (size_t at = home(key);; at = next(at)) {
      if (entries_[at].position == kFree) return std::nullopt;
      if (entries_[at].key == key) return entries_[at].position - 1;
    }
  }
  // The key is not there yet.
  void insert(const Key& key, uint32_t position) {
    if ((used_ + 1) * 4 > entries_.size() * 3) grow();
    size_t at = home(key);
    while (entries_[at].position != kFree) at = next(at);
    entries_[at] = {key, position + 1};
    ++used_;
  }
  void erase(const Key& key) {
    if (used_ == 0) return;
    size_t at = home(key);
    while (entries_[at].position != kFree && !(entries_[at].key == key)) at = next(at);
    if (entries_[at].position == kFree) return;
    --used_;
    // What follows moves up where the gap would cut it off from its home.
    for (size_t from = next(at);; from = next(from)) {
      if (entries_[from].position == kFree) break;
      const size_t wanted = home(entries_[from].key);
      const bool stays = at <= from ? at < wanted && wanted <= from : at < wanted || wanted <= from;
      if (stays) continue;
      entries_[at] = entries_[from];
      at = from;
    }
    entries_[at] = {};
  }
  size_t size() const { return used_; }
  size_t bytes() const { return entries_.capacity() * sizeof(Entry); }

 private:
  static constexpr uint32_t kFree = 0;
  struct Entry {
    Key key{};
    uint32_t position = kFree;  // one above it
  };

  size_t home(const Key& key) const { return Hash{}(key) & (entries_.size() - 1); }
  size_t next(size_t at) const { return (at + 1) & (entries_.size() - 1); }
  void grow() {
    std::vector<Entry> old(entries_.empty() ? 16 : entries_.size() * 2);
    old.swap(entries_);
    used_ = 0;
    for (const Entry& entry : old) {
      if (entry.position != kFree) insert(entry.key, entry.position - 1);
    }
  }

  std::vector<Entry> entries_;  // a power of two
  size_t used_ = 0;
};

template <class Id>
struct IdHash {
  uint64_t operator()(Id id) const { return mix_bits(id.value()); }
};

}  // namespace tranche::scheduler
