#include "mutator.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace tranche::fuzz {
namespace {

constexpr std::string_view kNumbers[] = {"0",
                                         "-1",
                                         "1",
                                         "2147483647",
                                         "2147483648",
                                         "4294967295",
                                         "4294967296",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775808",
                                         "-9223372036854775809",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "1e9",
                                         "0.5",
                                         "1.0000001",
                                         "1e-9",
                                         "1e400",
                                         "NaN",
                                         "00",
                                         "99999999999999999999999999999999"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Mutator::Mutator(uint64_t seed, std::vector<std::string> words) : random_(seed), words_(std::move(words)) {}

std::string Mutator::change(std::string input, const std::vector<std::string>& others) {
  const uint64_t times = uint64_t{1} << random_.below(4);
  for (uint64_t i = 0; i < times; ++i) change_once(input, others);
  if (input.size() > kInputMax) input.resize(kInputMax);
  return input;
}

void Mutator::change_once(std::string& input, const std::vector<std::string>& others) {
  switch (random_.below(8)) {
    case 0:
    case 1:
      return change_bytes(input);
    case 2:
      return change_integer(input);
    case 3:
      return change_number(input);
    case 4:
      return move_piece(input);
    case 5: {
      const std::string& other = others[static_cast<size_t>(random_.below(others.size()))];
      const size_t from = place(other);
      return insert(input, place(input),
                    std::string_view(other).substr(from, static_cast<size_t>(1 + random_.below(128))));
    }
    default:
      if (words_.empty()) return change_bytes(input);
      const std::string& word = words_[static_cast<size_t>(random_.below(words_.size()))];
      const size_t at = place(input);
      if (random_.chance(1, 3)) input.erase(at, word.size());
      insert(input, at, word);
  }
}

void Mutator::change_bytes(std::string& input) {
  const size_t at = place(input);
  switch (random_.below(4)) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << random_.below(8)));
      return;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(random_.next());
      return;
    case 2:
      input.erase(at, static_cast<size_t>(random_.chance(1, 4) ? random_.below(1024) : 1 + random_.below(8)));
      return;
    default:
      insert(
          input, at,
          std::string(static_cast<size_t>(random_.chance(1, 16) ? random_.below(8192) : 1 + random_.below(8)),
                      static_cast<char>(random_.next())));
  }
}

// A binary integer of 1, 2, 4 or 8 bytes.
void Mutator::change_integer(std::string& input) {
  const size_t size = size_t{1} << random_.below(4);
  if (input.size() < size) return;
  const size_t at = static_cast<size_t>(random_.below(input.size() - size + 1));
  uint64_t value = 0;
  std::memcpy(&value, input.data() + at, size);
  switch (random_.below(4)) {
    case 0:
      value += random_.below(33);
      break;
    case 1:
      value -= random_.below(33);
      break;
    case 2:
      value = uint64_t{1} << random_.below(64);
      break;
    default:
      value = 0 - random_.below(3);
  }
  std::memcpy(input.data() + at, &value, size);
}

// A number in decimal digits.
void Mutator::change_number(std::string& input) {
  const size_t start = place(input);
  const auto digit = std::find_if(input.begin() + static_cast<std::ptrdiff_t>(start), input.end(), is_digit);
  if (digit == input.end()) return;
  const auto at = static_cast<size_t>(digit - input.begin());
  size_t end = at;
  while (end < input.size() && is_digit(input[end])) ++end;
  const std::string small = std::to_string(random_.below(random_.chance(1, 2) ? 16 : 100'000));
  const std::string_view number =
      random_.chance(1, 2) ? std::string_view(small) : kNumbers[random_.below(std::size(kNumbers))];
  input.replace(at, end - at, number);
}

// Copies a piece to elsewhere, or cuts it out.
void Mutator::move_piece(std::string& input) {
  const size_t from = place(input);
  const std::string piece = input.substr(
      from, static_cast<size_t>(random_.chance(1, 8) ? random_.below(4096) : 1 + random_.below(64)));
  if (random_.chance(1, 2)) input.erase(from, piece.size());
  const uint64_t times = random_.chance(1, 32) ? random_.below(64) : 1;
  const size_t to = place(input);
  for (uint64_t i = 0; i < times; ++i) insert(input, to, piece);
}

void Mutator::insert(std::string& input, size_t at, std::string_view piece) {
  if (input.size() + piece.size() <= kInputMax) input.insert(at, piece);
}

size_t Mutator::place(const std::string& input) {
  return static_cast<size_t>(random_.below(input.size() + 1));
}

}  // namespace tranche::fuzz
