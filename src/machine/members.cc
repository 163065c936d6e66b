#include "machine/members.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <set>

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

std::set<JobId> jobs_with_files(const std::string& folder) {
  std::set<JobId> jobs;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  if (directory == nullptr) return jobs;
  while (const dirent* entry = ::readdir(directory.get())) {
    uint64_t id = 0;
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    const auto [stop, error] = std::from_chars(entry->d_name, end, id);
    if (error == std::errc() && stop == end && id > 0) jobs.insert(JobId(id));
  }
  return jobs;
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
  for (const JobId id : jobs_with_files(members_folder(run_dir_))) {
    const JobRecord* job = elastic(id);
    if (job == nullptr || !engine_.scheduler().has_job(id)) ::unlink(members_file(run_dir_, id).c_str());
  }
  for (const JobId id : engine_.scheduler().live_jobs()) {
    const JobRecord* job = elastic(id);
    if (job == nullptr || job->state == JobState::pending || job->state == JobState::held) continue;
    Membership& members = jobs_[id];
    for (const TaskEntry& task : job->tasks) {
      if (task.started.is_set() && !task.ended.is_set())
        members.ranks[task.key.rank] = task.state == JobState::stopping;
    }
    write(*job, engine_.last_seq());
  }
}

void Members::on_durable(const JournalRow& row) {
  std::set<JobId> changed;
  if (const auto* started = std::get_if<TaskStarted>(&row.event.payload)) {
    if (elastic(started->task.job) != nullptr) {
      jobs_[started->task.job].ranks.emplace(started->task.rank, false);
      changed.insert(started->task.job);
    }
  } else if (const auto* exited = std::get_if<TaskExited>(&row.event.payload)) {
    if (const auto members = jobs_.find(exited->task.job); members != jobs_.end()) {
      members->second.ranks.erase(exited->task.rank);
      changed.insert(exited->task.job);
    }
  }
  for (const Decision& decision : row.decisions) {
    if (const auto* start = std::get_if<Start>(&decision)) {
      // The file is there before the first task looks for it.
      if (elastic(start->task.job) != nullptr && jobs_.try_emplace(start->task.job).second)
        changed.insert(start->task.job);
    } else if (const auto* stop = std::get_if<Stop>(&decision)) {
      const auto members = jobs_.find(stop->task.job);
      if (members == jobs_.end()) continue;
      const auto member = members->second.ranks.find(stop->task.rank);
      if (member == members->second.ranks.end()) continue;
      member->second = true;
      changed.insert(stop->task.job);
    } else if (const auto* end = std::get_if<End>(&decision)) {
      forget(end->job);
    } else if (const auto* requeue = std::get_if<Requeue>(&decision)) {
      forget(requeue->job);
    }
  }
  for (const JobId id : changed) {
    if (jobs_.contains(id)) write(*engine_.jobs().find(id), row.event.seq);
  }
}

void Members::forget(JobId job) {
  if (jobs_.erase(job) != 0) ::unlink(members_file(run_dir_, job).c_str());
}

// What is there already and says the same keeps its generation: a restart of the daemon is no change.
void Members::write(const JobRecord& job, EventSeq generation) {
  const std::string path = members_file(run_dir_, job.id);
  const std::string text = members_text(*job.spec, gang_ports_of(job).first, jobs_.at(job.id));
  const auto present = read_file(path, kFileMost);
  if (present && present->starts_with(text + std::string(kGeneration))) return;
  failpoint("members.before");
  if (::mkdir(members_folder(run_dir_).c_str(), 0755) == 0) (void)::chmod(members_folder(run_dir_).c_str(), 0755);
  const auto written = write_file_atomically(
      path, text + std::string(kGeneration) + std::to_string(generation.value()) + "\n", 0644);
  if (!written) log(LogLevel::error, "members_not_written", {{"job", job.id.value()}, {"error", written.error()}});
  failpoint("members.after");
}

}  // namespace tranche::machine
