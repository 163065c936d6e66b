// How the benches measure: one clock, samples with exact percentiles, children, one JSON object for each
// figure.
//
// Units: nanoseconds inside, microseconds in what is printed. Threading: none of this is shared between
// threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tranche::bench {

// CLOCK_MONOTONIC: the same for all processes of the machine, so that a job's stamp and its client's can be
// compared.
int64_t monotonic_ns();

// Sleeps for a random time below `most`, so that nothing is measured in step with itself.
void pause_below_ms(uint64_t most);

// Sorts a copy for each question: asked a handful of times.
class Samples {
 public:
  void add(int64_t nanoseconds) { values_.push_back(nanoseconds); }
  size_t count() const { return values_.size(); }
  // The smallest value that at least `percent` of all do not exceed.
  int64_t percentile(size_t percent) const;

 private:
  std::vector<int64_t> values_;
};

// One line of JSON on standard output, for bench/run.
void print_spans(std::string_view name, const Samples& samples);
void print_rate(std::string_view name, size_t count, int64_t nanoseconds);

struct Ended {
  int64_t began_ns = 0;  // just before it was started
  int64_t ended_ns = 0;  // it was reaped
  std::string output;    // its standard output
};

// Runs a command to its end. Standard input is empty; another exit code than 0 is an error.
Result<Ended> run_command(const std::vector<std::string>& words);

// Runs the command `count` times, `at_once` at a time: each starts its next when its last has ended.
Result<void> run_many(size_t count, size_t at_once, const std::vector<std::string>& words);

// The number in `text`, spaces around it allowed.
Result<int64_t> to_number(std::string_view text, std::string_view what);

}  // namespace tranche::bench
