// Parameter sweeps: an array whose elements run one command with every combination of values.
//
//   lr=0.1,0.01 seed=1..3     six elements: (0.1, 1), (0.1, 2), (0.1, 3), (0.01, 1), ...
//
// The elements of such an array have the indices 1 to N; the last parameter varies fastest. An element finds
// its values in its environment, under the parameter's name, and in place of each `{name}` in its command,
// its job name and its log files; other braces stay. Values hold no spaces and no commas.
//
// Pure functions. Errors: invalid_argument, one sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/api.h"

namespace tranche::api {

struct SweepText {
  std::vector<SweepParameter> parameters;
  uint32_t running_max = 0;  // of a last word "%4": at most so many at a time; 0: no limit
};
// "lr=0.1,0.01 seed=1..5 %4"; a range counts by ones, or "0..100:10" by tens.
Result<SweepText> parse_sweep(std::string_view text);
// What parse_sweep reads back, without the limit.
std::string format_sweep(const std::vector<SweepParameter>& sweep);

// How many combinations there are; 0 for no sweep. Saturates above limits::kArrayElements.
uint64_t sweep_size(const std::vector<SweepParameter>& sweep);
// What is wrong with it as a whole, or "".
std::string check_sweep(const std::vector<SweepParameter>& sweep);

using SweepValues = std::vector<std::pair<std::string, std::string>>;  // name, value
// Of element `index` (from 1); of an index that is none: no values.
SweepValues sweep_values(const std::vector<SweepParameter>& sweep, uint32_t index);

// `text` with each {name} of `values` replaced by its value.
std::string fill_placeholders(std::string_view text, const SweepValues& values);

// What element `index` of the array runs: the request with its values filled in and no sweep; without a sweep
// the request as it is.
SubmitRequest element_request(const SubmitRequest& request, uint32_t index);

// A job's name as it is stored: with the sweep behind a line end, which no name has, so that the name of each
// element is known without reading what it runs. A long sweep is left out.
std::string stored_name(const std::string& name, const std::vector<SweepParameter>& sweep);
// The name of element `index` out of that: {name}s filled in, or the values behind it if it has none.
std::string element_name(const std::string& stored, uint32_t index);

}  // namespace tranche::api
