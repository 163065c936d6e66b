#include "replay/simulation.h"

#include <algorithm>

namespace tranche::replay {
namespace {

constexpr size_t kRefusalsKept = 5;
constexpr int64_t kNanosecondsPerMicrosecond = 1000;

int64_t held_milli(const Start& start) {
  int64_t milli = 0;
  for (const Slice& slice : start.slices)
    milli += slice.kind == SliceKind::whole ? kWholeGpu.count() : slice.compute.count();
  return milli;
}

bool changes_gpus(const EventPayload& payload) {
  return std::holds_alternative<GpuAdded>(payload) || std::holds_alternative<GpuRemoved>(payload) ||
         std::holds_alternative<NodeRemoved>(payload) || std::holds_alternative<HealthChanged>(payload);
}

}  // namespace

void Simulation::push(Time time, ItemKind kind, size_t input, TaskKey task, uint64_t generation) {
  agenda_.push(Item{time, next_order_++, kind, input, task, generation});
}

void Simulation::add(Time time, EventPayload payload) {
  inputs_.push_back(std::move(payload));
  push(time, ItemKind::input, inputs_.size() - 1, {}, 0);
}

void Simulation::submit(Time time, JobId job, JobSpec spec, Duration work) {
  work_[job] = {work, {}, spec.time_limit};
  add(time, JobSubmitted{job, std::move(spec), {}});
}

SimulationResult Simulation::run(Time until) {
  while (!agenda_.empty() && agenda_.top().time <= until) {
    const Item item = agenda_.top();
    agenda_.pop();
    now_ = std::max(now_ + kNanosecond, item.time);
    play(item);
  }
  account_capacity();
  for (const auto& [task, live] : live_) {
    story(task.job).held_milli_us +=
        held_milli(live.start) * ((now_ - live.since).count() / kNanosecondsPerMicrosecond);
  }
  result_.end = now_;
  result_.jobs.clear();
  for (auto& [id, each] : stories_) result_.jobs.push_back(each);
  return result_;
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
    case ItemKind::release:
      if (live == live_.end()) return;
      for (const Slice& slice : std::vector<Slice>(live->second.start.slices)) {
        step(SliceReleased{item.task, slice.gpu});
      }
      live_.erase(item.task);
      return;
    case ItemKind::tick:
      if (item.generation == wake_generation_) step(Tick{});
      return;
  }
}

void Simulation::play_exit(const TaskKey& task) {
  LiveTask& live = live_.at(task);
  JobStory& job = story(task.job);
  job.held_milli_us += held_milli(live.start) * ((now_ - live.since).count() / kNanosecondsPerMicrosecond);
  live.since = now_;
  live.exits_at = Time();
  const ExitCause cause = live.stopping ? ExitCause::killed : live.cause;
  if (live.start.slices.empty()) {
    live_.erase(task);
  } else {
    push(now_ + settings_.release_delay, ItemKind::release, 0, task, 0);
  }
  step(TaskExited{task, cause, 0, cause == ExitCause::exited ? 0 : 15});
}

void Simulation::take_input(const EventPayload& payload) {
  if (const auto* submitted = std::get_if<JobSubmitted>(&payload)) {
    if (const auto good = scheduler_.check(submitted->spec, submitted->array); !good) {
      ++result_.refused;
      if (result_.refusals.size() < kRefusalsKept) result_.refusals.push_back(good.error().message());
      return;
    }
    if (!result_.begin.is_set()) {
      result_.begin = now_;
      capacity_since_ = now_;
    }
    const size_t count = std::max<size_t>(submitted->array.indices.size(), 1);
    for (size_t i = 0; i < count; ++i) {
      JobStory made;
      made.job = JobId(submitted->job.value() + i);
      made.user = submitted->spec.owner.user;
      made.queue = submitted->spec.queue;
      made.submitted = now_;
      stories_[made.job] = std::move(made);
    }
  }
  step(payload);
  if (!changes_gpus(payload)) return;
  account_capacity();
  installed_ = MilliGpu();
  for (const auto& gpu : scheduler_.gpus()) {
    if (gpu.health != Health::lost) installed_ += kWholeGpu;
  }
}

void Simulation::account_capacity() {
  if (!result_.begin.is_set()) return;
  result_.capacity_milli_us +=
      installed_.count() * ((now_ - capacity_since_).count() / kNanosecondsPerMicrosecond);
  capacity_since_ = now_;
}

void Simulation::step(EventPayload payload) {
  now_ = std::max(now_, Time(1));
  const Event event{EventSeq(++last_event_), now_, std::move(payload)};
  const std::vector<Decision> decisions = scheduler_.step(event);
  now_ = now_ + kNanosecond;
  ++result_.events;
  result_.decisions += decisions.size();
  if (observer_) observer_(event, decisions);
  for (const Decision& decision : decisions) obey(decision);
}

void Simulation::obey(const Decision& decision) {
  if (const auto* start = std::get_if<Start>(&decision)) obey_start(*start);
  if (const auto* stop = std::get_if<Stop>(&decision)) obey_stop(*stop);
  if (const auto* end = std::get_if<End>(&decision)) {
    story(end->job).ended = now_;
    story(end->job).state = end->state;
    work_.erase(end->job);
  }
  if (const auto* requeue = std::get_if<Requeue>(&decision)) {
    ++story(requeue->job).preemptions;
  }
  if (const auto* wake = std::get_if<WakeAt>(&decision)) {
    push(wake->time, ItemKind::tick, 0, {}, ++wake_generation_);
  }
}

void Simulation::obey_start(const Start& start) {
  JobStory& job = story(start.task.job);
  if (!job.started.is_set()) job.started = now_;
  const auto work = work_.find(start.task.job);
  LiveTask live{start, now_, {}, ExitCause::exited, false};
  if (work != work_.end()) {
    Duration left = work->second.total - work->second.done;
    if (settings_.limits_end_jobs && left > work->second.limit) {
      left = work->second.limit;
      live.cause = ExitCause::time_limit;
    }
    live.exits_at = now_ + settings_.start_delay + std::max(left, kNanosecond);
    push(live.exits_at, ItemKind::exit, 0, start.task, 0);
  }
  live_[start.task] = std::move(live);
  push(now_ + settings_.start_delay, ItemKind::started, 0, start.task, 0);
}

void Simulation::obey_stop(const Stop& stop) {
  const auto found = live_.find(stop.task);
  if (found == live_.end() || found->second.stopping || !found->second.exits_at.is_set()) return;
  const auto work = work_.find(stop.task.job);
  if (work != work_.end() && settings_.checkpoint_interval.count() > 0 && stop.task.rank == 0) {
    const int64_t interval = settings_.checkpoint_interval.count();
    const int64_t done = (now_ - found->second.since).count() / interval * interval;
    work->second.done = std::min(work->second.done + Duration(done), work->second.total);
  }
  found->second.stopping = true;
  found->second.exits_at = now_;
  push(now_, ItemKind::exit, 0, stop.task, 0);
}

}  // namespace tranche::replay
