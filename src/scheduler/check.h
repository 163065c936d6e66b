// Whether a job can be accepted: what can never run on what is installed is refused at the door, in a
// sentence that says what to do. What is only drained or busy waits.
#pragma once

#include "base/result.h"
#include "model/job.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

Result<void> check_job(const State& state, const JobSpec& spec, const ArraySpec& array);

// Whether what it asks for fits what is installed, and the bounds of its queue.
Result<void> check_request(const State& state, const JobSpec& spec);

// The part that may change with the machine: whether the shape fits what is installed when all is idle.
// The error's message is also the reason of a waiting job for which that has become false.
Result<void> check_fits(const State& state, const JobSpec& spec);

// What is installed, with nothing on it and nothing drained.
const Capacity& everything_idle(const State& state);

}  // namespace tranche::scheduler
