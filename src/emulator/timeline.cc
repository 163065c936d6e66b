#include "emulator/timeline.h"

#include <algorithm>

namespace tranche::emulator {
namespace {

// Real time that `tags` of virtual time take while `count` processes share the GPU, rounded up.
uint64_t real_time(uint64_t tags, uint64_t count) {
  const uint64_t part = tags % kTagsPerNanosecond * count;
  return tags / kTagsPerNanosecond * count + (part + kTagsPerNanosecond - 1) / kTagsPerNanosecond;
}

// Adds busy time between two instants to a history, period by period.
template <class History>
void add_span(History& history, uint64_t from, uint64_t to, uint64_t divisor) {
  constexpr uint64_t kPeriods = std::tuple_size_v<decltype(history.periods)>;
  const uint64_t last = to / kSamplePeriodNs;
  uint64_t index = from / kSamplePeriodNs;
  if (last - index >= kPeriods) {  // older periods would be overwritten anyway
    index = last - kPeriods + 1;
    from = index * kSamplePeriodNs;
  }
  for (; index <= last; ++index) {
    const uint64_t end = std::min(to, (index + 1) * kSamplePeriodNs);
    if (end > from) history.add(index, (end - from) / divisor);
    from = end;
  }
}

void add_breakpoint(Timeline& timeline) {
  timeline.breakpoints[timeline.breakpoint_count % timeline.breakpoints.size()] = {
      timeline.now, timeline.virtual_time, timeline.active_count};
  ++timeline.breakpoint_count;
}

// Drops the processes whose work is done; true if there were any.
bool drop_finished(Timeline& timeline, ProcessTimelines& processes) {
  const uint32_t before = timeline.active_count;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < before; ++i) {
    const uint16_t slot = timeline.active[i];
    if (processes.of(slot).finish_tag > timeline.virtual_time) timeline.active[kept++] = slot;
  }
  timeline.active_count = kept;
  return kept != before;
}

// One stretch with an unchanged set of active processes, at most until `now`.
void advance_stretch(Timeline& timeline, ProcessTimelines& processes, uint64_t now) {
  const uint64_t count = timeline.active_count;
  uint64_t first_tag = UINT64_MAX;
  for (uint32_t i = 0; i < count; ++i) {
    first_tag = std::min(first_tag, processes.of(timeline.active[i]).finish_tag);
  }
  const uint64_t tags_left = first_tag > timeline.virtual_time ? first_tag - timeline.virtual_time : 0;
  const uint64_t until_first = real_time(tags_left, count);
  const bool finishes = until_first <= now - timeline.now;
  const uint64_t step = finishes ? until_first : now - timeline.now;
  const uint64_t tags = finishes ? tags_left : step * kTagsPerNanosecond / count;

  add_span(timeline.history, timeline.now, timeline.now + step, 1);
  timeline.busy_ns += step;
  for (uint32_t i = 0; i < count; ++i) {
    ProcessTimeline& process = processes.of(timeline.active[i]);
    process.busy_tags += tags;
    add_span(process.history, timeline.now, timeline.now + step, count);
  }
  timeline.now += step;
  timeline.virtual_time += tags;
  if (finishes && drop_finished(timeline, processes)) add_breakpoint(timeline);
}

const Timeline::Breakpoint& breakpoint(const Timeline& timeline, uint64_t number) {
  return timeline.breakpoints[number % timeline.breakpoints.size()];
}

}  // namespace

void advance(Timeline& timeline, ProcessTimelines& processes, uint64_t now) {
  while (timeline.now < now && timeline.active_count > 0) advance_stretch(timeline, processes, now);
  timeline.now = std::max(timeline.now, now);
}

uint64_t enqueue(Timeline& timeline, ProcessTimelines& processes, uint32_t slot, uint64_t work_ns) {
  ProcessTimeline& process = processes.of(slot);
  const uint64_t work = std::min(work_ns, kBacklogMaxNs) * kTagsPerNanosecond;
  if (process.finish_tag > timeline.virtual_time) {
    const uint64_t latest = timeline.virtual_time + kBacklogMaxNs * kTagsPerNanosecond;
    process.finish_tag = std::max(process.finish_tag, std::min(process.finish_tag + work, latest));
    return process.finish_tag;
  }
  process.finish_tag = timeline.virtual_time + work;
  if (work > 0 && timeline.active_count < kMaxProcesses) {
    timeline.active[timeline.active_count] = static_cast<uint16_t>(slot);
    ++timeline.active_count;
    add_breakpoint(timeline);
  }
  return process.finish_tag;
}

uint64_t expected_time(const Timeline& timeline, ProcessTimelines& processes, uint64_t tag) {
  std::array<uint64_t, kMaxProcesses> tags;
  const uint32_t count = timeline.active_count;
  for (uint32_t i = 0; i < count; ++i) tags[i] = processes.of(timeline.active[i]).finish_tag;
  std::sort(tags.begin(), tags.begin() + count);
  uint64_t time = timeline.now;
  uint64_t virtual_time = timeline.virtual_time;
  for (uint32_t i = 0; i < count && virtual_time < tag; ++i) {
    const uint64_t until = std::min(tag, tags[i]);
    if (until > virtual_time) time += real_time(until - virtual_time, count - i);
    virtual_time = std::max(virtual_time, until);
  }
  return time;
}

uint64_t time_reached(const Timeline& timeline, uint64_t tag) {
  const uint64_t end = timeline.breakpoint_count;
  const uint64_t begin = end > timeline.breakpoints.size() ? end - timeline.breakpoints.size() : 0;
  // The first breakpoint with V >= tag ends the stretch in which the tag was reached.
  uint64_t low = begin, high = end;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (breakpoint(timeline, middle).virtual_time >= tag)
      high = middle;
    else
      low = middle + 1;
  }
  if (low == begin) return begin == end ? timeline.now : breakpoint(timeline, begin).time;
  const Timeline::Breakpoint& start = breakpoint(timeline, low - 1);
  const uint64_t reached = start.time + real_time(tag - start.virtual_time, start.active);
  return std::min(reached, low < end ? breakpoint(timeline, low).time : timeline.now);
}

void abandon(Timeline& timeline, ProcessTimelines& processes, uint32_t slot) {
  ProcessTimeline& process = processes.of(slot);
  process.finish_tag = std::min(process.finish_tag, timeline.virtual_time);
  if (drop_finished(timeline, processes)) add_breakpoint(timeline);
}

void repair(Timeline& timeline, ProcessTimelines& processes, uint32_t slot_count) {
  timeline.active_count = 0;
  for (uint32_t slot = 0; slot < slot_count && slot < kMaxProcesses; ++slot) {
    if (processes.of(slot).finish_tag > timeline.virtual_time) {
      timeline.active[timeline.active_count] = static_cast<uint16_t>(slot);
      ++timeline.active_count;
    }
  }
  add_breakpoint(timeline);
}

}  // namespace tranche::emulator
