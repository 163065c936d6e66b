#include "emulator/timeline.h"

#include <algorithm>

namespace tranche::emulator {
namespace {

constexpr uint64_t kWholeGpu = 1000;           // a demand of all multiprocessors
__extension__ using Wide = unsigned __int128;  // for products of two times

uint64_t nanoseconds(uint64_t tags) { return (tags + kTagsPerNanosecond - 1) / kTagsPerNanosecond; }

// tags * to / from, where that product would not fit.
uint64_t scaled(uint64_t tags, uint64_t to, uint64_t from) {
  return tags / from * to + tags % from * to / from;
}

// At which kernels run, in thousandths of what they do at the highest clock.
uint64_t kernel_speed(const Timeline& timeline) {
  return kWholeGpu - std::min<uint64_t>(timeline.slowed_by, kWholeGpu - 1);
}

// Adds busy time between two instants to a history, period by period; `part` in 1/1024.
template <class History>
void add_span(History& history, uint64_t from, uint64_t to, uint64_t part) {
  constexpr uint64_t kPeriods = std::tuple_size_v<decltype(history.periods)>;
  const uint64_t last = to / kSamplePeriodNs;
  uint64_t index = from / kSamplePeriodNs;
  if (last - index >= kPeriods) {  // older periods would be overwritten anyway
    index = last - kPeriods + 1;
    from = index * kSamplePeriodNs;
  }
  for (; index <= last; ++index) {
    const uint64_t end = std::min(to, (index + 1) * kSamplePeriodNs);
    if (end > from) history.add(index, (end - from) * part / kTagsPerNanosecond);
    from = end;
  }
}

// The memory is shared with programs that may have spoilt it: nothing is indexed past its end.
Segment& segment_at(ProcessTimeline& process, uint32_t number) {
  return process.segments[(process.segment_first + number) % process.segments.size()];
}

uint32_t segments_of(const ProcessTimeline& process) {
  return std::min<uint32_t>(process.segment_count, static_cast<uint32_t>(process.segments.size()));
}

uint16_t demand_now(ProcessTimeline& process) {
  return segments_of(process) == 0 ? uint16_t{kWholeGpu} : segment_at(process, 0).demand;
}

// Tags until the end of the work that it is at.
uint64_t left_in_segment(ProcessTimeline& process) {
  const uint64_t end = segments_of(process) == 0 ? process.finish_tag : segment_at(process, 0).end_tag;
  const uint64_t until = std::min(end, process.finish_tag);
  return until > process.served_tag ? until - process.served_tag : 0;
}

void drop_served_segments(ProcessTimeline& process) {
  while (segments_of(process) > 0 && segment_at(process, 0).end_tag <= process.served_tag) {
    process.segment_first = (process.segment_first + 1) % static_cast<uint32_t>(process.segments.size());
    --process.segment_count;
  }
}

void add_segment(ProcessTimeline& process, uint64_t end_tag, uint16_t demand) {
  const uint32_t count = segments_of(process);
  if (count > 0) {
    Segment& last = segment_at(process, count - 1);
    if (last.demand == demand || count == process.segments.size()) {
      last.end_tag = end_tag;
      return;
    }
  }
  segment_at(process, count) = {end_tag, demand};
  process.segment_count = count + 1;
}

// Gives a process `tags` of service between two instants; a kernel has run at `speed`.
void serve(ProcessTimeline& process, uint64_t from, uint64_t to, uint64_t tags, uint64_t speed) {
  if (demand_now(process) > 0) {
    const uint64_t busy = scaled(tags, kWholeGpu, speed);  // a slow kernel keeps the GPU for longer
    process.busy_tags += busy;
    const uint64_t span = to - from;
    if (span > 0) add_span(process.history, from, to, std::min<uint64_t>(busy / span, kTagsPerNanosecond));
  }
  Run* const last =
      process.run_count == 0 ? nullptr : &process.runs[(process.run_count - 1) % process.runs.size()];
  const bool goes_on = last != nullptr && last->end == from && last->end_tag == process.served_tag &&
                       (last->end_tag - last->start_tag) * (to - from) == tags * (last->end - last->start);
  const uint64_t before = process.served_tag;
  process.served_tag += tags;
  if (goes_on) {
    last->end = to;
    last->end_tag = process.served_tag;
  } else {
    process.runs[process.run_count % process.runs.size()] = {from, to, before, process.served_tag};
    ++process.run_count;
  }
  drop_served_segments(process);
}

// Takes whoever has nothing left out of the list; whose turn it is stays.
void drop_finished(Timeline& timeline, ProcessTimelines& processes) {
  uint32_t kept = 0, current = timeline.current;
  bool gone = false;
  for (uint32_t i = 0; i < timeline.active_count; ++i) {
    const uint16_t slot = timeline.active[i];
    if (processes.of(slot).has_work()) {
      timeline.active[kept++] = slot;
    } else {
      if (i < timeline.current) --current;
      gone = gone || i == timeline.current;
    }
  }
  timeline.active_count = kept;
  timeline.current = kept == 0 ? 0 : current % kept;
  if (!gone) return;
  timeline.slice_left = kSliceNs;
  timeline.switch_left = kept > 0 ? kSwitchNs : 0;
}

void next_turn(Timeline& timeline) {
  timeline.slice_left = kSliceNs;
  if (timeline.active_count < 2) return;
  timeline.current = (timeline.current + 1) % timeline.active_count;
  timeline.switch_left = kSwitchNs;
}

// The process whose turn it is runs: until its work or its slice ends, at most until `now`.
void advance_slice(Timeline& timeline, ProcessTimelines& processes, uint64_t now) {
  if (timeline.switch_left > 0) {
    const uint64_t step = std::min(timeline.switch_left, now - timeline.now);
    timeline.switch_left -= step;
    timeline.now += step;
    return;
  }
  ProcessTimeline& process = processes.of(timeline.active[timeline.current % timeline.active_count]);
  const uint64_t left = left_in_segment(process);
  const bool is_kernel = demand_now(process) > 0;
  const uint64_t allowed =
      timeline.active_count > 1 ? std::min(timeline.slice_left, now - timeline.now) : now - timeline.now;
  const uint64_t speed = is_kernel ? kernel_speed(timeline) : kWholeGpu;
  const uint64_t needed = nanoseconds(scaled(left, kWholeGpu, speed));
  const uint64_t step = std::min(allowed, needed);
  const uint64_t tags = step == needed ? left : scaled(step * kTagsPerNanosecond, speed, kWholeGpu);
  if (is_kernel) {
    timeline.busy_ns += step;
    add_span(timeline.history, timeline.now, timeline.now + step, kTagsPerNanosecond);
  }
  serve(process, timeline.now, timeline.now + step, tags, speed);
  timeline.now += step;
  timeline.slice_left -= std::min(timeline.slice_left, step);
  if (!process.has_work())
    drop_finished(timeline, processes);
  else if (timeline.slice_left == 0)
    next_turn(timeline);
}

uint64_t total_demand(Timeline& timeline, ProcessTimelines& processes) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < timeline.active_count; ++i) total += demand_now(processes.of(timeline.active[i]));
  return total;
}

// How fast a process is served side by side with the others: `served` tags in the time of `whole` alone.
struct Rate {
  uint64_t served = kWholeGpu, whole = kWholeGpu;
};

// All run: until the first of them ends a piece of work, at most until `now`.
void advance_side_by_side(Timeline& timeline, ProcessTimelines& processes, uint64_t now) {
  const uint64_t speed = kernel_speed(timeline);
  const Rate kernels{speed, std::max(total_demand(timeline, processes), kWholeGpu)}, copies;
  const auto rate_of = [&](ProcessTimeline& process) { return demand_now(process) > 0 ? kernels : copies; };
  const auto needed_by = [&](ProcessTimeline& process) {
    const Rate rate = rate_of(process);
    return nanoseconds(scaled(left_in_segment(process), rate.whole, rate.served));
  };
  uint64_t step = now - timeline.now;
  for (uint32_t i = 0; i < timeline.active_count; ++i) {
    step = std::min(step, needed_by(processes.of(timeline.active[i])));
  }
  bool any_kernel = false;
  for (uint32_t i = 0; i < timeline.active_count; ++i) {
    ProcessTimeline& process = processes.of(timeline.active[i]);
    any_kernel = any_kernel || demand_now(process) > 0;
    const Rate rate = rate_of(process);
    const uint64_t left = left_in_segment(process);
    const uint64_t tags = scaled(step * kTagsPerNanosecond, rate.served, rate.whole);
    const bool ends = needed_by(process) == step;
    serve(process, timeline.now, timeline.now + step, ends ? left : std::min(tags, left), speed);
  }
  if (any_kernel) {
    timeline.busy_ns += step;
    add_span(timeline.history, timeline.now, timeline.now + step, kTagsPerNanosecond);
  }
  timeline.now += step;
  drop_finished(timeline, processes);
}

// Time that `process` would need alone for its work up to `goal`.
uint64_t time_alone(ProcessTimeline& process, uint64_t goal, uint64_t speed) {
  uint64_t at = process.served_tag;
  if (goal <= at) return 0;
  if (speed == kWholeGpu) return nanoseconds(goal - at);
  uint64_t tags = 0;
  for (uint32_t i = 0; i < segments_of(process) && at < goal; ++i) {
    const Segment& segment = segment_at(process, i);
    const uint64_t end = std::min(segment.end_tag, goal);
    if (end <= at) continue;
    tags += segment.demand == 0 ? end - at : scaled(end - at, kWholeGpu, speed);
    at = end;
  }
  return nanoseconds(tags + (goal - at));
}

}  // namespace

void advance(Timeline& timeline, ProcessTimelines& processes, uint64_t now) {
  while (timeline.now < now && timeline.active_count > 0) {
    if (timeline.sharing == Sharing::side_by_side)
      advance_side_by_side(timeline, processes, now);
    else
      advance_slice(timeline, processes, now);
  }
  timeline.now = std::max(timeline.now, now);
}

uint64_t enqueue(Timeline& timeline, ProcessTimelines& processes, uint32_t slot, uint64_t work_ns,
                 uint32_t demand) {
  ProcessTimeline& process = processes.of(slot);
  const bool was_idle = !process.has_work();
  const uint64_t work = std::min(work_ns, kBacklogMaxNs) * kTagsPerNanosecond;
  const uint64_t latest = process.served_tag + kBacklogMaxNs * kTagsPerNanosecond;
  const uint64_t finish = std::max(process.finish_tag, std::min(process.finish_tag + work, latest));
  if (finish == process.finish_tag) return finish;
  process.finish_tag = finish;
  add_segment(process, finish, static_cast<uint16_t>(std::min<uint64_t>(demand, kWholeGpu)));
  if (!was_idle || timeline.active_count >= kMaxProcesses) return finish;
  if (timeline.active_count == 0) {
    timeline.current = 0;
    timeline.slice_left = kSliceNs;
    timeline.switch_left = 0;
  }
  timeline.active[timeline.active_count] = static_cast<uint16_t>(slot);
  ++timeline.active_count;
  return finish;
}

// The turns are played through, as advance would take them, for at most kTurnsAhead of them.
uint64_t expected_time(const Timeline& timeline, ProcessTimelines& processes, uint32_t slot, uint64_t tag) {
  constexpr uint32_t kTurnsAhead = 4096;
  ProcessTimeline& process = processes.of(slot);
  const uint64_t speed = kernel_speed(timeline);
  uint64_t own = time_alone(process, std::min(tag, process.finish_tag), speed);
  if (timeline.sharing == Sharing::side_by_side || timeline.active_count < 2) return timeline.now + own;
  std::array<uint64_t, kMaxProcesses> left;
  for (uint32_t i = 0; i < timeline.active_count; ++i) {
    ProcessTimeline& its = processes.of(timeline.active[i]);
    left[i] = time_alone(its, its.finish_tag, speed);
  }
  uint64_t time = timeline.now + timeline.switch_left, slice = timeline.slice_left;
  uint32_t turn = timeline.current % timeline.active_count;
  for (uint32_t i = 0; i < kTurnsAhead; ++i) {
    const bool is_own = timeline.active[turn] == slot;
    const uint64_t step = std::min(slice, left[turn]);
    if (is_own && own <= step) return time + own;
    if (is_own) own -= step;
    left[turn] -= step;
    time += step;
    const uint32_t before = turn;
    do turn = (turn + 1) % timeline.active_count;
    while (left[turn] == 0 && turn != before);
    if (turn != before) time += kSwitchNs;
    slice = kSliceNs;
  }
  return time;
}

uint64_t time_reached(const ProcessTimeline& process, uint64_t tag, uint64_t not_before, uint64_t tag_then) {
  const uint64_t kept = std::min<uint64_t>(process.run_count, process.runs.size());
  uint64_t next_start = 0, next_tag = 0;  // of the oldest run looked at
  for (uint64_t i = 0; i < kept; ++i) {
    const Run& run = process.runs[(process.run_count - 1 - i) % process.runs.size()];
    if (run.end_tag < tag) return next_start == 0 ? run.end : next_start;  // reached as that run began
    if (run.start_tag <= tag) {
      const uint64_t tags = run.end_tag - run.start_tag;
      if (tags == 0) return std::max(run.end, not_before);
      const auto part = static_cast<Wide>(run.end - run.start) * (tag - run.start_tag);
      return std::max(run.start + static_cast<uint64_t>(part / tags), not_before);
    }
    next_start = run.start;
    next_tag = run.start_tag;
  }
  if (next_start <= not_before || next_tag <= tag_then || tag <= tag_then) return not_before;
  const auto part = static_cast<Wide>(next_start - not_before) * (tag - tag_then);
  return not_before + static_cast<uint64_t>(part / (next_tag - tag_then));
}

void abandon(Timeline& timeline, ProcessTimelines& processes, uint32_t slot) {
  ProcessTimeline& process = processes.of(slot);
  process.finish_tag = std::min(process.finish_tag, process.served_tag);
  process.segment_count = 0;
  drop_finished(timeline, processes);
}

void repair(Timeline& timeline, ProcessTimelines& processes, uint32_t slot_count,
            const std::function<bool(uint32_t slot)>& runs_here) {
  timeline.active_count = 0;
  for (uint32_t slot = 0; slot < slot_count && slot < kMaxProcesses; ++slot) {
    if (!processes.of(slot).has_work() || !runs_here(slot)) continue;
    timeline.active[timeline.active_count] = static_cast<uint16_t>(slot);
    ++timeline.active_count;
  }
  timeline.current = 0;
  timeline.slice_left = kSliceNs;
  timeline.switch_left = 0;
}

}  // namespace tranche::emulator
