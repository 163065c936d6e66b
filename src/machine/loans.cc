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

bool are_registered(const std::vector<TaskKey>& tasks, const std::set<TaskKey>& registered) {
  return std::all_of(tasks.begin(), tasks.end(),
                     [&](const TaskKey& task) { return registered.contains(task); });
}

bool is_ending(const JobRecord& job) { return is_final(job.state) || job.state == JobState::stopping; }

}  // namespace

bool Loans::may_go(const TaskKey& task, bool arbiter_is_away) {
  if (waiting_.contains(task)) return false;
  Waiting waiting;
  const JobRecord* job = parts_.engine.jobs().find(task.job);
  if (job == nullptr) return true;
  for (const TaskEntry& entry : job->tasks) {
    // Tasks that start together execute together: none before all may.
    if (entry.key != task && (entry.state != JobState::starting || entry.key.attempt != task.attempt))
      continue;
    for (const Slice& slice : entry.slices) {
      const Gpu* gpu = parts_.gpus.find(slice.gpu);
      if (slice.kind == SliceKind::fraction && gpu != nullptr &&
          (arbiter_is_away || may_be_borrowed(task.job, slice.gpu)))
        waiting.parts.emplace_back(entry.key, device_uuid_digits(gpu->uuid));
    }
  }
  if (waiting.parts.empty()) return true;
  waiting.since = parts_.reactor.clock().since_boot();
  waiting.must_be_registered = arbiter_is_away;
  silent_ = silent_ || arbiter_is_away;
  waiting_.emplace(task, std::move(waiting));
  return false;
}

// Whether another job's task on the GPU may have borrowed there: cheap, and almost always not so.
bool Loans::may_be_borrowed(JobId id, GpuId gpu) const {
  for (const auto& view : parts_.engine.scheduler().gpus()) {
    if (view.gpu->id != gpu) continue;
    for (const TaskKey& other : view.tasks) {
      const JobRecord* job = other.job == id ? nullptr : parts_.engine.jobs().find(other.job);
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
  std::set<RecallKey> heard;
  std::set<JobId> to_end;
  for (const ShareUsage& row : rows) {
    const RecallKey key(row.task, row.gpu);
    heard.insert(key);
    const JobRecord* job = row.owed == 0 ? nullptr : parts_.engine.jobs().find(row.task.job);
    if (job == nullptr || is_final(job->state)) continue;
    const bool is_stopping = job->state == JobState::stopping;
    const auto known = recalls_.find(key);
    Recall recall = known == recalls_.end() ? Recall{now, MiB(), false} : known->second;
    recall.owed = to_mib(row.owed);
    recall.ended = recall.ended || is_stopping;
    if (known == recalls_.end() && !is_stopping) begin(key, recall);
    const bool late = now - recall.since >= parts_.config.share.recall_grace;
    if (late && !recall.ended && parts_.config.share.recall_end != RecallEnd::never) {
      recall.ended = true;
      to_end.insert(row.task.job);
    }
    left[key] = recall;
  }
  // Of whom a new arbiter has not heard yet, nothing is known anew.
  for (const auto& [key, recall] : recalls_) {
    const JobRecord* job = heard.contains(key) ? nullptr : parts_.engine.jobs().find(key.first.job);
    if (job != nullptr && !is_final(job->state) && job->attempt == key.first.attempt) left[key] = recall;
  }
  recalls_ = std::move(left);
  for (const JobId job : to_end) {
    end_job(job, "stopped by Tranche: it did not give back " + owed_text(job) +
                     " that it borrowed beyond its guarantee and others were promised");
  }
}

// Over all of its tasks: "20G of GPU 0 and 3G of GPU 1".
std::string Loans::owed_text(JobId job) const {
  std::map<std::string, MiB> owed;
  for (const auto& [key, recall] : recalls_) {
    if (key.first.job == job) owed[key.second] += recall.owed;
  }
  std::string text;
  for (const auto& [gpu, memory] : owed)
    text += (text.empty() ? "" : " and ") + format_memory(memory) + " of " + gpu_text(gpu);
  return text;
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
  const bool is_old = parts_.reactor.clock().since_boot() - waiting.since >= kLongestUnregistered;
  for (const auto& [member, gpu] : waiting.parts) {
    std::set<TaskKey> registered;
    bool borrowed = false, owed = false;
    for (const ShareUsage& row : rows) {
      if (row.gpu != gpu) continue;
      registered.insert(row.task);
      borrowed = borrowed || (row.task.job != task.job && row.limit > row.guarantee);
      owed = owed || (row.task.job != task.job && row.owed > 0);
    }
    if (owed) return false;
    if (is_old) continue;
    if ((borrowed || waiting.must_be_registered) && !registered.contains(member)) return false;
    if (waiting.must_be_registered && !are_registered(borrowers_on(gpu), registered)) return false;
  }
  return true;
}

// What may have borrowed there, and has begun.
std::vector<TaskKey> Loans::borrowers_on(const std::string& gpu) const {
  std::vector<TaskKey> borrowers;
  for (const auto& view : parts_.engine.scheduler().gpus()) {
    if (device_uuid_digits(view.gpu->uuid) != gpu) continue;
    for (const TaskKey& task : view.tasks) {
      const JobRecord* job = parts_.engine.jobs().find(task.job);
      if (job == nullptr || job->spec->task.gpu.memory_limit <= job->spec->task.gpu.memory) continue;
      for (const TaskEntry& entry : job->tasks) {
        if (entry.key == task && entry.state == JobState::running) borrowers.push_back(task);
      }
    }
  }
  return borrowers;
}

std::string Loans::note(JobId id) const {
  const JobRecord* job = parts_.engine.jobs().find(id);
  if (job == nullptr) return {};
  for (const auto& [task, waiting] : waiting_) {
    if (task.job == id) return note_of_waiting(waiting);
  }
  for (const auto& [key, recall] : recalls_) {
    // What an earlier attempt owed is no news of this one; that it is being stopped is told with its reason.
    if (key.first.job != id || key.first.attempt != job->attempt || job->state == JobState::stopping)
      continue;
    const std::string deadline = deadline_text(recall);
    return "Borrows " + owed_text(id) + " that others were promised: it has to give them back" +
           (deadline.empty() ? "" : ", and " + deadline) + ".";
  }
  return {};
}

std::string Loans::note_of_waiting(const Waiting& waiting) const {
  if (silent_) {
    return "Is ready, and waits for the arbiter of memory, which does not answer; `tranche-up start` starts "
           "it.";
  }
  std::string text;
  std::set<JobId> told;
  for (const auto& [key, recall] : recalls_) {
    const bool is_there =
        std::any_of(waiting.parts.begin(), waiting.parts.end(),
                    [&, &gpu = key.second](const auto& part) { return part.second == gpu; });
    if (!is_there || !told.insert(key.first.job).second) continue;
    text += (text.empty() ? "" : "; and until ") + job_text(key.first.job) + " gives back " +
            owed_text(key.first.job) + " that it borrows";
    const std::string deadline = deadline_text(recall);
    if (!deadline.empty()) text += " (that job " + deadline + ")";
  }
  return text.empty() ? "Is being started." : "Is ready, and waits until " + text + ".";
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
