// The scheduler's third body: virtual time. Inputs are given with their times, the simulation makes the
// outcomes (starts, exits, releases, ticks) that follow from the decisions, and the same step() decides as in
// the daemon.
//
// Model of a job: it works for a given time once its tasks run and then exits by itself; a task that is told
// to stop goes at once; a job that was preempted starts its work anew, less what its last checkpoint kept. No
// time passes between a decision and its start or between an exit and the release, unless the settings say
// so.
//
// Events of one moment get times a nanosecond apart, as in a journal. What follows from them is planned from
// the moment, to the millisecond, and not from those times: otherwise the order in which two jobs end that
// end together would hang on how many rows came before, and a recorded history would not be given back.
//
// Equal input gives equal output. Threading: none. Errors: a submission that Scheduler::check refuses is
// counted and not submitted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "replay/chronicle.h"
#include "scheduler/scheduler.h"

namespace tranche::replay {

// The moment that a time belongs to: whole milliseconds.
Time moment_of(Time time);

// The work of a job that only its time limit ends.
inline constexpr Duration kEndlessWork{INT64_MAX / 2};

struct SimulationSettings {
  Duration start_delay;          // from Start to TaskStarted
  Duration release_delay;        // from exit to SliceReleased
  Duration checkpoint_interval;  // work is kept in multiples of this; zero: none is
  bool limits_end_jobs = true;   // a job is ended at its time limit, as the daemon does
};

struct SimulationResult {
  std::vector<JobStory> stories;  // by job
  ChronicleTotals totals;
  uint64_t refused = 0;               // submissions, by check()
  std::vector<std::string> refusals;  // the first few, as sentences
};

class Simulation {
 public:
  using Observer = std::function<void(const Event&, std::span<const Decision>)>;

  explicit Simulation(SimulationSettings settings = {}) : settings_(settings) {}
  void observe(Observer observer) { observer_ = std::move(observer); }

  // An input at its time; equal times in the order of the calls. Outcomes are not to be given.
  void add(Time time, EventPayload payload);
  // How long the job works, all in all. One without runs to its time limit.
  void set_work(JobId job, Duration work) { work_[job].total = work; }

  // Plays everything to its end: no input and no outcome is left, or `until` has come. Once.
  SimulationResult run(Time until = kNever);

  const scheduler::Scheduler& scheduler() const { return scheduler_; }

 private:
  enum class ItemKind : uint8_t { input, started, exit, release, tick };
  struct Item {
    Time time;
    uint64_t order = 0;
    ItemKind kind = ItemKind::input;
    size_t input = 0;
    TaskKey task;
    uint64_t generation = 0;  // of a tick
    bool operator>(const Item& other) const {
      return std::tie(time, order) > std::tie(other.time, other.order);
    }
  };
  struct LiveTask {
    Start start;
    Time since;
    Time exits_at;
    ExitCause cause = ExitCause::exited;
    bool stopping = false;
  };
  struct Work {
    Duration total = kDurationUnknown;
    Duration done;  // kept by a checkpoint
    Duration limit;
  };
  static constexpr Duration kDurationUnknown{INT64_MAX};

  void push(Time time, ItemKind kind, size_t input, TaskKey task, uint64_t generation);
  void play(const Item& item);
  void play_exit(const TaskKey& task);
  void take_input(const EventPayload& payload);
  bool accepts(const JobSubmitted& submitted);
  bool names_a_missing_job(const EventPayload& payload) const;
  void step(EventPayload payload);
  void obey(const Decision& decision);
  void obey_start(const Start& start);
  void obey_stop(const Stop& stop);

  SimulationSettings settings_;
  Observer observer_;
  scheduler::Scheduler scheduler_;
  Chronicle chronicle_;
  std::vector<EventPayload> inputs_;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> agenda_;
  std::map<TaskKey, LiveTask> live_;
  std::map<JobId, Work> work_;
  Time now_;     // of the next event: later than the last one
  Time moment_;  // that is being played
  uint64_t next_order_ = 0;
  uint64_t last_event_ = 0;
  uint64_t wake_generation_ = 0;
  SimulationResult result_;
};

}  // namespace tranche::replay
