// What stands behind the Scheduler's pointer: the state, and what can be derived from it for answers.
#pragma once

#include <memory>
#include <vector>

#include "scheduler/pass.h"
#include "scheduler/scheduler.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

// One step on a bare state; Scheduler::step and the forecast's look ahead share it.
std::vector<Decision> advance(State& state, const Event& event);

// What is promised as things stand, read only: worked out when first asked for.
struct Analysis {
  explicit Analysis(const State& state) : promises(state) { promises.hold_claims(); }
  Promises promises;
};

struct Scheduler::State : scheduler::State {
  Promises& analysis() const {
    if (!analysis_) analysis_ = std::make_unique<Analysis>(*this);
    return analysis_->promises;
  }
  void forget_analysis() { analysis_.reset(); }

 private:
  mutable std::unique_ptr<Analysis> analysis_;
};

}  // namespace tranche::scheduler
