// From what a user sent to a complete job: defaults filled in from the policy, identity from the kernel.
#pragma once

#include "base/result.h"
#include "codec/api.h"
#include "machine/caller.h"
#include "model/job.h"
#include "model/policy.h"

namespace tranche::machine {

struct AdmittedJob {
  JobSpec spec;
  ArraySpec array;
  std::string name;
};

// Whether it fits the machine and its queue is the scheduler's check().
Result<AdmittedJob> admit(const api::SubmitRequest& request, const Caller& caller, const Policy& policy,
                          bool interactive);

// The leaf that a job of `user` goes to: "<queue>/<user>", where `queue` defaults to the policy's.
std::string leaf_queue(const std::optional<std::string>& queue, const std::string& user,
                       const Policy& policy);

}  // namespace tranche::machine
