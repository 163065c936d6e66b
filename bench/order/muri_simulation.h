// The simulation that Muri's authors published figures of (SIGCOMM'22, Figures 9 and 10), rebuilt from its
// description: preemptive shortest-first on nodes of 8 GPUs. It is a regression test of the trace reader and
// of our reading of a published experiment, not of our scheduler; floating point, since digits are compared.
//
// Semantics: an event is an arrival or a completion. At each event every job that ran since the previous one
// has progressed by the time between them less its start-up time; a job that runs until its work is done ends
// then, without start-up time. Then all unfinished jobs are sorted, the cluster is emptied and filled again
// in that order, each job on the first node with room (whole nodes for more than 8 GPUs), jobs that do not
// fit are skipped. Work is iterations x iteration time x 1.015.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/muri.h"

namespace tranche::bench {

enum class MuriOrder { remaining_time, remaining_service };  // SRTF, SRSF

struct MuriFigures {
  double mean_s = 0;
  double makespan_s = 0;
  double p99_s = 0;
};

MuriFigures simulate_muri(const std::vector<replay::MuriJob>& jobs, MuriOrder order, int64_t nodes,
                          int64_t gpus_per_node);

}  // namespace tranche::bench
