// A set of small numbers as bits with a summary above them: insert and erase in one or two words, the next
// member without looking at empty stretches. Members come in ascending order.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace tranche::scheduler {

class BitSet {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  void insert(uint32_t member) {
    const uint32_t word = member / 64;
    if (word >= words_.size()) {
      words_.resize(word + 1);
      summary_.resize(word / 64 + 1);
    }
    const uint64_t bit = uint64_t{1} << member % 64;
    if ((words_[word] & bit) != 0) return;
    words_[word] |= bit;
    summary_[word / 64] |= uint64_t{1} << word % 64;
    ++count_;
  }
  void erase(uint32_t member) {
    const uint32_t word = member / 64;
    if (word >= words_.size()) return;
    const uint64_t bit = uint64_t{1} << member % 64;
    if ((words_[word] & bit) == 0) return;
    words_[word] &= ~bit;
    if (words_[word] == 0) summary_[word / 64] &= ~(uint64_t{1} << word % 64);
    --count_;
  }
  bool contains(uint32_t member) const {
    return member / 64 < words_.size() && (words_[member / 64] >> member % 64 & 1) != 0;
  }
  uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }

  // The first member that is at least `from`, or kNone.
  uint32_t next(uint32_t from) const {
    uint32_t word = from / 64;
    if (word >= words_.size()) return kNone;
    if (const uint64_t rest = words_[word] >> from % 64; rest != 0)
      return from + static_cast<uint32_t>(std::countr_zero(rest));
    ++word;
    for (uint32_t above = word / 64; above < summary_.size(); ++above) {
      uint64_t rest = summary_[above];
      if (above == word / 64) rest = word % 64 == 0 ? rest : rest >> word % 64 << word % 64;
      if (rest == 0) continue;
      word = above * 64 + static_cast<uint32_t>(std::countr_zero(rest));
      return word * 64 + static_cast<uint32_t>(std::countr_zero(words_[word]));
    }
    return kNone;
  }
  bool intersects(const BitSet& other) const {
    const size_t above = summary_.size() < other.summary_.size() ? summary_.size() : other.summary_.size();
    for (size_t i = 0; i < above; ++i) {
      for (uint64_t both = summary_[i] & other.summary_[i]; both != 0; both &= both - 1) {
        const size_t word = i * 64 + static_cast<size_t>(std::countr_zero(both));
        if ((words_[word] & other.words_[word]) != 0) return true;
      }
    }
    return false;
  }
  size_t bytes() const { return (words_.capacity() + summary_.capacity()) * sizeof(uint64_t); }

 private:
  std::vector<uint64_t> words_;
  std::vector<uint64_t> summary_;  // a bit for each word that is not empty
  uint32_t count_ = 0;
};

}  // namespace tranche::scheduler
