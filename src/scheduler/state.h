// Everything that decisions depend on, as plain values that can be copied (a forecast is a copy that is
// stepped on), and the two ways in which it changes: an event is taken in, a decision is applied. Neither
// decides anything; restore() is made of these two alone.
#pragma once

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
#include "scheduler/placement.h"
#include "scheduler/queue_tree.h"

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
  Time stop_time;     // of the first Stop of this attempt
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
  std::vector<Task> tasks;  // by rank

  bool is_waiting() const { return state == JobState::pending || state == JobState::held; }
};

// What a failure counts as among retries; none: the job's GPU or machine failed before anything of its own
// did.
uint32_t& retries_of(RetryPolicy& retries, std::optional<JobState> failure);

// What a task still holds; outlives the job until the GPU is seen to hold no memory of it.
struct Holding {
  uint32_t uid = 0;
  QueueIndex queue = kRootQueue;
  bool preemptible = true;
  NodeId node;
  MilliCpu cpu;
  MiB memory;
  bool exited = false;
  Time latest_end;            // by its limit; moves up when it is stopped or has exited
  std::vector<Slice> slices;  // not yet released
  std::vector<MilliGpu> charges;
  MilliGpu charge() const;
};

// Ready jobs that differ in nothing that decides whether and where they start.
struct GroupKey {
  QueueIndex queue = kRootQueue;
  int64_t first = 0;
  int32_t priority = 0;
  bool preemptible = true;
  int64_t time_limit = 0;
  int64_t grace = 0;
  ArrayId capped_array;  // of an array that may run only so many at a time
  Shape shape;
  auto operator<=>(const GroupKey&) const = default;
};

// Where a job of the group stands in its queue's order.
HeadKey head_key(const GroupKey& key, JobId job);

struct Group {
  GroupKey key;
  std::set<JobId> jobs;
};

// Room that is being freed for a job: nobody else may have it.
struct Claim {
  JobId beneficiary;
  // What has to go first and still holds something: those stopped for it, and what was leaving anyway when
  // the room was planned, since the plan counts on that too.
  std::set<TaskKey> victims;
};

struct GpuRecord {
  Gpu gpu;
  Health health = Health::ok;
  std::string health_reason;
  bool drained = false;
  std::string drain_reason;
  bool removed = false;
  std::vector<TaskKey> tasks;  // in order of start
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
  std::vector<uint8_t> by_id_;  // zero: not ended
  uint64_t digest_ = 0;         // order of ends does not matter
};

struct State {
  Policy policy;
  Time now;
  EventSeq last_event;
  std::map<NodeId, Node> nodes;
  std::map<GpuId, GpuRecord> gpus;
  Capacity capacity;
  QueueTree queues;
  std::map<JobId, Job> jobs;
  std::map<TaskKey, Holding> holdings;
  std::map<GroupId, Group> groups;
  std::map<GroupKey, GroupId> group_of;
  GroupId last_group = 0;
  std::map<ArrayId, ArrayRecord> arrays;
  std::map<JobId, std::vector<JobId>> dependents;  // of a live job
  std::set<std::pair<Time, JobId>> begins;         // jobs whose begin time has not come
  std::map<uint32_t, uint32_t> jobs_of_user;       // live, by uid
  std::vector<Claim> claims;                       // in the order in which they were made
  EndedJobs ended;
  Time wake;  // the armed timer; unset: none

  // Jobs that this event may have brought to a turn: an end, a requeue, a stop. Empty between steps.
  std::set<JobId> attention;
  // Counts jobs that became ready; not part of the digest.
  uint64_t times_ready = 0;

  void take_in(const Event& event);
  void apply(const Decision& decision);
  // Forgets claims that have come to their end; true if there were any.
  bool settle_claims();
  // After the last decision on an event: forgets what was only of use during the step.
  void settle();
  uint64_t hash() const;

  Job* find(JobId job);
  const Job* find(JobId job) const;
  const Claim* claim_of(JobId beneficiary) const;
  // Will be free without anybody's doing: gone already but for its memory, or told to stop.
  bool is_leaving(const TaskKey& key, const Holding& holding) const;
  // When the job's tasks are gone at the latest, by its limit and grace.
  static Time latest_end(const Job& job);
  static Time latest_end(const JobSpec& spec, Time start);

  // --- parts of the above, by file ---
  // ingest.cc: what users and the world do
  void submit(const JobSubmitted& event);
  void update(const JobUpdated& event);
  void wait_until_begin(Job& job, Time begin);
  void take_in_policy(const PolicyChanged& event);
  void take_in_machine(const Event& event);
  void refresh_gpu(GpuId gpu);
  void take_in_task(const Event& event);
  void task_started(const TaskStarted& event);
  void task_start_failed(const TaskStartFailed& event);
  void task_exited(const TaskExited& event);
  void slice_released(const SliceReleased& event);
  // apply.cc: what decisions do
  void apply_start(const Start& start);
  void apply_stop(const Stop& stop);
  void apply_requeue(const Requeue& requeue);
  void apply_end(const End& end);
  // bookkeeping.cc: waiting and holding
  void update_ready(Job& job);
  void leave_group(Job& job);
  void regroup_all();
  void pass_begin_times();
  Task* live_task(const TaskKey& key);
  void release_host(const TaskKey& key);
  void release_slices(const TaskKey& key, std::optional<GpuId> only);
  void register_dependencies(Job& job);
  void forget_dependencies(const Job& job);
  void tell_dependents(JobId job);
  void dependency_changed(Job& job);
};

// What one dependency says now: satisfied, not yet, or never.
enum class DependencyStatus : uint8_t { satisfied, waiting, impossible };
DependencyStatus status_of(const Dependency& dependency, const State& state);

}  // namespace tranche::scheduler
