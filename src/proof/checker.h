// Holds a proof (model/answer.h) against the facts that it speaks about, so that a reason cannot merely look
// like one. Nothing here is shared with the scheduler: room is counted anew, plainly and slowly, from who
// holds what. Only its tests know both.
//
// A proof is accepted if what it says is true, sufficient for the answer, and exact in every figure and name.
// What is checked for each kind is said at its function.
//
// Threading: none. Cost: the whole dump is looked at for every proof.
#pragma once

#include "base/result.h"
#include "model/answer.h"
#include "model/state_dump.h"

namespace tranche::proof {

// Errors: invalid_argument, with what is not true.
Result<void> check(const StateDump& dump, const Proof& proof);

}  // namespace tranche::proof
