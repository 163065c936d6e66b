#include "machine/share_watch.h"

#include <algorithm>

#include "base/quantity_text.h"
#include "linux/log.h"

namespace tranche::machine {

std::vector<OverShare> over_shares(const api::GpuList& gpus) {
  std::vector<OverShare> found;
  for (const api::GpuStatus& gpu : gpus.gpus) {
    // A gang may have several tasks of one job on a GPU: their parts add up, as their processes do.
    std::map<JobId, OverShare> jobs;
    for (const api::SliceRow& slice : gpu.slices) {
      if (slice.kind != SliceKind::fraction) continue;
      OverShare& job = jobs[slice.job];
      job.job = slice.job;
      job.gpu = gpu.index;
      job.user = slice.user;
      job.part += slice.memory;
    }
    for (const api::GpuProcess& process : gpu.processes) {
      if (!process.job || !process.memory) continue;
      const auto job = jobs.find(*process.job);
      if (job != jobs.end()) job->second.held += *process.memory;
    }
    for (const auto& [id, job] : jobs) {
      const MiB slack = std::max(kShareSlack, MiB(job.part.count() / 50));
      if (job.held > job.part + slack) found.push_back(job);
    }
  }
  return found;
}

std::string to_text(const OverShare& over) {
  return "job " + std::to_string(over.job.value()) + " of " + over.user + " holds " +
         format_memory(over.held) + " of GPU " + std::to_string(over.gpu) + " and has " +
         format_memory(over.part);
}

api::DoctorCheck share_check(const api::GpuList& gpus) {
  std::string text;
  for (const OverShare& over : over_shares(gpus)) text += (text.empty() ? "" : "; ") + to_text(over);
  if (text.empty())
    return {"shares", api::CheckStatus::ok, "no job is seen to hold more of a GPU than its part", ""};
  return {"shares", api::CheckStatus::warn, text,
          "its program goes around the guard: ask its owner, `tranche cancel` it, or give it whole GPUs"};
}

ShareWatch::ShareWatch(Reactor& reactor, Look look) : reactor_(reactor), look_(std::move(look)) {}

void ShareWatch::start() { look(); }

void ShareWatch::look() {
  std::map<std::pair<JobId, uint32_t>, int> now;
  for (const OverShare& over : over_shares(look_())) {
    const std::pair key(over.job, over.gpu);
    const auto before = over_.find(key);
    const int looks = before == over_.end() ? 1 : before->second + 1;
    now[key] = looks;
    if (looks != kLooks) continue;
    log(LogLevel::warning, "share_exceeded",
        {{"job", over.job.value()},
         {"gpu", over.gpu},
         {"held_mib", over.held.count()},
         {"part_mib", over.part.count()}});
  }
  over_ = std::move(now);
  again_ = reactor_.at(reactor_.clock().since_boot() + kPeriod, [this] { look(); });
}

}  // namespace tranche::machine
