// Everything that decisions depend on, as plain values that can be copied (a forecast is a copy that is
// stepped on), and the two ways in which it changes: an event is taken in, a decision is applied. Neither
// decides anything; restore() is made of these two alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/state_hash.h"
#include "model/decision.h"
#include "model/event.h"
#include "scheduler/capacity.h"
#include "scheduler/givers.h"
#include "scheduler/prediction.h"
#include "scheduler/release_times.h"
#include "scheduler/reservation_memory.h"
#include "scheduler/waiting.h"

namespace tranche::scheduler {

enum class TaskPhase : uint8_t { starting, running, exited };

// One task of the current attempt.
struct Task {
  Start start;
  TaskPhase phase = TaskPhase::starting;
  bool stop_sent = false;
  bool never_executed = false;  // exited: its start failed
  bool may_retry = false;       // of a failed start
  ExitCause cause = ExitCause::exited;
  int32_t code = 0;
};

struct Job {
  JobId id;
  ArrayId array;
  uint32_t array_index = 0;
  std::shared_ptr<const JobSpec> spec;  // shared by the elements of an array
  JobState state = JobState::pending;
  uint32_t attempt = 1;
  Time submitted;
  Time started;       // of this attempt
  Time not_before;    // its begin time, or the end of the pause before a retry
  int64_t first = 0;  // the number of the event that put it first in its queue
  Duration expected;  // run time, as it was thought when it was submitted (prediction.h)
  Time stop_time;     // of the first Stop of this attempt
  Time stale_until;   // its gang is incomplete, and goes on until then; unset: it is not
  uint32_t failed_starts = 0;
  RetryPolicy retried;  // how often so far, by kind; the delay is not used
  QueueIndex queue = kRootQueue;
  GroupId group = 0;  // zero: not ready
  bool held = false;
  bool begin_passed = true;
  bool cancel_requested = false;
  bool requeue_requested = false;
  bool doomed = false;  // a dependency can never be satisfied any more
  uint32_t unmet_dependencies = 0;
  std::optional<StopReason> stop_reason;  // of this attempt
  std::optional<JobState> failure;        // of the first task of this attempt that failed by itself
  std::optional<StopReason> requeued_for;
  std::vector<Task> tasks;     // of this attempt, in order of start: by rank, if it is not elastic
  std::vector<uint32_t> left;  // ranks of an elastic job that were taken from it in this attempt
  uint32_t place_in_running = UINT32_MAX;  // in its queue's list

  bool is_waiting() const { return state == JobState::pending || state == JobState::held; }
};

// What a failure counts as among retries; none: the job's GPU or machine failed before anything of its own
// did.
uint32_t& retries_of(RetryPolicy& retries, std::optional<JobState> failure);

// What a task still holds; outlives the job until the GPU is seen to hold no memory of it.
struct Holding {
  TaskKey task;
  uint32_t uid = 0;
  QueueIndex queue = kRootQueue;
  bool preemptible = true;
  NodeId node;
  MilliCpu cpu;
  MiB memory;
  bool exited = false;
  bool stays = true;          // counts in Queue::staying: neither exited nor told to stop
  Time latest_end;            // by its limit; moves up when it is stopped or has exited
  std::vector<Slice> slices;  // not yet released
  std::vector<MilliGpu> charges;
  MilliGpu charge() const;
  HostAmount host() const { return {cpu, memory}; }
  Footprint footprint() const { return {uid, node, slices, cpu, memory}; }
};

struct TaskKeyHash {
  uint64_t operator()(const TaskKey& key) const {
    return mix_bits(mix_bits(key.job.value()) ^ uint64_t{key.rank} << 32 ^ key.attempt);
  }
};

// Live jobs and what tasks hold: records in one array, found by their key, and never moved while a step
// decides (only a submission or a start makes the arrays longer).
template <class Key, class Record, class Hash>
class Table {
 public:
  Record* find(const Key& key) {
    const auto at = index_.find(key);
    return at ? &records_[*at] : nullptr;
  }
  const Record* find(const Key& key) const {
    const auto at = index_.find(key);
    return at ? &records_[*at] : nullptr;
  }
  std::optional<uint32_t> position(const Key& key) const { return index_.find(key); }
  Record& at(uint32_t position) { return records_[position]; }
  const Record& at(uint32_t position) const { return records_[position]; }
  // The key is not there yet.
  uint32_t add(const Key& key, Record record) {
    uint32_t position = static_cast<uint32_t>(records_.size());
    if (free_.empty()) {
      records_.push_back(std::move(record));
      keys_.push_back(key);
    } else {
      position = free_.back();
      free_.pop_back();
      records_[position] = std::move(record);
      keys_[position] = key;
    }
    index_.insert(key, position);
    return position;
  }
  void erase(const Key& key) {
    const auto at = index_.find(key);
    if (!at) return;
    records_[*at] = Record{};
    keys_[*at] = Key{};
    free_.push_back(*at);
    index_.erase(key);
  }
  size_t size() const { return index_.size(); }
  bool empty() const { return index_.size() == 0; }
  // Ascending: for whoever walks all of them.
  std::vector<Key> keys() const {
    std::vector<Key> keys;
    keys.reserve(size());
    for (const Key& key : keys_) {
      if (key != Key{}) keys.push_back(key);
    }
    std::sort(keys.begin(), keys.end());
    return keys;
  }
  size_t bytes() const {
    return records_.capacity() * sizeof(Record) + keys_.capacity() * sizeof(Key) + index_.bytes();
  }

 private:
  std::vector<Record> records_;
  std::vector<Key> keys_;  // by position; Key{}: free
  std::vector<uint32_t> free_;
  FlatIndex<Key, Hash> index_;
};

// Room that is being freed for a job: nobody else may have it. It stands until everything has gone that was
// leaving when the last of its victims was stopped, since its plan counts on that too.
struct Claim {
  JobId beneficiary;
  std::vector<TaskKey> victims;  // stopped for it
  JobId moved_for;               // it is moved for that job, and waits for its new place; unset: it is not
  uint64_t waits_for = 0;        // leavings up to this number
};

struct GpuRecord {
  Gpu gpu;
  Health health = Health::ok;
  std::string health_reason;
  bool drained = false;
  std::string drain_reason;
  bool removed = false;
};

struct ArrayRecord {
  uint32_t running_max = 0;
  uint32_t running = 0;
  uint32_t live = 0;
};

// How a job ended, for those that depend on it: one byte a job, so that millions cost little.
class EndedJobs {
 public:
  void add(JobId job, JobState state, bool had_started);
  std::optional<JobState> state(JobId job) const;
  bool had_started(JobId job) const;
  uint64_t digest() const { return digest_; }

 private:
  friend struct StateArchive;   // snapshot.cc
  std::vector<uint8_t> by_id_;  // zero: not ended
  uint64_t digest_ = 0;         // order of ends does not matter
};

// Everything that is installed, idle: worked out when it is asked for and the machine has changed. Never part
// of a state, so a copy starts empty.
class IdleMachine {
 public:
  IdleMachine() = default;
  IdleMachine(const IdleMachine&) {}
  IdleMachine& operator=(const IdleMachine&) {
    capacity_.reset();
    return *this;
  }
  IdleMachine(IdleMachine&&) = default;
  IdleMachine& operator=(IdleMachine&&) = default;
  ~IdleMachine() = default;
  const Capacity& of(const State& state) const;

 private:
  mutable std::optional<Capacity> capacity_;
  mutable uint64_t machine_version_ = 0;
};

struct State {
  Policy policy;
  Time now;
  EventSeq last_event;
  std::map<NodeId, Node> nodes;
  std::map<GpuId, GpuRecord> gpus;
  Capacity capacity;
  QueueTree queues;
  Table<JobId, Job, IdHash<JobId>> jobs;
  Table<TaskKey, Holding, TaskKeyHash> holdings;
  std::vector<std::vector<uint32_t>> holdings_on;  // by node: positions in `holdings`, in order of start
  // Holdings that will be free without anybody's doing, numbered in the order in which they began to leave.
  std::map<TaskKey, uint64_t> leaving;
  std::set<uint64_t> leave_numbers;
  uint64_t last_leave = 0;
  Waiting waiting;
  Scores scores;
  std::map<ArrayId, ArrayRecord> arrays;
  std::map<JobId, std::vector<JobId>> dependents;  // of a live job
  std::set<std::pair<Time, JobId>> begins;         // jobs whose begin time has not come
  std::set<std::pair<Time, JobId>> stale;          // jobs that are stopped when their time has come
  std::map<uint32_t, uint32_t> jobs_of_user;       // live, by uid
  std::vector<Claim> claims;                       // in the order in which they were made
  bool claims_may_move = true;                     // false: none of them has moved_for
  EndedJobs ended;
  Prediction prediction;
  Time wake;  // the armed timer; unset: none

  // Running preemptible jobs in the order in which they started; some that have gone, or started again.
  std::vector<std::pair<Time, JobId>> started;
  size_t started_from = 0;  // of it: those before have gone

  // Jobs that this event may have brought to a turn: an end, a requeue, a stop. Empty between steps.
  std::set<JobId> attention;
  // Whose tasks have changed since note_gangs(). Empty between steps.
  std::vector<JobId> gangs_changed;
  // Counts jobs that became ready; not part of the digest.
  uint64_t times_ready = 0;
  uint32_t removed_gpus = 0;  // records that may go with their last task
  // What is known about room (waiting.h) is not: after a restart, a change of policy or the end of a claim.
  bool know_nothing = true;
  // The last walk went around claims, and what it found is not known without them: these shapes have room but
  // for a claim.
  bool was_promised = false;
  std::vector<ShapeId> full_beside_claims;
  // Caches: what they hold follows from the rest, and no decision depends on whether it is there.
  mutable ReleaseTimes release_times;
  mutable GiverMemory givers;
  ReservationMemory reservations;
  IdleMachine idle_machine;

  void take_in(const Event& event);
  void apply(const Decision& decision);
  // Forgets claims that have come to their end; true if there were any.
  bool settle_claims();
  // After the last decision on an event: forgets what was only of use during the step.
  void settle();
  // All that the claim waits for has left.
  bool has_ended(const Claim& claim) const;
  uint64_t hash() const;
  // Brings everything that follows from the rest up to date, after an event or a decision.
  void refresh_derived();

  Job* find(JobId job);
  const Job* find(JobId job) const;
  const Claim* claim_of(JobId beneficiary) const;
  // Will be free without anybody's doing: gone already but for its memory, or told to stop.
  bool is_leaving(const TaskKey& key, const Holding& holding) const;
  // Tasks that hold something of the GPU, in order of start.
  std::vector<TaskKey> tasks_on(GpuId gpu) const;
  // The order in which groups are promised room: see backfill.h.
  int64_t aged(const Job& job) const;
  // When the preemptible job started that has run for longest; none runs: nothing.
  std::optional<Time> longest_running();
  // When the job's tasks are gone at the latest, by its limit and grace.
  static Time latest_end(const Job& job);
  static Time latest_end(const JobSpec& spec, Time start);

  // --- parts of the above, by file ---
  // ingest.cc: what users and the world do
  void submit(const JobSubmitted& event);
  void cancel(const JobCancelled& event);
  void hold(const JobHeld& event);
  void release(const JobReleased& event);
  void update(const JobUpdated& event);
  void resize(Job& job, const JobUpdated& event);  // resize.cc
  void wait_until_begin(Job& job, Time begin);
  void take_in_policy(const PolicyChanged& event);
  bool is_for_all(GpuId gpu) const;
  void take_in_machine(const Event& event);
  void refresh_gpu(GpuId gpu);
  void refresh_shapes();
  void take_in_task(const Event& event);
  void task_started(const TaskStarted& event);
  void task_start_failed(const TaskStartFailed& event);
  void task_exited(const TaskExited& event);
  void slice_released(const SliceReleased& event);
  // apply.cc: what decisions do
  void apply_start(const Start& start);
  void apply_stop(const Stop& stop);
  bool goes_on_without(const Job& job, const Stop& stop) const;
  Claim& claim_for(JobId beneficiary, JobId moved_for);
  void apply_requeue(const Requeue& requeue);
  void apply_end(const End& end);
  // bookkeeping.cc: waiting and holding
  void update_ready(Job& job);
  bool may_grow(const Job& job) const;
  void step_again(Job& job);
  MilliGpu leave_group(Job& job);  // the waiting charge that it takes along, not yet booked
  void stop_waiting(Job& job);
  void regroup_all();
  void enter_running(Job& job);
  void leave_running(Job& job);
  void note_start(const Job& job);
  bool stands(const std::pair<Time, JobId>& start) const;
  void stop_staying(Holding& holding);
  void begin_to_leave(const TaskKey& key);
  void pass_begin_times();
  void pass_stale_times();
  void note_gangs();  // before anybody asks when to look again
  void forget_stale(Job& job);
  Task* live_task(const TaskKey& key);
  void release_host(const TaskKey& key);
  void release_slices(const TaskKey& key, std::optional<GpuId> only);
  void register_dependencies(Job& job);
  void forget_dependencies(const Job& job);
  void tell_dependents(JobId job);
  void dependency_changed(Job& job);
};

// Fewer tasks of the job run than it needs, and none has done its part.
bool is_broken(const Job& job);

// Jobs of its queue with a higher priority than this may take from the job: an elastic one also gives what it
// can live without to those of its own.
inline int32_t gives_way_below(const JobSpec& spec) {
  return spec.elastic ? spec.priority - 1 : spec.priority;
}

// What one dependency says now: satisfied, not yet, or never.
enum class DependencyStatus : uint8_t { satisfied, waiting, impossible };
DependencyStatus status_of(const Dependency& dependency, const State& state);

}  // namespace tranche::scheduler
