#include "scheduler/scheduler.h"

#include <algorithm>

#include "scheduler/check.h"
#include "scheduler/conclude.h"
#include "scheduler/implementation.h"
#include "scheduler/pass.h"
#include "scheduler/resize.h"

namespace tranche::scheduler {
namespace {

class Recorder final : public Commit {
 public:
  explicit Recorder(State& state) : state_(state) {}
  void decide(Decision decision) override {
    state_.apply(decision);
    decisions.push_back(std::move(decision));
  }
  std::vector<Decision> decisions;

 private:
  State& state_;
};

// The next time at which something may change without an event: a begin time, or the end of a victim's
// protection. An armed timer that is earlier is left alone; its tick asks again.
void ask_for_wake(State& state, Time protection_ends, Commit& commit) {
  Time wanted = protection_ends;
  if (!state.begins.empty()) {
    const Time begin = state.begins.begin()->first;
    if (!wanted.is_set() || begin < wanted) wanted = begin;
  }
  // What is due already comes to its turn with the next event.
  const auto stale = state.stale.upper_bound({state.now, JobId(UINT64_MAX)});
  if (stale != state.stale.end() && (!wanted.is_set() || stale->first < wanted)) wanted = stale->first;
  if (!wanted.is_set() || (state.wake.is_set() && state.wake <= wanted)) return;
  commit.decide(WakeAt{wanted});
}

}  // namespace

Scheduler::Scheduler() : state_(std::make_unique<State>()) {}
Scheduler::~Scheduler() = default;
Scheduler::Scheduler(Scheduler&&) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&&) noexcept = default;

std::vector<Decision> advance(State& state, const Event& event) {
  Recorder recorder(state);
  // First the facts: afterwards the state says what happened, and nothing is decided.
  state.take_in(event);
  Time protection_ends;
  bool again = false;
  do {
    const uint64_t times_ready = state.times_ready;
    const size_t decided = recorder.decisions.size();
    // What follows for the jobs that it happened to: ends free room and dependents, so they come first.
    conclude(state, recorder);
    // What everybody is entitled to now.
    state.refresh_derived();
    // Who starts now, who has to make room, who is promised room.
    Pass pass(state, recorder);
    pass.run();
    protection_ends = pass.wake();
    // A start may have made others ready that the walk had already gone past, room may have been promised
    // before the walk knew what would be taken, and what was started may be reclaimed one day. So the last
    // round is one that decides nothing: what it sees hangs on the state alone, and not on what is known
    // about room, which a restart forgets. Each round before it decides something, so there is an end.
    const bool claims_ended = state.settle_claims();  // their room is everybody's again
    again = claims_ended || state.times_ready != times_ready || !state.attention.empty() ||
            recorder.decisions.size() != decided;
  } while (again);
  // When to look again by itself.
  state.note_gangs();
  ask_for_wake(state, protection_ends, recorder);
  // What was only of use during this step is forgotten, as restore() does.
  state.settle();
  state.refresh_derived();
  return std::move(recorder.decisions);
}

std::vector<Decision> Scheduler::step(const Event& event) {
  state_->forget_analysis();
  return advance(*state_, event);
}

void Scheduler::restore(const Event& event, std::span<const Decision> decisions) {
  state_->forget_analysis();
  state_->take_in(event);
  for (const Decision& decision : decisions) state_->apply(decision);
  state_->settle();
  state_->refresh_derived();
  // Nobody has looked for room.
  state_->know_nothing = true;
  state_->capacity.forget_gains();
}

Result<void> Scheduler::check(const JobSpec& spec, const ArraySpec& array) const {
  return check_job(*state_, spec, array);
}

Result<void> Scheduler::check_gpu_memory(JobId job, MiB memory, MiB limit) const {
  return check_resize(*state_, job, memory, limit);
}

bool Scheduler::has_job(JobId job) const { return state_->find(job) != nullptr; }
const Policy& Scheduler::policy() const { return state_->policy; }
Time Scheduler::now() const { return state_->now; }
uint64_t Scheduler::state_hash() const { return state_->hash(); }
Scheduler::Size Scheduler::size() const {
  return {state_->jobs.bytes() + state_->holdings.bytes() + state_->waiting.bytes(),
          state_->capacity.bytes()};
}

}  // namespace tranche::scheduler
