#include "machine/stranger_watch.h"

#include <unistd.h>

#include <algorithm>

#include "linux/log.h"
#include "machine/views.h"

namespace tranche::machine {
namespace {

// As /etc/login.defs has it on every distribution: below are services.
constexpr uint32_t kFirstOrdinaryUid = 1000;
constexpr size_t kNamedMax = 3;
constexpr Duration kReadingTooOld{30 * kSecond.count()};
// Begins the reason of every drain of ours, so that a daemon that starts anew knows which ones it made.
constexpr std::string_view kReason = kStrangerPrefix;

}  // namespace

void StrangerWatch::start() {
  if (parts_.interval <= Duration{}) return;
  again_ = parts_.reactor.at(parts_.reactor.clock().since_boot() + parts_.interval, [this] {
    start();
    look();
  });
}

void StrangerWatch::look() {
  std::vector<uint32_t> minors;
  for (const auto& view : parts_.engine.scheduler().gpus()) minors.push_back(view.gpu->minor);
  if (minors.empty() || !parts_.host.is_connected()) return;
  parts_.host.scan(minors, [this](const Result<std::vector<NodeHolder>>& holders) {
    // Nothing is known without an answer, so nothing changes.
    if (holders) judge(*holders);
  });
}

void StrangerWatch::judge(const std::vector<NodeHolder>& holders) {
  // Events change the views: each is judged by what was seen.
  std::vector<uint32_t> minors;
  for (const auto& view : parts_.engine.scheduler().gpus()) minors.push_back(view.gpu->minor);
  for (const uint32_t minor : minors) {
    for (const auto& view : parts_.engine.scheduler().gpus()) {
      if (view.gpu->minor != minor) continue;
      std::vector<NodeHolder> strangers;
      for (const NodeHolder& holder : holders) {
        if (holder.gpu_minor == minor && is_stranger(holder) && has_context(holder, view.gpu->index))
          strangers.push_back(holder);
      }
      if (parts_.personal) add_others(view, strangers);
      judge_gpu(view, strangers);
      break;
    }
  }
}

// Whose processes the driver lists and who are not us; whom nobody knows is left alone.
void StrangerWatch::add_others(const scheduler::GpuView& view, std::vector<NodeHolder>& strangers) const {
  const GpuStatus* status = parts_.gpus.host().status(view.gpu->index);
  if (status == nullptr || !status->reading || !status->reading->processes) return;
  if (parts_.reactor.clock().since_boot() - status->reading->taken_at > kReadingTooOld) return;
  for (const GpuProcess& process : *status->reading->processes) {
    if (!process.uid || *process.uid == ::geteuid()) continue;
    NodeHolder holder;
    holder.pid = process.pid;
    holder.uid = *process.uid;
    holder.gpu_minor = view.gpu->minor;
    const bool known = std::any_of(strangers.begin(), strangers.end(),
                                   [&](const NodeHolder& stranger) { return stranger.pid == holder.pid; });
    if (!known && is_stranger(holder)) strangers.push_back(std::move(holder));
  }
}

void StrangerWatch::judge_gpu(const scheduler::GpuView& view, const std::vector<NodeHolder>& strangers) {
  const GpuId gpu = view.gpu->id;
  const bool ours = view.drained && view.reason.starts_with(kReason);
  const Foreign foreign = parts_.policy == nullptr ? Foreign::drain : parts_.policy->foreign;
  const bool closed =
      !strangers.empty() && (foreign == Foreign::drain || (foreign == Foreign::adopt && is_closed_for(view)));
  if (strangers.empty()) said_.erase(gpu);
  if (!strangers.empty() && foreign != Foreign::ignore) say(view, strangers, describe(strangers));
  if (!closed) {
    if (!ours) return;
    return parts_.gpus.give_back(gpu);
  }
  if (view.drained && !ours) return;
  const std::string reason =
      std::string(kReason) + describe(strangers) + "; it gets no new job until they end";
  if (ours && view.reason == reason) return;
  parts_.engine.record(GpuDrained{gpu, "tranche", reason});
}

// An adopted process may have what nobody was promised.
bool StrangerWatch::is_closed_for(const scheduler::GpuView& view) const {
  return held_outside_of_jobs(parts_.gpus, view) > view.memory_free;
}

// What it is called is for administrators, as the log is.
void StrangerWatch::say(const scheduler::GpuView& view, const std::vector<NodeHolder>& strangers,
                        const std::string& who) {
  std::string& said = said_[view.gpu->id];
  if (said == who) return;
  said = who;
  log(LogLevel::warning, "gpu_used_outside_of_jobs",
      {{"gpu", view.gpu->index}, {"who", who}, {"command", strangers.front().command}});
}

// In the cgroup of a task that the log knows: a job's, be it running or on its way out.
bool StrangerWatch::is_stranger(const NodeHolder& holder) const {
  if (holder.uid < kFirstOrdinaryUid) return false;
  return !holder.task.job.is_set() || parts_.engine.jobs().find(holder.task.job) == nullptr;
}

bool StrangerWatch::has_context(const NodeHolder& holder, uint32_t gpu_index) const {
  const GpuStatus* status = parts_.gpus.host().status(gpu_index);
  if (status == nullptr || !status->reading || !status->reading->processes) return true;
  // What the driver said long ago says nothing about now.
  if (parts_.reactor.clock().since_boot() - status->reading->taken_at > kReadingTooOld) return true;
  const auto& listed = *status->reading->processes;
  return std::any_of(listed.begin(), listed.end(),
                     [&](const GpuProcess& process) { return process.pid == holder.pid; });
}

std::string StrangerWatch::describe(const std::vector<NodeHolder>& strangers) {
  std::string text;
  for (size_t i = 0; i < strangers.size() && i < kNamedMax; ++i) {
    text += (i == 0 ? "process " : ", process ") + std::to_string(strangers[i].pid) + " of " +
            parts_.users.name(strangers[i].uid);
  }
  if (strangers.size() > kNamedMax) text += " and " + std::to_string(strangers.size() - kNamedMax) + " more";
  return text;
}

}  // namespace tranche::machine
