// Every job that the journal knows, ended ones included: what `ls`, `show` and `history` read.
//
// A projection of events and decisions: it decides nothing, and after a restart it is rebuilt from the same
// rows. What a job runs (its payload) is kept only while the job lives; afterwards it is read from the
// journal.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "codec/api.h"
#include "model/decision.h"
#include "model/event.h"
#include "scheduler/scheduler.h"

namespace tranche::machine {

using RequestPointer = std::shared_ptr<const api::SubmitRequest>;

struct TaskEntry {
  TaskKey key;
  NodeId node;
  std::vector<Slice> slices;
  JobState state = JobState::starting;
  int32_t pid = 0;  // of its main process; 0: none, or not known any more
  Time started;
  Time ended;
  bool has_end = false;
  ExitCause cause = ExitCause::exited;
  int32_t code = 0;
  int32_t signal = 0;
};

// An error that the driver reported of a GPU while the job held it.
struct JobFault {
  Time time;
  GpuId gpu;
  uint32_t xid = 0;
};

struct StateChange {
  Time time;
  JobState state = JobState::pending;
  std::string reason;  // "" if there is nothing to say
};

struct JobRecord {
  JobId id;
  ArrayId array;  // unset: not of an array
  uint32_t array_index = 0;
  uint32_t array_count = 0;
  std::shared_ptr<const JobSpec> spec;  // one for a whole array
  std::string name;                     // as it is stored: see element_name()
  RequestPointer request;               // null once the job has ended, and until it is needed after a restart
  JobState state = JobState::pending;
  uint32_t attempt = 1;
  // The attempt that its tasks began with: what joins an elastic job later comes with higher ones.
  uint32_t first_attempt = 1;
  Time submitted;
  Time started;  // of the last attempt's first task; unset if none has executed
  Time ended;
  std::string reason;            // of the last change
  std::string private_reason;    // the same with paths, for the owner; not in the journal
  std::vector<TaskEntry> tasks;  // of the last attempt, by rank
  std::vector<StateChange> history;
  std::optional<JobFault> fault;  // the last one

  // What it is called; of a sweep's element with its values.
  std::string element_name() const;
  // "7" or "7_3".
  std::string display() const;
  // The task whose end is the job's: the first one that failed, else the first.
  const TaskEntry* telling_task() const;
};

struct TablesArchive;

class JobTable {
 public:
  // Takes in what happened. `live` is the scheduler after the step: it knows the states of live jobs.
  void apply(const Event& event, std::span<const Decision> decisions, const scheduler::Scheduler& live);

  // What the events do not say: the name, what it runs, and the pid that the root side reports. Names are
  // kept in snapshots: payloads_without_name() are those that are still to be found.
  std::vector<std::string> payloads_without_name() const;
  void set_names(const std::unordered_map<std::string, std::string>& name_by_payload);
  void set_request(JobId first, uint32_t count, const std::string& name, RequestPointer request);
  void set_pid(const TaskKey& task, int32_t pid);

  JobRecord* find(JobId id);
  const JobRecord* find(JobId id) const;
  // As users write it, "7" or "90_2"; of a job that is not known, its number.
  std::string display(JobId id) const;
  // Ascending by id.
  const std::map<JobId, JobRecord>& all() const { return jobs_; }
  // How many are in a state now; every change is counted, so asking costs nothing.
  uint32_t count(JobState state) const { return counts_[static_cast<size_t>(state)]; }
  // The first id that was never given.
  JobId next_id() const { return next_id_; }
  // Ids up to `last` were in use somewhere, though no row tells of it: they are not given again.
  void skip_ids_through(JobId last) { next_id_ = std::max(next_id_, JobId(last.value() + 1)); }
  // Jobs that have not ended, ascending.
  const std::set<JobId>& live() const { return live_; }

  // Ended jobs whose records have changed since this was last asked: what the next snapshot has to tell anew.
  std::vector<JobId> take_ended();
  // They were not written after all.
  void put_back_ended(std::vector<JobId> jobs);

 private:
  friend struct TablesArchive;  // tables_archive.cc
  void submit(const Event& event, const JobSubmitted& submitted);
  void change(JobRecord& job, Time time, JobState state, std::string reason);
  // What one step did to an elastic job that goes on: ranks, and why some were taken.
  struct Resized {
    std::vector<uint32_t> joined;
    std::vector<uint32_t> taken;
    std::string why;
  };
  void note_size(JobRecord& job, Time time, const Resized& resized);
  void remember(JobRecord& job, Time time);
  void start(const Start& start);
  std::string reason_of_doom(const JobRecord& job, JobState state) const;
  void end_task(const Event& event, const TaskKey& key, ExitCause cause, int32_t code, int32_t signal);
  TaskEntry* find_task(const TaskKey& key);
  uint32_t& count_of(JobState state) { return counts_[static_cast<size_t>(state)]; }

  std::map<JobId, JobRecord> jobs_;
  std::array<uint32_t, static_cast<size_t>(JobState::unknown) + 1> counts_{};  // by state
  JobId next_id_{1};
  std::set<JobId> live_;
  std::vector<JobId> ended_;  // see take_ended(); the same one may stand there twice
};

}  // namespace tranche::machine
