// The driver releases that the emulator can be: which functions each has, and how it behaves. The facts are
// data, levels/*.level; levels/README.md is their format and says where they come from.
//
// Threading: all functions from any thread; the data is read once and never changes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tranche::emulator {

class DriverLevel {
 public:
  int branch() const { return branch_; }                 // 570
  std::string_view version() const { return version_; }  // what its driver says if nothing else was asked for

  // Whether a library of this level exports `symbol` ("cuMemCreate", "nvmlDeviceGetPdi"), if it is one that
  // the emulator knows at all: a name in no file is there at every level.
  bool has(std::string_view symbol) const;
  // What the last `set NAME` up to this level says; a name that no file sets is a mistake in the program.
  int64_t number(std::string_view name) const;

 private:
  friend class DriverLevels;
  int branch_ = 0;
  std::string_view version_;
};

// All levels, oldest first.
const std::vector<DriverLevel>& driver_levels();
// The level of a driver version such as "570.86.15": the nearest at or below its release; the oldest for
// releases before it.
const DriverLevel& driver_level(std::string_view driver_version);
// The version meant by "570" (a level), or by a whole version, which is given back.
Result<std::string> driver_version_of(std::string_view level_or_version);
// The newest CUDA version (1000 * major + 10 * minor) that a driver of that version supports.
int32_t cuda_version_of_driver(std::string_view driver_version);
// Names of functions that exist at some level and not in a driver of that version, sorted.
std::vector<std::string_view> absent_symbols(std::string_view driver_version);
// What is wrong with the data files, one line a mistake; for the test that holds them.
std::vector<std::string> driver_level_mistakes();

}  // namespace tranche::emulator
