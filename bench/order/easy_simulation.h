// EASY backfilling on a machine of equal processors, as the literature defines it: the first in line has the
// only reservation, at the time at which enough processors will be free by the estimates; a later job starts
// if it fits now and either ends by then or uses processors that the first will not need. A baseline and a
// test of the trace reader; our scheduler is measured beside it, not by it. Integers: seconds and processors.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/swf.h"

namespace tranche::bench {

enum class BackfillOrder { arrival, shortest_first };  // EASY, EASY-SJBF
enum class RunEstimate {
  requested,
  last_two,
  exact
};  // the user's, the mean of the user's last two, the truth

struct WaitFigures {
  double bounded_slowdown = 0;  // mean of max(1, (wait + run) / max(run, 10 s))
  double wait_s = 0;            // mean
  uint64_t jobs = 0;
};

struct EasySettings {
  bool backfill = true;
  BackfillOrder order = BackfillOrder::arrival;
  RunEstimate estimate = RunEstimate::requested;
};

WaitFigures simulate_easy(const std::vector<replay::SwfJob>& jobs, int64_t processors, EasySettings settings);
// From start times, in the order of `jobs`.
WaitFigures wait_figures(const std::vector<replay::SwfJob>& jobs, const std::vector<int64_t>& starts);

}  // namespace tranche::bench
