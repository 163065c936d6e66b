// More or less of each GPU's memory for a job that was submitted: `tranche update --gpu-mem`.
//
// A waiting job asks for something else from then on. A job that runs keeps its GPUs: it gets more only of
// what nobody holds there and nobody was promised, within the bounds of its queue, and may always have less.
// The event is an input, so an alternative history may have no room for it: then the job goes on as it was.
#pragma once

#include <vector>

#include "base/result.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

// The request with so much of each GPU's memory, and up to `limit` while it is free (zero: not beyond).
GpuRequest with_memory(GpuRequest gpu, MiB memory, MiB limit);

struct ResizedSlice {
  TaskKey task;
  size_t place = 0;  // in Holding::slices
  Slice slice;
  MilliGpu charge;
};

// What the job's tasks hold with that request; `job` holds something. Errors: conflict, over_limit.
Result<std::vector<ResizedSlice>> resized(const State& state, const Job& job, const GpuRequest& gpu);

// Whether the job can have so much now. Errors: those of resized(), and of check_request() for one that
// waits.
Result<void> check_resize(const State& state, JobId job, MiB memory, MiB limit);

}  // namespace tranche::scheduler
