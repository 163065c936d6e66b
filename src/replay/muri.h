// The traces of Muri (SIGCOMM'22): jobs of one virtual cluster of the Philly trace, with the time of an
// iteration and the model that they train.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::replay {

struct MuriJob {
  int64_t id = 0;
  int64_t gpus = 0;
  int64_t submit_ms = 0;
  int64_t iterations = 0;
  int64_t iteration_micro_ms = 0;  // millionths of a millisecond
  std::string model;
};

// In the order of the file.
Result<std::vector<MuriJob>> read_muri_jobs(const std::string& path);

}  // namespace tranche::replay
