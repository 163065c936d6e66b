#include "machine/members.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>
#include <vector>

#include "base/failpoint.h"
#include "linux/files.h"
#include "linux/log.h"
#include "machine/gang_ports.h"

namespace tranche::machine {
namespace {

constexpr std::string_view kGeneration = "GENERATION=";
constexpr size_t kFileMost = size_t{16} << 20;

std::string members_folder(const std::string& run_dir) { return run_dir + "/members"; }

std::string listed(const Membership& members, bool leaving) {
  std::string text;
  for (const auto& [rank, leaves] : members.ranks) {
    if (leaves == leaving) text += (text.empty() ? "" : ",") + std::to_string(rank);
  }
  return text;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  return names;
}

// The job that the file is of; unset: of none, as what a write that was cut off has left.
JobId job_of(const std::string& name) {
  uint64_t id = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  return error == std::errc() && stop == name.data() + name.size() ? JobId(id) : JobId();
}

}  // namespace

std::string members_file(const std::string& run_dir, JobId job) {
  return members_folder(run_dir) + "/" + std::to_string(job.value());
}

std::string members_text(const JobSpec& spec, uint16_t port, const Membership& members) {
  const auto staying = std::count_if(members.ranks.begin(), members.ranks.end(),
                                     [](const auto& member) { return !member.second; });
  return "FORMAT=1\nWORLD_SIZE=" + std::to_string(staying) + "\nRANKS=" + listed(members, false) +
         "\nLEAVING=" + listed(members, true) + "\nTASKS_MIN=" + std::to_string(spec.tasks_min) +
         "\nTASKS_MAX=" + std::to_string(spec.tasks_max) + "\nMASTER_ADDR=" + std::string(kGangAddress) +
         "\nMASTER_PORT=" + std::to_string(port) + "\n";
}

const JobRecord* Members::elastic(JobId id) const {
  const JobRecord* job = engine_.jobs().find(id);
  return job != nullptr && job->spec->elastic ? job : nullptr;
}

void Members::resume() {
  const std::string folder = members_folder(run_dir_);
  for (const std::string& name : names_in(folder)) {
    const JobId id = job_of(name);
    if (!id.is_set() || elastic(id) == nullptr || !engine_.scheduler().has_job(id))
      ::unlink((folder + "/" + name).c_str());
  }
  for (const JobId id : engine_.scheduler().live_jobs()) {
    const JobRecord* job = elastic(id);
    if (job == nullptr || job->state == JobState::pending || job->state == JobState::held) continue;
    Job& known = jobs_[id];
    known.port = gang_ports_of(*job).first;
    for (const TaskEntry& task : job->tasks) {
      if (task.ended.is_set()) continue;
      const bool stopping = task.state == JobState::stopping;
      if (stopping) known.told_to_stop.insert(task.key.rank);
      if (task.started.is_set()) known.members.ranks[task.key.rank] = stopping;
    }
    write(*job, engine_.last_seq());
  }
}

void Members::on_durable(const JournalRow& row) {
  std::set<JobId> changed;
  take_event(row.event, changed);
  for (const Decision& decision : row.decisions) take_decision(decision, changed);
  for (const JobId id : changed) {
    if (jobs_.contains(id)) write(*engine_.jobs().find(id), row.event.seq);
  }
}

void Members::take_event(const Event& event, std::set<JobId>& changed) {
  if (const auto* started = std::get_if<TaskStarted>(&event.payload)) {
    const auto job = jobs_.find(started->task.job);
    if (job == jobs_.end()) return;
    const uint32_t rank = started->task.rank;
    job->second.members.ranks[rank] = job->second.told_to_stop.contains(rank);
    changed.insert(job->first);
  } else if (const auto* exited = std::get_if<TaskExited>(&event.payload)) {
    const auto job = jobs_.find(exited->task.job);
    if (job == jobs_.end()) return;
    job->second.members.ranks.erase(exited->task.rank);
    changed.insert(job->first);
  }
}

void Members::take_decision(const Decision& decision, std::set<JobId>& changed) {
  if (const auto* start = std::get_if<Start>(&decision)) {
    const JobRecord* const record = elastic(start->task.job);
    if (record == nullptr) return;
    const auto [job, is_new] = jobs_.try_emplace(start->task.job);
    if (is_new) job->second.port = gang_ports(record->id, start->task.attempt, record->spec->tasks_max).first;
    job->second.told_to_stop.erase(start->task.rank);
    // The file is there before the first task looks for it.
    if (is_new) changed.insert(job->first);
  } else if (const auto* stop = std::get_if<Stop>(&decision)) {
    const auto job = jobs_.find(stop->task.job);
    if (job == jobs_.end()) return;
    job->second.told_to_stop.insert(stop->task.rank);
    const auto member = job->second.members.ranks.find(stop->task.rank);
    if (member == job->second.members.ranks.end()) return;
    member->second = true;
    changed.insert(job->first);
  } else if (const auto* end = std::get_if<End>(&decision)) {
    forget(end->job);
  } else if (const auto* requeue = std::get_if<Requeue>(&decision)) {
    forget(requeue->job);
  }
}

void Members::forget(JobId job) {
  if (jobs_.erase(job) != 0) ::unlink(members_file(run_dir_, job).c_str());
}

// What is there already and says the same keeps its generation: a restart of the daemon is no change.
void Members::write(const JobRecord& job, EventSeq generation) {
  const std::string path = members_file(run_dir_, job.id);
  const Job& known = jobs_.at(job.id);
  const std::string text = members_text(*job.spec, known.port, known.members);
  const auto present = read_file(path, kFileMost);
  if (present && present->starts_with(text + std::string(kGeneration))) return;
  failpoint("members.before");
  if (::mkdir(members_folder(run_dir_).c_str(), 0755) == 0)
    (void)::chmod(members_folder(run_dir_).c_str(), 0755);
  const auto written = write_file_atomically(
      path, text + std::string(kGeneration) + std::to_string(generation.value()) + "\n", 0644);
  if (!written)
    log(LogLevel::error, "members_not_written", {{"job", job.id.value()}, {"error", written.error()}});
  failpoint("members.after");
}

}  // namespace tranche::machine
