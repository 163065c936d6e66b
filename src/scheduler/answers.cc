// Why a job waits: the checkable proof first, then the sentence that tells it to people.
#include "scheduler/implementation.h"

namespace tranche::scheduler {

Result<Proof> Scheduler::proof(JobId id) const {
  const Job* job = state_->find(id);
  if (job == nullptr) {
    return fail(ErrorCode::not_found, "job " + std::to_string(id.value()) + " is not live; look in the history");
  }
  Proof proof;
  proof.job = id;
  return proof;
}

Result<Explanation> Scheduler::why(JobId id) const {
  TRY_ASSIGN(Proof proof, Scheduler::proof(id));
  Explanation explanation;
  explanation.job = id;
  explanation.state = state_->find(id)->state;
  explanation.proof = std::move(proof);
  return explanation;
}

}  // namespace tranche::scheduler
