#include "machine/loans.h"

#include <algorithm>
#include <set>

#include "base/quantity_text.h"
#include "linux/log.h"
#include "machine/device_uuid.h"

namespace tranche::machine {
namespace {

// A task that the arbiter does not hear of, though others borrow there: its own supervisor is at fault, and
// it is not kept for ever.
constexpr Duration kLongestUnregistered{10 * kSecond.count()};

bool is_ending(const JobRecord& job) { return is_final(job.state) || job.state == JobState::stopping; }

}  // namespace

bool Loans::may_go(const TaskKey& task, const std::vector<Slice>& slices, bool arbiter_is_away) {
  if (waiting_.contains(task)) return false;
  Waiting waiting;
  for (const Slice& slice : slices) {
    const Gpu* gpu = parts_.gpus.find(slice.gpu);
    if (slice.kind == SliceKind::fraction && gpu != nullptr &&
        (arbiter_is_away || may_be_borrowed(task, slice.gpu)))
      waiting.gpus.push_back(device_uuid_digits(gpu->uuid));
  }
  if (waiting.gpus.empty()) return true;
  waiting.since = parts_.reactor.clock().since_boot();
  waiting.must_be_registered = arbiter_is_away;
  silent_ = silent_ || arbiter_is_away;
  waiting_.emplace(task, std::move(waiting));
  return false;
}

// Whether another task on the GPU may have borrowed there: cheap, and almost always not so.
bool Loans::may_be_borrowed(const TaskKey& task, GpuId gpu) const {
  for (const auto& view : parts_.engine.scheduler().gpus()) {
    if (view.gpu->id != gpu) continue;
    for (const TaskKey& other : view.tasks) {
      const JobRecord* job = other == task ? nullptr : parts_.engine.jobs().find(other.job);
      if (job != nullptr && job->spec->task.gpu.memory_limit > job->spec->task.gpu.memory) return true;
    }
  }
  return false;
}

void Loans::arbiter_is_silent() {
  silent_ = true;
  for (auto& [task, waiting] : waiting_) {
    waiting.since = parts_.reactor.clock().since_boot();
    waiting.must_be_registered = true;  // the next one has to hear of it first
  }
}

void Loans::take(const std::vector<ShareUsage>& rows) {
  silent_ = false;
  follow_recalls(rows);
  open_waiting(rows);
}

void Loans::follow_recalls(const std::vector<ShareUsage>& rows) {
  const Duration now = parts_.reactor.clock().since_boot();
  std::map<RecallKey, Recall> left;
  std::map<JobId, std::string> to_end;
  for (const ShareUsage& row : rows) {
    const JobRecord* job = row.owed == 0 ? nullptr : parts_.engine.jobs().find(row.task.job);
    if (job == nullptr || is_ending(*job)) continue;
    const RecallKey key(row.task, row.gpu);
    const auto known = recalls_.find(key);
    Recall recall = known == recalls_.end() ? Recall{now, MiB(), false} : known->second;
    recall.owed = to_mib(row.owed);
    if (known == recalls_.end()) begin(key, recall);
    const bool late = now - recall.since >= parts_.config.share.recall_grace;
    if (late && !recall.ended && parts_.config.share.recall_end != RecallEnd::never) {
      recall.ended = true;
      to_end.emplace(row.task.job, "stopped by Tranche: it did not give back " + format_memory(recall.owed) +
                                       " of " + gpu_text(row.gpu) +
                                       " that it borrowed beyond its guarantee and others were promised");
    }
    left[key] = recall;
  }
  recalls_ = std::move(left);
  for (const auto& [job, reason] : to_end) end_job(job, reason);
}

void Loans::begin(const RecallKey& key, const Recall& recall) {
  log(LogLevel::notice, "gpu_memory_called_in",
      {{"job", key.first.job.value()}, {"rank", key.first.rank}, {"owed_mib", recall.owed.count()}});
  if (parts_.config.share.recall_signal != 0)
    parts_.host.notify(key.first, parts_.config.share.recall_signal);
}

// A foreground job is ended: nobody would be there for its next attempt.
void Loans::end_job(JobId id, const std::string& reason) {
  const JobRecord* job = parts_.engine.jobs().find(id);
  if (job == nullptr || is_ending(*job)) return;
  log(LogLevel::warning, "borrower_stopped", {{"job", id.value()}});
  if (parts_.config.share.recall_end == RecallEnd::requeue && !job->spec->interactive) {
    parts_.engine.record(JobRequeued{.job = id, .by = "tranche", .reason = reason});
  } else {
    parts_.engine.record(JobCancelled{.job = id, .by = "tranche", .reason = reason});
  }
}

void Loans::open_waiting(const std::vector<ShareUsage>& rows) {
  std::vector<TaskKey> open;
  for (const auto& [task, waiting] : waiting_) {
    const JobRecord* job = parts_.engine.jobs().find(task.job);
    const bool gone = job == nullptr || is_ending(*job) || job->attempt != task.attempt;
    if (gone || is_open(task, waiting, rows)) open.push_back(task);
  }
  for (const TaskKey& task : open) waiting_.erase(task);
  for (const TaskKey& task : open) go_(task);  // of those that have ended, the runner knows
}

bool Loans::is_open(const TaskKey& task, const Waiting& waiting, const std::vector<ShareUsage>& rows) const {
  for (const std::string& gpu : waiting.gpus) {
    bool registered = false, borrowed = false, owed = false;
    for (const ShareUsage& row : rows) {
      if (row.gpu != gpu) continue;
      registered = registered || row.task == task;
      borrowed = borrowed || (row.task != task && row.limit > row.guarantee);
      owed = owed || (row.task != task && row.owed > 0);
    }
    const Duration age = parts_.reactor.clock().since_boot() - waiting.since;
    if ((borrowed || waiting.must_be_registered) && !registered && age < kLongestUnregistered) return false;
    if (owed) return false;
  }
  return true;
}

std::string Loans::note(JobId job) const {
  for (const auto& [task, waiting] : waiting_) {
    if (task.job != job) continue;
    if (silent_)
      return "Is ready, and waits for the arbiter of memory, which does not answer; `tranche-up start` "
             "starts it.";
    std::string text;
    for (const auto& [key, recall] : recalls_) {
      if (std::find(waiting.gpus.begin(), waiting.gpus.end(), key.second) == waiting.gpus.end()) continue;
      text += (text.empty() ? "" : ", ") + job_text(key.first.job) + " gives back " +
              format_memory(recall.owed) + " of " + gpu_text(key.second) + " that it borrows";
      const std::string deadline = deadline_text(recall);
      if (!deadline.empty()) text += " (that job " + deadline + ")";
    }
    return text.empty() ? "Is being started." : "Is ready, and waits until " + text + ".";
  }
  for (const auto& [key, recall] : recalls_) {
    const JobRecord* borrower = key.first.job == job ? parts_.engine.jobs().find(job) : nullptr;
    // What an earlier attempt owed is no news of this one.
    if (borrower == nullptr || borrower->attempt != key.first.attempt) continue;
    const std::string deadline = deadline_text(recall);
    return "Borrows " + format_memory(recall.owed) + " of " + gpu_text(key.second) +
           " that others were promised: it has to give them back" +
           (deadline.empty() ? "" : ", and " + deadline) + ".";
  }
  return {};
}

std::string Loans::deadline_text(const Recall& recall) const {
  const SharePolicy& share = parts_.config.share;
  if (share.recall_end == RecallEnd::never) return {};
  if (recall.ended) return "is being stopped";
  const Duration left = recall.since + share.recall_grace - parts_.reactor.clock().since_boot();
  const int64_t seconds = std::max<int64_t>(0, left.count() / kSecond.count());
  return "is stopped in " + format_duration(Duration(seconds * kSecond.count())) + " otherwise";
}

std::string Loans::gpu_text(const std::string& digits) const {
  for (const auto& view : parts_.engine.scheduler().gpus()) {
    if (device_uuid_digits(view.gpu->uuid) == digits) return "GPU " + std::to_string(view.gpu->index);
  }
  return "a GPU";
}

std::string Loans::job_text(JobId id) const {
  const JobRecord* job = parts_.engine.jobs().find(id);
  if (job == nullptr) return "job " + std::to_string(id.value());
  return "job " + job->display() + " of " + job->spec->owner.user;
}

}  // namespace tranche::machine
