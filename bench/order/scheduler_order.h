// A log of the Standard Workload Format through Tranche's own scheduler, on virtual time: one machine of
// equal processors, each a GPU, one queue, so that only order and backfill decide. It knows what users know:
// the estimate as the time limit, and whatever it has seen end. The job's true run time is the simulation's
// alone.
#pragma once

#include "order/easy_simulation.h"
#include "replay/simulation.h"

namespace tranche::bench {

struct SchedulerOrderFigures {
  WaitFigures waits;
  replay::SimulationResult result;
};

SchedulerOrderFigures run_scheduler_order(const std::vector<replay::SwfJob>& jobs, int64_t processors,
                                          const Policy& policy);

}  // namespace tranche::bench
