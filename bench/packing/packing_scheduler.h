// The packing experiment with Tranche's own scheduler, through the same step() as the daemon: nodes and GPUs
// are added, each pod is submitted as a job at its arrival, and cancelled in the same instant if it did not
// start. Nothing is told to it beforehand: what it knows of the workload it has seen arrive.
#pragma once

#include "packing/packing_workload.h"

namespace tranche::bench {

AllocationCurve run_packing_scheduler(const PackingWorkload& workload, const PackingOrder& order);

}  // namespace tranche::bench
