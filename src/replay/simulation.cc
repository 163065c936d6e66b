#include "replay/simulation.h"

#include <algorithm>

namespace tranche::replay {
namespace {

constexpr size_t kRefusalsKept = 5;

}  // namespace

Time moment_of(Time time) { return Time(time.nanoseconds() / kMillisecond.count() * kMillisecond.count()); }

void Simulation::push(Time time, ItemKind kind, size_t input, TaskKey task, uint64_t generation) {
  agenda_.push(Item{time, next_order_++, kind, input, task, generation});
}

void Simulation::add(Time time, EventPayload payload) {
  inputs_.push_back(std::move(payload));
  push(time, ItemKind::input, inputs_.size() - 1, {}, 0);
}

SimulationResult Simulation::run(Time until) {
  while (!agenda_.empty() && agenda_.top().time <= until) {
    const Item item = agenda_.top();
    agenda_.pop();
    now_ = std::max(now_, item.time);
    moment_ = moment_of(item.time);
    play(item);
  }
  result_.stories = chronicle_.stories();
  result_.totals = chronicle_.totals();
  return std::move(result_);
}

void Simulation::play(const Item& item) {
  const auto live = live_.find(item.task);
  switch (item.kind) {
    case ItemKind::input:
      return take_input(inputs_[item.input]);
    case ItemKind::started:
      if (live != live_.end()) step(TaskStarted{item.task});
      return;
    case ItemKind::exit:
      // A stop may have moved it since it was planned.
      if (live != live_.end() && live->second.exits_at == item.time) play_exit(item.task);
      return;
    case ItemKind::release: {
      if (live == live_.end()) return;
      const std::vector<Slice> slices = std::move(live->second.start.slices);
      live_.erase(live);
      for (const Slice& slice : slices) step(SliceReleased{item.task, slice.gpu});
      return;
    }
    case ItemKind::tick:
      if (item.generation == wake_generation_) step(Tick{});
      return;
  }
}

void Simulation::play_exit(const TaskKey& task) {
  LiveTask& live = live_.at(task);
  live.exits_at = Time();
  const ExitCause cause = live.stopping ? ExitCause::killed : live.cause;
  const bool holds_gpus = !live.start.slices.empty();
  if (!holds_gpus) live_.erase(task);
  step(TaskExited{task, cause, 0, cause == ExitCause::exited ? 0 : 15});
  // Together with the exit, unless it takes time: what was held is then seen to be free at one moment.
  if (holds_gpus) push(now_ + settings_.release_delay, ItemKind::release, 0, task, 0);
}

bool Simulation::accepts(const JobSubmitted& submitted) {
  const auto good = scheduler_.check(submitted.spec, submitted.array);
  if (good) return true;
  ++result_.refused;
  if (result_.refusals.size() < kRefusalsKept) result_.refusals.push_back(good.error().message());
  return false;
}

void Simulation::take_input(const EventPayload& payload) {
  if (const auto* submitted = std::get_if<JobSubmitted>(&payload)) {
    if (!accepts(*submitted)) return;
    const size_t count = std::max<size_t>(submitted->array.indices.size(), 1);
    for (size_t i = 0; i < count; ++i)
      work_[JobId(submitted->job.value() + i)].limit = submitted->spec.time_limit;
  }
  if (!names_a_missing_job(payload)) step(payload);
}

// One that was refused, or has ended earlier here than where the input was recorded.
bool Simulation::names_a_missing_job(const EventPayload& payload) const {
  const auto lives = [this](const auto& change) {
    for (uint64_t i = 0; i <= change.more; ++i) {
      if (scheduler_.has_job(JobId(change.job.value() + i))) return true;
    }
    return false;
  };
  if (const auto* cancelled = std::get_if<JobCancelled>(&payload)) return !lives(*cancelled);
  if (const auto* held = std::get_if<JobHeld>(&payload)) return !lives(*held);
  if (const auto* released = std::get_if<JobReleased>(&payload)) return !lives(*released);
  return false;
}

void Simulation::step(EventPayload payload) {
  now_ = std::max(now_, Time(1));
  const Event event{EventSeq(++last_event_), now_, std::move(payload)};
  const std::vector<Decision> decisions = scheduler_.step(event);
  chronicle_.take(event, decisions);
  if (observer_) observer_(event, decisions);
  for (const Decision& decision : decisions) obey(decision);
  now_ = now_ + kNanosecond;
}

void Simulation::obey(const Decision& decision) {
  if (const auto* start = std::get_if<Start>(&decision)) obey_start(*start);
  if (const auto* stop = std::get_if<Stop>(&decision)) obey_stop(*stop);
  if (const auto* end = std::get_if<End>(&decision)) work_.erase(end->job);
  if (const auto* wake = std::get_if<WakeAt>(&decision))
    push(wake->time, ItemKind::tick, 0, {}, ++wake_generation_);
}

void Simulation::obey_start(const Start& start) {
  LiveTask live{start, now_, {}, ExitCause::exited, false};
  const Work& work = work_[start.task.job];
  Duration left = work.total == kDurationUnknown ? work.limit : work.total - work.done;
  if (settings_.limits_end_jobs && left > work.limit) {
    left = work.limit;
    live.cause = ExitCause::time_limit;
  }
  live.exits_at = moment_ + settings_.start_delay + std::max(left, kNanosecond);
  push(live.exits_at, ItemKind::exit, 0, start.task, 0);
  live_[start.task] = std::move(live);
  push(now_ + settings_.start_delay, ItemKind::started, 0, start.task, 0);
}

void Simulation::obey_stop(const Stop& stop) {
  const auto found = live_.find(stop.task);
  if (found == live_.end() || found->second.stopping || !found->second.exits_at.is_set()) return;
  const auto work = work_.find(stop.task.job);
  if (work != work_.end() && settings_.checkpoint_interval.count() > 0 && stop.task.rank == 0) {
    const int64_t interval = settings_.checkpoint_interval.count();
    work->second.done += Duration((now_ - found->second.since).count() / interval * interval);
    work->second.done = std::min(work->second.done, work->second.total);
  }
  found->second.stopping = true;
  found->second.exits_at = now_;
  push(now_, ItemKind::exit, 0, stop.task, 0);
}

}  // namespace tranche::replay
