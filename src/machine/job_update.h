// What of a job may be changed by whom, and when: the rules of `tranche update`.
#pragma once

#include "codec/api.h"
#include "machine/caller.h"
#include "machine/job_table.h"
#include "machine/memory_arbiter.h"
#include "scheduler/scheduler.h"

namespace tranche::machine {

// The event that the request stands for, but for a new name, which is the caller's to store. A waiting job
// may be changed in everything; of one that runs, its owner may shorten the time limit, and an operator may
// change it either way, and its memory of shared GPUs grows where there is room, and shrinks to what it
// holds. Errors: conflict (the job's state), denied (the right), over_limit, invalid_argument, not_found (a
// dependency).
Result<JobUpdated> checked_update(const JobRecord& job, const api::UpdateRequest& request,
                                  const Caller& caller, const MemoryHeld& held,
                                  const scheduler::Scheduler& scheduler, const JobTable& jobs, Time now);

}  // namespace tranche::machine
