#include "machine/share_watch.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/quantity_text.h"
#include "linux/log.h"

namespace tranche::machine {
namespace {

// A reading that is older tells nothing of now.
constexpr Duration kFresh{5 * kSecond.count()};

constexpr size_t kRememberedMax = 256;

MiB slack_of(MiB part) { return std::max(kShareSlack, MiB(part.count() / 50)); }

bool is_known(const api::GpuStatus& gpu) {
  return gpu.sample_age ? *gpu.sample_age <= kFresh : !gpu.processes.empty();
}

// What is held and charged of one job on one GPU.
struct Account {
  OverShare sum;
  uint32_t seen = 0;        // processes that the driver lists
  uint32_t registered = 0;  // that the guard has
  bool is_charged_known = true;
};

std::map<JobId, Account> accounts_of(const api::GpuStatus& gpu) {
  // A gang may have several tasks of one job on a GPU: their parts add up, as their processes do.
  std::map<JobId, Account> jobs;
  for (const api::SliceRow& slice : gpu.slices) {
    if (slice.kind != SliceKind::fraction) continue;
    Account& job = jobs[slice.job];
    job.sum.job = slice.job;
    job.sum.gpu = gpu.index;
    job.sum.user = slice.user;
    job.sum.display = slice.display.empty() ? std::to_string(slice.job.value()) : slice.display;
    job.sum.part += std::max(slice.memory, slice.memory_limit.value_or(MiB()));
    job.sum.promised += slice.memory;
    job.sum.charged += slice.memory_charged.value_or(MiB());
    job.registered += slice.processes.value_or(0);
    job.is_charged_known = job.is_charged_known && slice.memory_charged && slice.processes;
  }
  for (const api::GpuProcess& process : gpu.processes) {
    const auto job = process.job ? jobs.find(*process.job) : jobs.end();
    if (job == jobs.end()) continue;
    ++job->second.seen;
    if (process.memory) job->second.sum.held += *process.memory;
  }
  return jobs;
}

}  // namespace

std::vector<OverShare> over_shares(const api::GpuList& gpus) {
  std::vector<OverShare> found;
  for (const api::GpuStatus& gpu : gpus.gpus) {
    if (!is_known(gpu)) continue;
    for (auto& [id, job] : accounts_of(gpu)) {
      OverShare& sum = job.sum;
      const bool unguarded = job.is_charged_known &&
                             (sum.held > sum.charged + slack_of(sum.charged) || job.seen > job.registered);
      // What is not counted is not lent: it can be called in from nobody.
      const MiB most = unguarded ? sum.promised : sum.part;
      const bool over = sum.held > most + slack_of(most);
      if (!over && !unguarded) continue;
      sum.is_counted = !unguarded;
      sum.kind = over ? OverShare::Kind::over : OverShare::Kind::unguarded;
      found.push_back(sum);
    }
  }
  return found;
}

std::string to_text(const OverShare& over) {
  std::string text = "job " + over.display + " of " + over.user + " holds " + format_memory(over.held) +
                     " of GPU " + std::to_string(over.gpu) + " and has " + format_memory(over.part);
  if (over.promised < over.part) text += ", of which " + format_memory(over.promised) + " are promised to it";
  if (!over.is_counted)
    text += ", but its programs go around the guard, which knows of " + format_memory(over.charged);
  return text;
}

api::DoctorCheck share_check(const api::GpuList& gpus) {
  std::string text;
  for (const OverShare& over : over_shares(gpus)) text += (text.empty() ? "" : "; ") + to_text(over);
  if (text.empty())
    return {"shares", api::CheckStatus::ok, "no job is seen to hold more of a GPU than its part", ""};
  return {"shares", api::CheckStatus::warn, text,
          "its program goes around the guard: ask its owner, `tranche cancel` it, or give it whole GPUs"};
}

ShareWatch::ShareWatch(Parts parts, const std::string& earlier) : parts_(parts), noted_(earlier) {
  std::string_view rest = earlier;
  while (!rest.empty() && earlier_.size() < kRememberedMax) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    int64_t values[3] = {};  // job, GPU, since
    const char* at = line.data();
    const char* const end = line.data() + line.size();
    bool good = true;
    for (int64_t& value : values) {
      const auto [stop, error] = std::from_chars(at, end, value);
      good = good && error == std::errc() && value >= 0;
      at = stop != end ? stop + 1 : end;
    }
    if (!good || values[1] > UINT32_MAX || Duration(values[2]) > parts.reactor.clock().since_boot()) continue;
    earlier_.emplace(Key(JobId(static_cast<uint64_t>(values[0])), static_cast<uint32_t>(values[1])),
                     Duration(values[2]));
  }
}

// Only what is old enough to be said, and only when it is not the same.
void ShareWatch::remember() {
  std::string text;
  size_t count = 0;
  for (const auto& [key, found] : cases_) {
    if (found.looks < kLooks || ++count > kRememberedMax) continue;
    text += std::to_string(key.first.value()) + " " + std::to_string(key.second) + " " +
            std::to_string(found.since.count()) + "\n";
  }
  if (text == noted_) return;
  noted_ = text;
  parts_.engine.journal().append_note(kWatchdogNote, text);
}

// What an earlier run of the daemon has paused is judged anew.
void ShareWatch::continue_paused() {
  if (has_continued_ || !parts_.host.is_connected()) return;
  has_continued_ = true;
  for (const JobId id : parts_.engine.scheduler().live_jobs()) {
    const JobRecord* job = parts_.engine.jobs().find(id);
    if (job == nullptr || job->spec->task.gpu.kind != SliceKind::fraction) continue;
    for (const TaskKey& task : running_tasks(id)) parts_.host.freeze(task, false);
  }
}

void ShareWatch::look(const api::GpuList& gpus) {
  continue_paused();
  std::map<Key, Case> now;
  for (const OverShare& over : over_shares(gpus)) {
    if (over.kind == OverShare::Kind::unguarded && parts_.config.watchdog.unguarded == Unguarded::ignore)
      continue;
    const Key key(over.job, over.gpu);
    const auto before = cases_.find(key);
    Case found = before == cases_.end() ? Case() : before->second;
    if (found.looks == 0) {
      const auto known = earlier_.find(key);
      found.since = known == earlier_.end() ? parts_.reactor.clock().since_boot() : known->second;
    }
    ++found.looks;
    found.last = over;
    now[key] = std::move(found);
  }
  std::vector<Key> seen;
  for (const auto& [key, found] : now) seen.push_back(key);
  for (const api::GpuStatus& gpu : gpus.gpus) {
    if (is_known(gpu)) continue;
    for (const auto& [key, known] : cases_) {
      if (key.second == gpu.index) now[key] = known;
    }
  }
  for (const auto& [key, known] : cases_) {
    if (!now.contains(key)) resume(known);
  }
  cases_ = std::move(now);
  keep_newcomers_away(gpus);
  if (++looks_ == kLooks) earlier_.clear();
  if (looks_ >= kLooks) remember();
  // What was not seen now goes no grade further.
  for (const Key& key : seen) act(cases_.at(key));
}

// A GPU that an earlier run of the daemon has drained stays so until it is looked at as often as this one
// did.
void ShareWatch::keep_newcomers_away(const api::GpuList& gpus) {
  std::map<uint32_t, GpuId> ids;
  for (const auto& view : parts_.engine.scheduler().gpus()) ids.emplace(view.gpu->index, view.gpu->id);
  for (const api::GpuStatus& gpu : gpus.gpus) {
    const auto id = ids.find(gpu.index);
    if (id == ids.end() || !is_known(gpu)) continue;
    std::string who;
    bool may_be_over = false;
    for (const auto& [key, found] : cases_) {
      if (key.second != gpu.index || found.last.kind != OverShare::Kind::over) continue;
      may_be_over = true;
      if (found.looks >= kLooks) who += (who.empty() ? "" : "; ") + to_text(found.last);
    }
    const bool drained = parts_.drains.is_drained_for(id->second, DrainCause::over);
    if (!may_be_over && (closed_.erase(id->second) > 0 || drained))
      parts_.drains.remove(id->second, DrainCause::over);
    if (who.empty() || drained) continue;
    closed_.insert(id->second);
    parts_.drains.add(id->second, DrainCause::over, who + "; it gets no new job meanwhile");
  }
}

void ShareWatch::act(Case& found) {
  const WatchdogPolicy& policy = parts_.config.watchdog;
  if (found.looks < kLooks) return;
  if (found.looks == kLooks) report(found);
  if (found.last.kind == OverShare::Kind::unguarded && policy.unguarded != Unguarded::act) return;
  const Duration age = parts_.reactor.clock().since_boot() - found.since;
  const bool ends = policy.end_after > Duration{} && age >= policy.end_after;
  if (ends && !found.ended) {
    found.ended = true;
    const JobRecord* job = parts_.engine.jobs().find(found.last.job);
    if (job == nullptr || is_final(job->state) || job->state == JobState::stopping) return;
    log(LogLevel::warning, "share_exceeded_ended", {{"job", found.last.job.value()}});
    parts_.engine.record(JobCancelled{
        .job = found.last.job, .by = "tranche", .reason = "ended by the watchdog: " + to_text(found.last)});
    return;
  }
  if (policy.pause_after > Duration{} && age >= policy.pause_after && found.paused.empty() && !found.ended)
    pause(found);
}

void ShareWatch::report(const Case& found) const {
  log(LogLevel::warning, found.last.kind == OverShare::Kind::over ? "share_exceeded" : "share_unguarded",
      {{"job", found.last.job.value()},
       {"gpu", found.last.gpu},
       {"held_mib", found.last.held.count()},
       {"part_mib", found.last.part.count()},
       {"charged_mib", found.last.charged.count()}});
}

void ShareWatch::pause(Case& found) {
  for (const TaskKey& task : running_tasks(found.last.job)) {
    parts_.host.freeze(task, true);
    found.paused.insert(task);
  }
  log(LogLevel::warning, "share_exceeded_paused", {{"job", found.last.job.value()}});
}

void ShareWatch::resume(const Case& found) {
  for (const TaskKey& task : found.paused) parts_.host.freeze(task, false);
  if (!found.paused.empty()) log(LogLevel::notice, "share_pause_over", {{"job", found.last.job.value()}});
}

std::vector<TaskKey> ShareWatch::running_tasks(JobId id) const {
  std::vector<TaskKey> tasks;
  const JobRecord* job = parts_.engine.jobs().find(id);
  if (job == nullptr) return tasks;
  for (const TaskEntry& task : job->tasks) {
    if (task.state == JobState::running) tasks.push_back(task.key);
  }
  return tasks;
}

std::string ShareWatch::note(JobId job) const {
  for (const auto& [key, found] : cases_) {
    if (key.first != job || found.looks < kLooks) continue;
    const bool over = found.last.kind == OverShare::Kind::over;
    const std::string begin = !found.paused.empty() ? "Is paused by the watchdog: "
                              : over                ? "Uses too much: "
                                                    : "Uses memory that is not counted: ";
    return begin + to_text(found.last) + ".";
  }
  return {};
}

}  // namespace tranche::machine
