// Time on one GPU: which processes have work queued on it, who runs when, and when work is done.
//
// Two ways of sharing, as on hardware:
//   - time slices (the default): one process at a time, in turn, for at most a slice; whoever has nothing
//   left to
//     do gives the rest of its slice up; a switch costs time in which nobody computes;
//   - side by side, as clients of MPS: all at once at full speed while what they demand of the
//   multiprocessors
//     fits, and each proportionally slower when it does not.
// A process's own work is served in order. Work is a kernel with a demand (thousandths of the
// multiprocessors) or a copy, which keeps its process waiting but nobody busy. Kernels are as long as they
// are at the highest clock; while the clock is lower they take longer in proportion, and copies do not. No
// process has to run for time to pass: whoever looks first brings the timeline up to now, slice by slice.
//
// Units: real times are CLOCK_MONOTONIC (or virtual) ns. A tag counts a process's own work in 1/1024 ns of
// exclusive GPU time since it came: its work is done when what it was served reaches the tag. Threading: the
// caller holds the GPU's lock. All of it is plain data in shared memory; what can be derived (the list of
// active processes) is rebuilt by repair() after a process died inside the lock.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

namespace tranche::emulator {

inline constexpr uint32_t kMaxProcesses = 2048;
inline constexpr uint64_t kTagsPerNanosecond = 1024;
// The most work that a process can have queued, 26 days: keeps tags within 64 bits.
inline constexpr uint64_t kBacklogMaxNs = uint64_t{1} << 51;
inline constexpr uint64_t kSamplePeriodNs = 1'000'000'000 / 6;  // NVML's shortest sample period
// Slices are some hundred microseconds to milliseconds (LithOS, SOSP'25); the switch is chosen.
inline constexpr uint64_t kSliceNs = 2'000'000;
inline constexpr uint64_t kSwitchNs = 20'000;

// Busy time by sample period, the last Count of them: what utilisation is read from.
template <uint32_t Count>
struct BusyHistory {
  struct Period {
    uint64_t index = 0;  // period number since boot
    uint64_t busy_ns = 0;
  };
  std::array<Period, Count> periods;

  void add(uint64_t index, uint64_t busy_ns) {
    Period& period = periods[index % Count];
    if (period.index != index) period = {index, 0};
    period.busy_ns += busy_ns;
  }
  uint64_t busy_in(uint64_t index) const {
    const Period& period = periods[index % Count];
    return period.index == index ? period.busy_ns : 0;
  }
};

// What a process has queued, as runs of equal work.
struct Segment {
  uint64_t end_tag = 0;
  uint16_t demand = 0;  // thousandths; 0: a copy
};

// A time in which a process was served evenly.
struct Run {
  uint64_t start = 0, end = 0;          // real time
  uint64_t start_tag = 0, end_tag = 0;  // what it had been served
};

// One process's part of one GPU's timeline.
struct ProcessTimeline {
  uint64_t finish_tag = 0;  // of all that it ever queued
  uint64_t served_tag = 0;  // of what it has been served
  uint64_t busy_tags = 0;   // GPU time that its kernels have had since it came, at whatever clock
  BusyHistory<32> history;  // the same by sample period
  uint32_t segment_first = 0, segment_count = 0;
  std::array<Segment, 64> segments;  // a ring; what does not fit joins the last
  uint64_t run_count = 0;            // ever; the ring holds the newest
  std::array<Run, 64> runs;

  bool has_work() const { return finish_tag > served_tag; }
};

enum class Sharing : uint32_t { slices = 0, side_by_side = 1 };

struct Timeline {
  uint64_t now = 0;      // up to where time has been accounted
  uint64_t busy_ns = 0;  // total time with at least one kernel at work
  Sharing sharing = Sharing::slices;
  uint32_t slowed_by = 0;  // thousandths of their speed that kernels lack, because the clock is lowered
  uint32_t active_count = 0;
  uint32_t current = 0;  // whose turn it is, an index into `active`
  uint64_t slice_left = kSliceNs;
  uint64_t switch_left = 0;
  std::array<uint16_t, kMaxProcesses> active;  // slots with work left, in the order of their turns
  BusyHistory<64> history;
};

// How a timeline finds the part of the process in slot `slot`.
class ProcessTimelines {
 public:
  virtual ProcessTimeline& of(uint32_t slot) = 0;

 protected:
  ProcessTimelines() = default;
  ~ProcessTimelines() = default;
};

// Accounts for the time until `now`; earlier times are ignored.
void advance(Timeline& timeline, ProcessTimelines& processes, uint64_t now);
// Queues `work_ns` of exclusive GPU time behind the work of `slot`, `demand` as in Segment; returns the tag
// at which it is done. What exceeds kBacklogMaxNs is not queued. The timeline has been advanced to now.
uint64_t enqueue(Timeline& timeline, ProcessTimelines& processes, uint32_t slot, uint64_t work_ns,
                 uint32_t demand = 1000);
// A time not after that at which `slot` will have been served `tag`, whoever comes: when to look again. It is
// that time itself if the process is alone. The timeline has been advanced to now.
uint64_t expected_time(const Timeline& timeline, ProcessTimelines& processes, uint32_t slot, uint64_t tag);
// When `slot` had been served `tag`, which it has. `not_before` and `tag_then` say what was known when the
// tag was made; what is too long ago for the runs that are kept is interpolated from there.
uint64_t time_reached(const ProcessTimeline& process, uint64_t tag, uint64_t not_before, uint64_t tag_then);
// Forgets the queued work of `slot`, whose process has died.
void abandon(Timeline& timeline, ProcessTimelines& processes, uint32_t slot);
// Rebuilds what is derived, from the tags of those of the first `slot_count` slots whose work runs here.
void repair(Timeline& timeline, ProcessTimelines& processes, uint32_t slot_count,
            const std::function<bool(uint32_t slot)>& runs_here);

}  // namespace tranche::emulator
