// What a history comes to, in figures: how long people waited, how much of the GPUs was held, who was
// preempted.
//
// Waits are from submission to the first start, of the jobs that started. Microseconds and permille:
// integers, so that equal histories give equal reports.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "replay/chronicle.h"

namespace tranche::replay {

struct WaitSummary {
  uint64_t jobs = 0;     // submitted
  uint64_t started = 0;  // at all
  uint64_t ended = 0;
  uint64_t preemptions = 0;
  int64_t wait_mean_us = 0;
  int64_t wait_median_us = 0;
  int64_t wait_p90_us = 0;
  int64_t wait_p99_us = 0;
  int64_t wait_max_us = 0;
  int64_t gpu_milli_hours = 0;  // held
};

struct ReplayReport {
  std::string name;  // "recorded", "same policy", a file
  WaitSummary all;
  std::map<std::string, WaitSummary> by_user;
  int64_t held_permille = 0;  // of what was installed between the first submission and the last event
  int64_t span_us = 0;
  uint64_t refused = 0;
};

ReplayReport report_of(std::string name, const std::vector<JobStory>& stories, const ChronicleTotals& totals);

// An object with one member for each report, as `--json` prints it.
std::string encode_reports(const std::vector<ReplayReport>& reports);

}  // namespace tranche::replay
