#include "machine/shares.h"

#include <algorithm>
#include <tuple>

#include "machine/device_uuid.h"
#include "machine/fences.h"
#include "machine/views.h"

namespace tranche::machine {
namespace {

constexpr Duration kPeriod = kSecond;
constexpr Duration kPeriodWhileCalledIn{200 * kMillisecond.count()};
constexpr Duration kPeriodWhileAStartWaits{20 * kMillisecond.count()};

}  // namespace

std::vector<MemoryShare> memory_shares(const JobSpec& spec, const std::vector<Slice>& slices,
                                       const GpuManager& gpus) {
  std::vector<MemoryShare> shares;
  for (const Slice& slice : slices) {
    const Gpu* gpu = slice.kind == SliceKind::fraction ? gpus.find(slice.gpu) : nullptr;
    if (gpu == nullptr) continue;
    const MiB most = std::min(spec.task.gpu.memory_limit, gpu->memory_usable);
    shares.push_back({gpu->uuid, std::max(slice.memory, most), slice.memory});
  }
  return shares;
}

Shares::Shares(Parts parts, const std::string& watchdog)
    : parts_(parts),
      loans_({parts.reactor, parts.engine, parts.host, parts.gpus, parts.config}),
      watch_({parts.reactor, parts.engine, parts.host, parts.drains, parts.config}, watchdog) {}

void Shares::start(std::function<api::GpuList()> look) {
  look_ = std::move(look);
  ask();
}

bool Shares::may_go(const TaskKey& task) {
  const JobRecord* job = parts_.engine.jobs().find(task.job);
  // What it may borrow is known before it asks for it.
  if (job != nullptr && job->spec->task.gpu.memory_limit > job->spec->task.gpu.memory) tell_boards();
  const bool is_away = has_guard(parts_.config.run_dir) && !parts_.arbiter.is_there();
  if (loans_.may_go(task, is_away)) return true;
  // What is being answered now may be older than the task's registration.
  ask_again_ = asking_;
  if (!asking_) parts_.reactor.post([this] { ask(); });
  return false;
}

void Shares::ask() {
  if (asking_) return;
  asking_ = true;
  ask_again_ = false;
  again_.reset();
  tell_boards();
  parts_.arbiter.usage([this](Result<std::vector<ShareUsage>> rows) { take(std::move(rows)); });
}

// What processes hold that belong to no job is not lent to anybody.
void Shares::tell_boards() {
  for (const auto& view : parts_.engine.scheduler().gpus()) {
    parts_.arbiter.set_board(device_uuid_digits(view.gpu->uuid), view.gpu->memory_usable,
                             held_outside_of_jobs(parts_.gpus, view));
  }
}

void Shares::take(Result<std::vector<ShareUsage>> rows) {
  asking_ = false;
  rows_.clear();
  if (rows) {
    rows_ = std::move(*rows);
    std::sort(rows_.begin(), rows_.end(), [](const ShareUsage& a, const ShareUsage& b) {
      return std::tie(a.task, a.gpu) < std::tie(b.task, b.gpu);
    });
    loans_.take(rows_);
    settle_limits();
  } else {
    loans_.arbiter_is_silent();
  }
  const Duration now = parts_.reactor.clock().since_boot();
  if (looked_ == Duration{} || now - looked_ >= kPeriod) {
    looked_ = now;
    settle_policy();
    watch_.look(look_());
  }
  if (ask_again_) return ask();
  arm();
}

// A part that was changed while the task runs: the arbiter is told until it has it, after its restart as
// well.
void Shares::settle_limits() {
  for (const ShareUsage& row : rows_) {
    const JobRecord* job = parts_.engine.jobs().find(row.task.job);
    if (job == nullptr || is_final(job->state)) continue;
    for (const TaskEntry& task : job->tasks) {
      if (task.key != row.task) continue;
      for (const MemoryShare& share : memory_shares(*job->spec, task.slices, parts_.gpus)) {
        if (device_uuid_digits(share.uuid) != row.gpu) continue;
        if (to_mib(row.limit) == share.limit && to_mib(row.guarantee) == share.guarantee) continue;
        parts_.arbiter.set_limit(row.task, row.gpu, share.limit, share.guarantee);
      }
    }
  }
}

MemoryHeld Shares::held_by(JobId id) const {
  MemoryHeld held;
  const JobRecord* job = parts_.engine.jobs().find(id);
  if (job == nullptr) return held;
  bool is_known = true;
  MiB charged;
  for (const TaskEntry& task : job->tasks) {
    if (task.state != JobState::running) continue;
    for (const MemoryShare& share : memory_shares(*job->spec, task.slices, parts_.gpus)) {
      held.part = std::max(held.part, share.limit);
      const std::string digits = device_uuid_digits(share.uuid);
      const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const ShareUsage& each) {
        return each.task == task.key && each.gpu == digits;
      });
      is_known = is_known && row != rows_.end();
      if (row != rows_.end()) charged = std::max(charged, to_mib(row->charged));
    }
  }
  if (is_known) held.charged = charged;
  return held;
}

void Shares::arm() {
  Duration pause = kPeriod;
  if (loans_.is_calling_in()) pause = kPeriodWhileCalledIn;
  if (loans_.has_waiting()) pause = kPeriodWhileAStartWaits;
  again_ = parts_.reactor.at(parts_.reactor.clock().since_boot() + pause, [this] { ask(); });
}

void Shares::settle_policy() {
  Policy policy = parts_.engine.scheduler().policy();
  Policy wanted = effective_policy(parts_.config, parts_.gpus.driver_version(), parts_.engine.scheduler());
  if (policy.users_share_gpu == wanted.users_share_gpu && policy.users_share_gpus == wanted.users_share_gpus)
    return;
  policy.users_share_gpu = wanted.users_share_gpu;
  policy.users_share_gpus = std::move(wanted.users_share_gpus);
  parts_.engine.record(PolicyChanged{std::move(policy)});
}

const ShareUsage* Shares::find(const TaskKey& task, const Gpu& gpu) const {
  const std::string digits = device_uuid_digits(gpu.uuid);
  const auto row =
      std::lower_bound(rows_.begin(), rows_.end(), std::tie(task, digits),
                       [](const ShareUsage& a, const auto& key) { return std::tie(a.task, a.gpu) < key; });
  return row != rows_.end() && row->task == task && row->gpu == digits ? &*row : nullptr;
}

std::string Shares::note(JobId job) const {
  std::string text = watch_.note(job);
  return text.empty() ? loans_.note(job) : text;
}

}  // namespace tranche::machine
