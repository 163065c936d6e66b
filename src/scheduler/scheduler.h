// Who runs where and when. The same object decides on one machine, in a cluster and in a replay.
//
// Pure: no clock, no I/O, no threads, no floating point, nothing decided by hash order. The same events
// give the same decisions on every machine. `now` is the time of the last event.
//
// Threading: none; one owner. Errors: what a user may have got wrong is answered by check(); an event that
// contradicts the log (an unknown GPU, a second exit) is ignored where a late or doubled outcome is
// possible, and an assertion otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/answer.h"
#include "model/decision.h"
#include "model/event.h"
#include "model/state_dump.h"

namespace tranche::scheduler {

// Stands in every journal row: recomputing decisions of the same version must give them bit for bit.
inline constexpr uint32_t kVersion = 6;

// A job that has not reached a final state, as others may see it.
struct JobView {
  JobId job;
  ArrayId array;  // unset: not of an array
  uint32_t array_index = 0;
  JobState state = JobState::pending;
  uint32_t attempt = 1;
  const JobSpec* spec = nullptr;  // owned by the scheduler, valid until the next step
  Time submitted;
  Time started;              // of this attempt; unset while waiting
  bool over_quota = false;   // runs on what others are entitled to: may be reclaimed after its minimum time
  std::vector<Start> tasks;  // where its tasks of this attempt are
};

// One GPU with what is on it.
struct GpuView {
  const Gpu* gpu = nullptr;  // owned by the scheduler, valid until the next step
  Health health = Health::ok;
  bool drained = false;
  std::string reason;  // of drain or ill health
  MilliGpu compute_free;
  MiB memory_free;
  std::vector<TaskKey> tasks;  // holding slices, in order of start; includes exited ones not yet released
};

class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(Scheduler&&) noexcept;
  Scheduler& operator=(Scheduler&&) noexcept;

  // Whether a job would be accepted: refuses what can never run on what is installed (drained or busy
  // counts as installed), unknown queues and users over their limit of live jobs. The daemon asks before
  // it appends JobSubmitted; step() assumes a checked job.
  Result<void> check(const JobSpec& spec, const ArraySpec& array) const;

  // Whether the job may have so much of each of its GPUs' memory, and up to `limit` while it is free (zero:
  // not beyond): now, if it runs. The daemon asks before it appends JobUpdated.
  Result<void> check_gpu_memory(JobId job, MiB memory, MiB limit) const;

  // Takes the event in and decides. Decisions are complete: the caller carries out all of them.
  std::vector<Decision> step(const Event& event);

  // Puts back what a journal recorded, without deciding: state afterwards is as if step() had returned
  // `decisions`. The record wins over what this version would decide.
  void restore(const Event& event, std::span<const Decision> decisions);

  // Read only. `job` unknown or final: not_found.
  // The start is forecast for the first `places` in line; of those behind them only the place is told. A
  // forecast steps a copy of everything up to 200 times.
  Result<Explanation> why(JobId job, uint32_t places = UINT32_MAX) const;
  Result<std::string> reason(JobId job) const;  // the sentence of why() alone: without a forecast, so cheap
  Result<Proof> proof(JobId job) const;
  Result<Forecast> forecast(JobId job, uint32_t places = UINT32_MAX) const;  // `places` as in why()
  // When would this start if it were submitted now? check() has accepted it.
  Forecast forecast(const JobSpec& spec) const;

  bool has_job(JobId job) const;
  Result<JobView> job(JobId job) const;
  std::vector<JobId> live_jobs() const;      // ascending
  std::vector<JobId> waiting_order() const;  // pending jobs, in the order in which they would be tried now
  std::vector<Node> nodes() const;           // ascending by id
  std::vector<GpuView> gpus() const;         // ascending by id
  std::vector<QueueShare> shares() const;    // depth first, siblings by path
  const Policy& policy() const;
  Time now() const;

  // What stands, as facts that a proof can be held against (src/proof).
  StateDump dump() const;

  // Digest of everything that decisions depend on; equal after equal histories, and after restore().
  uint64_t state_hash() const;

  // Everything that decisions depend on, as bytes (snapshot.h): what load() makes of them has the same hash,
  // and decides the same on every event from then on. Between steps.
  std::string save() const;
  // Errors: corrupt, with a sentence; what another format of the bytes or another version wrote is a
  // conflict.
  static Result<Scheduler> load(std::string_view bytes);

  // Memory that the state holds, for measures.
  struct Size {
    size_t jobs_bytes = 0;   // live jobs, what they hold, groups and shapes
    size_t nodes_bytes = 0;  // nodes, GPUs and indexes
  };
  Size size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tranche::scheduler
