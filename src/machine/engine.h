// Where everything that happens becomes an event, is decided on, and is made durable.
//
// record() is the only way to the scheduler: it gives the event its number and time, lets the scheduler
// decide, updates the job table, appends the row to the journal and tells the observers. Decisions that act
// on the world wait until their row is durable (on_durable), so that nothing ever runs that a restart would
// not know of.
//
// Threading: the reactor's thread. record() may be called from observers: the new step is taken after the
// present one has been told to all.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "machine/fault_log.h"
#include "machine/job_table.h"
#include "machine/journal.h"
#include "scheduler/scheduler.h"

namespace tranche::machine {

// Told of every step, in order.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Decided and in the job table, not yet durable: what may be prepared.
  virtual void on_step(const JournalRow& row) = 0;
  // On disk: what may be done.
  virtual void on_durable(const JournalRow& row) = 0;
};

// What the rows up to one of them have made: what a restart begins with instead of them.
struct EngineState {
  EventSeq last_seq;
  Time last_time;  // of that row
  Time wake;       // the armed timer; unset: none
  JobTable jobs;
  FaultLog faults;
  scheduler::Scheduler scheduler;
};

class Engine {
 public:
  // Both outlive this. Rows are put back with restore() first; resume() then continues their log.
  Engine(Reactor& reactor, Journal& journal);

  void add_observer(StepObserver& observer) { observers_.push_back(&observer); }

  // What goes with an event into the journal but not to the scheduler.
  struct Attachment {
    std::optional<StoredPayload> payload;
    std::optional<IdempotencyKey> idempotency;
    RequestPointer request;
    std::function<void()> durable;
  };
  void record(EventPayload payload) { record(std::move(payload), Attachment()); }
  void record(EventPayload payload, Attachment attachment);

  // Puts back what a snapshot holds, before anything else.
  void adopt(EngineState state);
  // Puts back a row of the journal, before the loop runs.
  void restore(const RecordedStep& step);
  // Ends recovery: from here on record() continues the log.
  void resume();

  const scheduler::Scheduler& scheduler() const { return scheduler_; }
  JobTable& jobs() { return jobs_; }
  const JobTable& jobs() const { return jobs_; }
  const FaultLog& faults() const { return faults_; }
  Journal& journal() { return journal_; }
  EventSeq last_seq() const { return EventSeq(next_seq_ - 1); }
  Time last_time() const { return last_time_; }
  Time wake_at() const { return wake_at_; }
  // Event time of this instant, for limits and forecasts that people read; does not use up a time.
  Time now() const;

 private:
  struct Waiting {
    EventPayload payload;
    Attachment attachment;
  };
  void take(Waiting waiting);
  void arm(const std::vector<Decision>& decisions);

  Reactor& reactor_;
  Journal& journal_;
  scheduler::Scheduler scheduler_;
  JobTable jobs_;
  FaultLog faults_;
  std::optional<EventClock> clock_;
  Time last_time_;
  uint64_t next_seq_ = 1;
  std::vector<StepObserver*> observers_;
  std::deque<Waiting> waiting_;
  bool taking_ = false;
  Time wake_at_;
  Reactor::Handle wake_;
};

}  // namespace tranche::machine
