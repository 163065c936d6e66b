// Changes of inputs: bits, bytes, numbers, words, pieces of other inputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace tranche::fuzz {

inline constexpr size_t kInputMax = size_t{32} << 10;

class Mutator {
 public:
  Mutator(uint64_t seed, std::vector<std::string> words);

  // A few changes on top of each other; `others` gives pieces.
  std::string change(std::string input, const std::vector<std::string>& others);

 private:
  void change_once(std::string& input, const std::vector<std::string>& others);
  void change_bytes(std::string& input);
  void change_integer(std::string& input);
  void change_number(std::string& input);
  void move_piece(std::string& input);
  void insert(std::string& input, size_t at, std::string_view piece);
  size_t place(const std::string& input);

  Random random_;
  std::vector<std::string> words_;
};

}  // namespace tranche::fuzz
