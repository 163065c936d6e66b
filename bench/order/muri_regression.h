// Muri's published table beside our simulation of it, cell by cell.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "order/muri_simulation.h"

namespace tranche::bench {

struct MuriCell {
  std::string policy;  // SRTF or SRSF
  std::string trace;
  std::string published[3];  // mean, makespan, p99, as printed
  MuriFigures own;
  bool matches = false;  // all three, to the digits that are printed
};

// `traces` empty: all. Errors: files that are not there or cannot be read.
Result<std::vector<MuriCell>> run_muri_regression(const std::string& folder,
                                                  const std::vector<std::string>& traces);

// Whether `value` prints as `text` with as many places as `text` has.
bool prints_as(double value, const std::string& text);

}  // namespace tranche::bench
