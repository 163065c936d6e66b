// The checkable reason attached to a "no" or "not yet".
#pragma once

#include "model/answer.h"
#include "scheduler/pass.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

// Of a live job. `promises`: as things stand.
Proof prove(const State& state, Promises& promises, const Job& job);

// The proof in one sentence, and what would help.
std::string sentence(const State& state, const Job& job, const Proof& proof);
std::vector<std::string> helps(const Job& job, const Proof& proof);

// GPUs that the job could use if they were free and took work; by id.
std::vector<const GpuRoom*> usable_gpus(const State& state, const Job& job);

}  // namespace tranche::scheduler
