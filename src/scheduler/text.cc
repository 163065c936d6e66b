#include "scheduler/text.h"

#include <algorithm>

#include "base/quantity_text.h"

namespace tranche::scheduler {

std::string counted(int64_t count, std::string_view noun) {
  std::string text = std::to_string(count);
  text += ' ';
  text += noun;
  if (count != 1) text += 's';
  return text;
}

std::string gpus_text(MilliGpu amount) {
  return format_thousandths(amount.count()) + (amount == kWholeGpu ? " GPU" : " GPUs");
}

std::string listed(const std::vector<std::string>& items, size_t most) {
  const size_t shown = items.size() <= most ? items.size() : most;
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == shown && shown == items.size();
    if (i > 0) text += is_last ? " and " : ", ";
    text += items[i];
  }
  if (shown < items.size()) text += " and " + std::to_string(items.size() - shown) + " more";
  return text;
}

std::string clock_text(Time time) {
  const std::string full = format_time(time);  // "2026-11-30T11:29:47.000000001Z"
  return full.substr(0, 10) + " " + full.substr(11, 8) + " UTC";
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace tranche::scheduler
