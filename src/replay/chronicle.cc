#include "replay/chronicle.h"

#include <algorithm>
#include <utility>

namespace tranche::replay {
namespace {

int64_t microseconds(Duration duration) { return duration.count() / 1000; }

int64_t milli_of(const Slice& slice) {
  return slice.kind == SliceKind::whole ? kWholeGpu.count() : slice.compute.count();
}

}  // namespace

void Chronicle::take(const Event& event, std::span<const Decision> decisions) {
  now_ = event.time;
  ++totals_.events;
  totals_.decisions += decisions.size();
  take_event(event);
  for (const Decision& decision : decisions) take_decision(decision);
}

void Chronicle::take_event(const Event& event) {
  if (const auto* e = std::get_if<JobSubmitted>(&event.payload)) {
    if (!totals_.begin.is_set()) totals_.begin = capacity_since_ = now_;
    const size_t count = std::max<size_t>(e->array.indices.size(), 1);
    for (size_t i = 0; i < count; ++i) {
      JobStory story;
      story.job = JobId(e->job.value() + i);
      story.user = e->spec.owner.user;
      story.queue = e->spec.queue;
      story.submitted = now_;
      stories_[story.job] = std::move(story);
    }
  }
  if (const auto* e = std::get_if<TaskStartFailed>(&event.payload)) release(e->task, std::nullopt);
  if (const auto* e = std::get_if<SliceReleased>(&event.payload)) release(e->task, e->gpu);
  // Which GPUs there are.
  const auto change = [&](GpuId gpu, bool there) {
    settle_capacity();
    const bool before = std::exchange(installed_[gpu], there);
    installed_count_ += (there ? 1 : 0) - (before ? 1 : 0);
  };
  if (const auto* e = std::get_if<GpuAdded>(&event.payload)) change(e->gpu.id, true);
  if (const auto* e = std::get_if<GpuRemoved>(&event.payload)) change(e->gpu, false);
  if (const auto* e = std::get_if<HealthChanged>(&event.payload)) change(e->gpu, e->health != Health::lost);
}

void Chronicle::take_decision(const Decision& decision) {
  if (const auto* start = std::get_if<Start>(&decision)) {
    const auto story = stories_.find(start->task.job);
    if (story == stories_.end()) return;
    if (!story->second.started.is_set()) story->second.started = now_;
    Held held{start->task.job, {}, now_};
    for (const Slice& slice : start->slices) held.milli[slice.gpu] = milli_of(slice);
    held_[start->task] = std::move(held);
  }
  if (const auto* end = std::get_if<End>(&decision)) {
    const auto story = stories_.find(end->job);
    if (story == stories_.end()) return;
    story->second.ended = now_;
    story->second.state = end->state;
  }
  if (const auto* requeue = std::get_if<Requeue>(&decision)) {
    const auto story = stories_.find(requeue->job);
    const bool for_others =
        requeue->reason == StopReason::preempted || requeue->reason == StopReason::reclaimed;
    if (story != stories_.end() && for_others) ++story->second.preemptions;
  }
}

void Chronicle::release(const TaskKey& task, std::optional<GpuId> only) {
  const auto found = held_.find(task);
  if (found == held_.end()) return;
  settle(found->second);
  if (only) found->second.milli.erase(*only);
  if (!only || found->second.milli.empty()) held_.erase(found);
}

void Chronicle::settle(Held& held) {
  int64_t milli = 0;
  for (const auto& [gpu, amount] : held.milli) milli += amount;
  const int64_t amount = milli * microseconds(now_ - held.since);
  held.since = now_;
  stories_.at(held.job).held_milli_us += amount;
  totals_.held_milli_us += amount;
}

void Chronicle::settle_capacity() {
  if (!totals_.begin.is_set()) return;
  totals_.capacity_milli_us += installed_count_ * kWholeGpu.count() * microseconds(now_ - capacity_since_);
  capacity_since_ = now_;
}

std::vector<JobStory> Chronicle::stories() const {
  Chronicle settled = *this;
  for (auto& [task, held] : settled.held_) settled.settle(held);
  std::vector<JobStory> result;
  for (auto& [id, story] : settled.stories_) result.push_back(std::move(story));
  return result;
}

ChronicleTotals Chronicle::totals() const {
  Chronicle settled = *this;
  for (auto& [task, held] : settled.held_) settled.settle(held);
  settled.settle_capacity();
  settled.totals_.end = now_;
  return settled.totals_;
}

}  // namespace tranche::replay
