// --array and --tasks: lists and ranges of numbers.
#include <algorithm>

#include "base/quantity_text.h"
#include "cli/job_request.h"
#include "cli/option_error.h"
#include "cli/text.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

// "5", "5-8", "0-20:5", into `indices`.
Result<void> add_array_range(std::string_view text, std::vector<uint32_t>& indices) {
  const size_t colon = text.find(':');
  const std::string_view range = text.substr(0, colon);
  const size_t dash = range.find('-');
  int64_t step = 1;
  if (colon != std::string_view::npos) {
    TRY_ASSIGN(step,
               parse_integer(text.substr(colon + 1), 1, limits::kArrayIndexMax, "the step of an array"));
  }
  TRY_ASSIGN(const int64_t first,
             parse_integer(range.substr(0, dash), 0, limits::kArrayIndexMax, "an array index"));
  int64_t last = first;
  if (dash != std::string_view::npos) {
    TRY_ASSIGN(last, parse_integer(range.substr(dash + 1), 0, limits::kArrayIndexMax, "an array index"));
  }
  if (last < first)
    return invalid("the range " + in_quotes(range) + " is backwards; write the smaller index first");
  if ((last - first) / step >= static_cast<int64_t>(limits::kArrayElements)) {
    return invalid("an array has at most " + std::to_string(limits::kArrayElements) + " elements");
  }
  for (int64_t index = first; index <= last; index += step) indices.push_back(static_cast<uint32_t>(index));
  return {};
}

}  // namespace

Result<ArraySpec> parse_array(std::string_view text) {
  ArraySpec array;
  const size_t percent = text.find('%');
  if (percent != std::string_view::npos) {
    TRY_ASSIGN(const int64_t most, parse_integer(text.substr(percent + 1), 1, limits::kArrayElements,
                                                 "the number that runs at a time"));
    array.running_max = static_cast<uint32_t>(most);
  }
  for (const std::string& range : split(text.substr(0, percent), ','))
    TRY(add_array_range(range, array.indices));
  if (array.indices.size() > limits::kArrayElements) {
    return invalid("an array has at most " + std::to_string(limits::kArrayElements) + " elements");
  }
  std::sort(array.indices.begin(), array.indices.end());
  array.indices.erase(std::unique(array.indices.begin(), array.indices.end()), array.indices.end());
  return array;
}

Result<api::TaskCount> parse_task_count(std::string_view text) {
  const size_t dash = text.find('-');
  TRY_ASSIGN(const int64_t low,
             parse_integer(text.substr(0, dash), 1, limits::kTasksMax, "the number of tasks"));
  int64_t high = low;
  if (dash != std::string_view::npos) {
    TRY_ASSIGN(high, parse_integer(text.substr(dash + 1), 1, limits::kTasksMax, "the number of tasks"));
  }
  if (high < low) return invalid("write the smaller number of tasks first, not " + in_quotes(text));
  return api::TaskCount{static_cast<uint32_t>(low), static_cast<uint32_t>(high)};
}

}  // namespace tranche::cli
