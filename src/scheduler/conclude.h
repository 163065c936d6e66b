// What follows from what happened to a job: it ends, it waits again, or its other tasks must stop.
#pragma once

#include "scheduler/pass.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

// A task that provably never executed is tried again at most this often.
inline constexpr uint32_t kStartRetries = 3;

// Decides for every job in `state.attention`, until none is left.
void conclude(State& state, Commit& commit);

}  // namespace tranche::scheduler
