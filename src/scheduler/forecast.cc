// When a job is expected to start: the scheduler itself, stepped on a copy of its state, with every job
// running exactly to its limit and nothing new arriving. An upper bound in that sense, and labelled so.
#include <algorithm>

#include "scheduler/implementation.h"

namespace tranche::scheduler {
namespace {

// Ends that are looked ahead before the answer is "not known": bounds the time of one answer.
constexpr int kLookAhead = 200;

// The next event of the imagined future: something that runs or leaves comes to its latest end, or a begin
// time passes. Slices are released as soon as their task is gone.
class Future {
 public:
  explicit Future(State state) : state_(std::move(state)) {}

  // The job's start, or an unset time if it does not start within the horizon.
  Time start_of(JobId id) {
    for (int i = 0; i < kLookAhead; ++i) {
      const Job* job = state_.find(id);
      if (job == nullptr) return Time();
      if (job->started.is_set()) return job->started;
      if (!advance_once()) return Time();
    }
    return Time();
  }

  State& state() { return state_; }
  void happen(EventPayload payload, Time at) {
    const Time time = std::max(at, state_.now + kNanosecond);
    advance(state_, Event{EventSeq(state_.last_event.value() + 1), time, std::move(payload)});
  }

 private:
  bool advance_once() {
    if (const auto released = next_release()) {
      happen(SliceReleased{released->first, released->second}, state_.now);
      return true;
    }
    Time next = state_.wake;
    const Holding* first = nullptr;
    TaskKey first_key;
    for (const TaskKey& key : state_.holdings.keys()) {
      const Holding& holding = *state_.holdings.find(key);
      if (holding.exited || (first != nullptr && holding.latest_end >= first->latest_end)) continue;
      first = &holding;
      first_key = key;
    }
    if (next.is_set() && (first == nullptr || next <= first->latest_end)) {
      happen(Tick{}, next);
      return true;
    }
    if (first == nullptr) return false;
    const Job* job = state_.find(first_key.job);
    const bool stopped = job != nullptr && job->stop_reason.has_value();
    happen(TaskExited{first_key, stopped ? ExitCause::killed : ExitCause::exited}, first->latest_end);
    return true;
  }

  std::optional<std::pair<TaskKey, GpuId>> next_release() const {
    for (const auto& [key, number] : state_.leaving) {
      const Holding& holding = *state_.holdings.find(key);
      if (holding.exited && !holding.slices.empty()) return std::pair(key, holding.slices.front().gpu);
    }
    return std::nullopt;
  }

  State state_;
};

uint32_t position_of(JobId id, const std::vector<JobId>& order) {
  const auto found = std::find(order.begin(), order.end(), id);
  return found == order.end() ? 0 : static_cast<uint32_t>(found - order.begin()) + 1;
}

}  // namespace

Result<Forecast> Scheduler::forecast(JobId id, uint32_t places) const {
  const Job* job = state_->find(id);
  if (job == nullptr) {
    return fail(ErrorCode::not_found,
                "job " + std::to_string(id.value()) + " is not live; look in the history");
  }
  if (!job->is_waiting()) return Forecast{.known = true, .start = job->started, .position = 0};
  Forecast forecast{.known = false, .start = {}, .position = position_of(id, waiting_order())};
  // Held by somebody: no imagined future releases it.
  if (job->held || forecast.position > places) return forecast;
  forecast.start = Future(*state_).start_of(id);
  forecast.known = forecast.start.is_set();
  return forecast;
}

Forecast Scheduler::forecast(const JobSpec& spec) const {
  Future future(*state_);
  // An id above all others, so that it arrives last.
  const std::vector<JobId> live = state_->jobs.keys();
  const JobId id(live.empty() ? 1 : live.back().value() + 1);
  future.happen(JobSubmitted{id, spec, {}}, state_->now);
  Forecast forecast;
  const Job* job = future.state().find(id);
  if (job != nullptr && job->started.is_set()) return {.known = true, .start = job->started, .position = 0};
  Analysis analysis(future.state());
  forecast.position = position_of(id, order_of_waiting(future.state(), analysis.promises.planned()));
  forecast.start = future.start_of(id);
  forecast.known = forecast.start.is_set();
  return forecast;
}

}  // namespace tranche::scheduler
