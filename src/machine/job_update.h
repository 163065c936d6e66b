// What of a job may be changed by whom, and when: the rules of `tranche update`.
#pragma once

#include "codec/api.h"
#include "machine/caller.h"
#include "machine/job_table.h"
#include "model/policy.h"

namespace tranche::machine {

// The event that the request stands for, but for a new name, which is the caller's to store. A waiting job
// may be changed in everything; of one that runs, its owner may shorten the time limit, and an operator may
// change it either way. Errors: conflict (the job's state), denied (the right), over_limit, invalid_argument,
// not_found (a dependency).
Result<JobUpdated> checked_update(const JobRecord& job, const api::UpdateRequest& request,
                                  const Caller& caller, const Policy& policy, const JobTable& jobs, Time now);

}  // namespace tranche::machine
