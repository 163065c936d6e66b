// Time on one GPU: which processes have work queued on it, and when that work is done.
//
// Processes on one GPU share it equally: of N busy processes each runs at 1/N of the GPU's speed, as under
// the driver's round-robin time slices seen from afar. The bookkeeping is that of fair queueing: virtual
// time V grows at 1/N of real time; a process's work queued so far ends when V reaches its finish tag, and
// more work only moves that one tag. No process has to run for time to pass: whoever looks first brings
// the timeline up to now.
//
// Units: real times are CLOCK_MONOTONIC ns; tags and virtual time are 1/1024 ns of exclusive GPU time.
// Threading: the caller holds the GPU's lock. All of it is plain data in shared memory; what can be
// derived (the list of active processes) is rebuilt by repair() after a process died inside the lock.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tranche::emulator {

inline constexpr uint32_t kMaxProcesses = 2048;
inline constexpr uint64_t kTagsPerNanosecond = 1024;
// The most work that a process can have queued, 26 days: keeps tags times processes within 64 bits.
inline constexpr uint64_t kBacklogMaxNs = uint64_t{1} << 51;
inline constexpr uint64_t kSamplePeriodNs = 1'000'000'000 / 6;  // NVML's shortest sample period

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

// One process's part of one GPU's timeline.
struct ProcessTimeline {
  uint64_t finish_tag = 0;  // V at which all its queued work is done
  uint64_t busy_tags = 0;   // GPU time it has had since it came
  BusyHistory<32> history;  // the GPU time it had, by sample period
};

struct Timeline {
  // Where V's speed changed: at `time` V was `virtual_time` and from then on `active` processes shared it.
  struct Breakpoint {
    uint64_t time = 0;
    uint64_t virtual_time = 0;
    uint32_t active = 0;
  };

  uint64_t now = 0;  // up to where time has been accounted
  uint64_t virtual_time = 0;
  uint64_t busy_ns = 0;  // total time with at least one process at work
  uint32_t active_count = 0;
  std::array<uint16_t, kMaxProcesses> active;  // slots with work left
  uint64_t breakpoint_count = 0;               // ever written; the ring holds the newest
  std::array<Breakpoint, 4096> breakpoints;
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
// Queues `work_ns` of exclusive GPU time behind the work of `slot`; returns the tag at which it is done.
// What exceeds kBacklogMaxNs is not queued.
// The timeline has been advanced to now.
uint64_t enqueue(Timeline& timeline, ProcessTimelines& processes, uint32_t slot, uint64_t work_ns);
// When V will reach `tag`, if no process comes or goes. The timeline has been advanced to now.
uint64_t expected_time(const Timeline& timeline, ProcessTimelines& processes, uint64_t tag);
// When V reached `tag`, which it has. The oldest time known if that is too long ago to tell.
uint64_t time_reached(const Timeline& timeline, uint64_t tag);
// Forgets the queued work of `slot`, whose process has died.
void abandon(Timeline& timeline, ProcessTimelines& processes, uint32_t slot);
// Rebuilds what is derived, from the finish tags of `slots`.
void repair(Timeline& timeline, ProcessTimelines& processes, uint32_t slot_count);

}  // namespace tranche::emulator
