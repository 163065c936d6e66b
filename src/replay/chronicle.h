// What became of every job, told from events and decisions alone: whoever decided them, the daemon once or a
// simulation now. So a recorded week and what another policy makes of it are measured alike.
//
// Threading: none. Contradicting rows (an exit of a task that nobody started) are ignored.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/decision.h"
#include "model/event.h"

namespace tranche::replay {

struct JobStory {
  JobId job;
  std::string user;
  std::string queue;
  Time submitted;
  Time started;  // first; unset: never
  Time ended;    // unset: not yet
  JobState state = JobState::pending;
  uint32_t preemptions = 0;   // it was preempted or reclaimed and waits again
  int64_t held_milli_us = 0;  // milli-GPU x microseconds that its slices were held
};

struct ChronicleTotals {
  Time begin;                     // of the first submission
  Time end;                       // of the last event
  int64_t capacity_milli_us = 0;  // milli-GPU x microseconds installed between the two
  int64_t held_milli_us = 0;      // of it, held by tasks
  uint64_t events = 0;
  uint64_t decisions = 0;
};

class Chronicle {
 public:
  void take(const Event& event, std::span<const Decision> decisions);

  std::vector<JobStory> stories() const;  // by job
  // As of the last event, with what is held then.
  ChronicleTotals totals() const;

 private:
  struct Held {
    JobId job;
    std::map<GpuId, int64_t> milli;
    Time since;
  };

  void take_event(const Event& event);
  void take_decision(const Decision& decision);
  void release(const TaskKey& task, std::optional<GpuId> only);
  void settle(Held& held);
  void settle_capacity();

  Time now_;
  Time capacity_since_;
  std::map<GpuId, bool> installed_;
  int64_t installed_count_ = 0;
  std::map<JobId, JobStory> stories_;
  std::map<TaskKey, Held> held_;
  ChronicleTotals totals_;
};

}  // namespace tranche::replay
