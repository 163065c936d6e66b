// A journal as material for a what-if: the inputs with their times, how long each job worked, and what became
// of it as it was recorded.
//
// What a job's work is: from its Start to the exit of its last task in the attempt that ended by itself (with
// what starting took, since that held its GPUs, too). One that its time limit ended runs to its limit again.
// A job that was cancelled while it ran is taken to be done when it was cancelled; one that still runs at the
// end of the record has worked until then at least; of one that never ran, or was only ever stopped for
// others, only the time limit is known: it is taken to need it. The last three are counted, since a what-if
// can be no better than what was recorded.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/event_json.h"
#include "replay/chronicle.h"
#include "replay/simulation.h"

namespace tranche::replay {

struct RecordedHistory {
  std::vector<std::pair<Time, EventPayload>> inputs;  // without ticks and outcomes
  std::map<JobId, Duration> work;
  std::vector<JobStory> stories;  // as recorded
  ChronicleTotals totals;
  Time end;  // of the record: a what-if is played and measured as far as that
  uint64_t cancelled_running = 0;
  uint64_t unfinished = 0;
  uint64_t unknown_work = 0;
};

class HistoryReader {
 public:
  // Rows in order. Errors: corrupt if seq or time do not rise, or a row names a node, GPU or job that the
  // rows before it do not have: the scheduler may take those for granted.
  Result<void> take(const JournalRow& row);
  RecordedHistory finish();

 private:
  Result<void> check_names(const EventPayload& payload);
  Result<void> check_submission(const JobSubmitted& submitted);
  void take_outcome(const Event& event);
  Duration work_of(JobId job) const;  // zero: unknown
  void note_cancel(const JobCancelled& cancelled, Time time);

  Chronicle chronicle_;
  RecordedHistory history_;
  std::map<TaskKey, Time> running_;
  std::map<JobId, Duration> worked_;          // of tasks that ended by themselves
  std::map<JobId, Duration> worked_stopped_;  // of tasks that were ended
  std::map<JobId, Duration> still_running_;   // at the end of the record
  std::set<JobId> limited_;                   // ended by their time limit
  std::set<JobId> cancelled_;                 // while they ran
  std::set<NodeId> nodes_;
  std::map<GpuId, NodeId> gpus_;
  std::set<JobId> jobs_;
  Time last_time_;
  uint64_t last_seq_ = 0;
};

// Rows as `tranche events --json` prints them, one a line. Errors: corrupt, with the line.
Result<RecordedHistory> read_history_lines(std::string_view text);

// The same inputs through the scheduler, under `policy` or, if it is null, under those that were recorded,
// until the end of the record: what would start after it is not measured in the record either.
SimulationResult replay_history(const RecordedHistory& history, const Policy* policy,
                                SimulationSettings settings);

}  // namespace tranche::replay
