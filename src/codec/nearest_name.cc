#include "codec/nearest_name.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tranche {
namespace {

// Names longer than this are never near anything: bounds the table.
constexpr size_t kLengthMax = 48;

// Edit distance with swaps of neighbours (optimal string alignment), the textbook's dynamic program.
size_t edit_distance(std::string_view a, std::string_view b) {
  using Row = std::array<size_t, kLengthMax + 1>;
  Row before{}, above{}, row{};
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view written, std::span<const std::string_view> known) {
  if (written.size() > kLengthMax) return {};
  std::string_view nearest;
  size_t nearest_distance = std::max<size_t>(1, written.size() / 3) + 1;
  for (const std::string_view name : known) {
    if (name.size() > kLengthMax) continue;
    const size_t distance = edit_distance(written, name);
    if (distance < nearest_distance) {
      nearest = name;
      nearest_distance = distance;
    }
  }
  return nearest;
}

std::string nearest_name_hint(std::string_view written, std::span<const std::string_view> known) {
  if (const std::string_view nearest = nearest_name(written, known); !nearest.empty()) {
    return "; did you mean \"" + std::string(nearest) + "\"?";
  }
  std::string hint = "; known are: ";
  for (size_t i = 0; i < known.size(); ++i) {
    if (i > 0) hint += ", ";
    hint += known[i];
  }
  return known.empty() ? std::string("; nothing can stand here") : hint;
}

}  // namespace tranche
