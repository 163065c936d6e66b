#include "replay/recorded_history.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tranche::replay {
namespace {

// To the millisecond: below it a record tells the order of its rows, not what a job did.
Duration rounded(Duration duration) {
  return Duration((duration.count() + kMillisecond.count() / 2) / kMillisecond.count() *
                  kMillisecond.count());
}

}  // namespace

Result<void> HistoryReader::take(const JournalRow& row) {
  const Event& event = row.event;
  if (event.seq.value() <= last_seq_ || event.time <= last_time_)
    return fail(ErrorCode::corrupt, "row " + std::to_string(event.seq.value()) + " does not come after row " +
                                        std::to_string(last_seq_) +
                                        "; give the rows of one journal in order");
  last_seq_ = event.seq.value();
  last_time_ = event.time;
  if (!is_outcome(event.payload)) TRY(check_names(event.payload));
  take_outcome(event);
  for (const Decision& decision : row.decisions) {
    if (const auto* start = std::get_if<Start>(&decision)) running_[start->task] = event.time;
  }
  chronicle_.take(event, row.decisions);
  if (is_outcome(event.payload) || std::holds_alternative<Tick>(event.payload)) return {};
  if (const auto* cancelled = std::get_if<JobCancelled>(&event.payload)) {
    note_cancel(*cancelled, event.time);
    return {};
  }
  history_.inputs.emplace_back(moment_of(event.time), event.payload);
  return {};
}

Result<void> HistoryReader::check_names(const EventPayload& payload) {
  const auto unknown = [&](std::string_view what, uint64_t id) {
    return fail(ErrorCode::corrupt, "row " + std::to_string(last_seq_) + " names " + std::string(what) + " " +
                                        std::to_string(id) +
                                        ", which no row before it has; give the journal from its first row");
  };
  const auto check_gpu = [&](GpuId gpu) -> Result<void> {
    if (!gpus_.contains(gpu)) return unknown("GPU", gpu.value());
    return {};
  };
  if (const auto* e = std::get_if<JobSubmitted>(&payload)) return check_submission(*e);
  if (const auto* e = std::get_if<NodeAdded>(&payload)) nodes_.insert(e->node.id);
  if (const auto* e = std::get_if<NodeRemoved>(&payload)) {
    if (nodes_.erase(e->node) == 0) return unknown("node", e->node.value());
    std::erase_if(gpus_, [&](const auto& each) { return each.second == e->node; });
  }
  if (const auto* e = std::get_if<GpuAdded>(&payload)) {
    if (!nodes_.contains(e->gpu.node)) return unknown("node", e->gpu.node.value());
    gpus_[e->gpu.id] = e->gpu.node;
  }
  if (const auto* e = std::get_if<GpuRemoved>(&payload)) {
    TRY(check_gpu(e->gpu));
    gpus_.erase(e->gpu);
  }
  if (const auto* e = std::get_if<HealthChanged>(&payload)) return check_gpu(e->gpu);
  if (const auto* e = std::get_if<GpuFaulted>(&payload)) return check_gpu(e->gpu);
  if (const auto* e = std::get_if<GpuDrained>(&payload)) return check_gpu(e->gpu);
  if (const auto* e = std::get_if<GpuUndrained>(&payload)) return check_gpu(e->gpu);
  return {};
}

Result<void> HistoryReader::check_submission(const JobSubmitted& submitted) {
  const size_t count = std::max<size_t>(submitted.array.indices.size(), 1);
  for (size_t i = 0; i < count; ++i) {
    const JobId job(submitted.job.value() + i);
    if (!job.is_set() || (!jobs_.empty() && job <= *jobs_.rbegin()))
      return fail(ErrorCode::corrupt, "row " + std::to_string(last_seq_) + " submits job " +
                                          std::to_string(job.value()) +
                                          " after a later one; job ids only rise");
    jobs_.insert(job);
  }
  return {};
}

// A cancelled job that runs ends by itself in the what-if, after the work that it had done.
void HistoryReader::note_cancel(const JobCancelled& cancelled, Time time) {
  std::set<JobId> running;
  for (const auto& [task, since] : running_) running.insert(task.job);
  for (uint64_t i = 0; i <= cancelled.more; ++i) {
    JobCancelled one = cancelled;
    one.job = JobId(cancelled.job.value() + i);
    one.more = 0;
    if (running.contains(one.job))
      cancelled_.insert(one.job);
    else
      history_.inputs.emplace_back(moment_of(time), one);
  }
}

void HistoryReader::take_outcome(const Event& event) {
  if (const auto* failed = std::get_if<TaskStartFailed>(&event.payload)) running_.erase(failed->task);
  const auto* exited = std::get_if<TaskExited>(&event.payload);
  if (exited == nullptr) return;
  const auto found = running_.find(exited->task);
  if (found == running_.end()) return;
  if (exited->cause == ExitCause::time_limit) {
    limited_.insert(exited->task.job);
  } else {
    auto& worked = exited->cause == ExitCause::killed ? worked_stopped_ : worked_;
    Duration& most = worked[exited->task.job];
    most = std::max(most, rounded(event.time - found->second));
  }
  running_.erase(found);
}

Duration HistoryReader::work_of(JobId job) const {
  if (limited_.contains(job)) return kEndlessWork;
  if (const auto own = worked_.find(job); own != worked_.end()) return own->second;
  const auto stopped = worked_stopped_.find(job);
  const auto running = still_running_.find(job);
  // One that was stopped for others would have gone on: what it had done by then is no measure of its work.
  if (running != still_running_.end() &&
      (stopped == worked_stopped_.end() || stopped->second < running->second))
    return running->second;
  if (stopped != worked_stopped_.end() && cancelled_.contains(job)) return stopped->second;
  return {};
}

RecordedHistory HistoryReader::finish() {
  for (const auto& [task, since] : running_) {
    Duration& most = still_running_[task.job];
    most = std::max(most, rounded(last_time_ - since));
  }
  history_.stories = chronicle_.stories();
  history_.totals = chronicle_.totals();
  history_.end = moment_of(last_time_) + kMillisecond;
  history_.cancelled_running = cancelled_.size();
  for (const JobStory& story : history_.stories) {
    if (!story.ended.is_set() && story.started.is_set()) ++history_.unfinished;
    const Duration work = work_of(story.job);
    if (work.count() > 0)
      history_.work[story.job] = work;
    else
      ++history_.unknown_work;
  }
  return std::move(history_);
}

Result<RecordedHistory> read_history_lines(std::string_view text) {
  HistoryReader reader;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto row = decode_row(line);
    if (!row)
      return fail(row.error().code(), "line " + std::to_string(number) + ": " + row.error().message());
    auto taken = reader.take(*row);
    if (!taken)
      return fail(taken.error().code(), "line " + std::to_string(number) + ": " + taken.error().message());
  }
  if (number == 0) return fail(ErrorCode::corrupt, "the journal is empty");
  return reader.finish();
}

SimulationResult replay_history(const RecordedHistory& history, const Policy* policy,
                                SimulationSettings settings) {
  Simulation simulation(settings);
  bool is_first = true;
  for (const auto& [time, payload] : history.inputs) {
    if (policy != nullptr && std::holds_alternative<PolicyChanged>(payload)) {
      if (std::exchange(is_first, false)) simulation.add(time, PolicyChanged{*policy});
      continue;
    }
    simulation.add(time, payload);
  }
  for (const auto& [job, work] : history.work) simulation.set_work(job, work);
  return simulation.run(history.end);
}

}  // namespace tranche::replay
