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

Shares::Shares(Parts parts)
    : parts_(parts),
      loans_({parts.reactor, parts.engine, parts.host, parts.gpus, parts.config}),
      watch_({parts.reactor, parts.engine, parts.host, parts.config}) {}

void Shares::start(std::function<api::GpuList()> look) {
  look_ = std::move(look);
  ask();
}

bool Shares::may_go(const TaskKey& task, const std::vector<Slice>& slices) {
  const JobRecord* job = parts_.engine.jobs().find(task.job);
  // What it may borrow is known before it asks for it.
  if (job != nullptr && job->spec->task.gpu.memory_limit > job->spec->task.gpu.memory) tell_boards();
  if (loans_.may_go(task, slices)) return true;
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

void Shares::arm() {
  Duration pause = kPeriod;
  if (loans_.is_calling_in()) pause = kPeriodWhileCalledIn;
  if (loans_.has_waiting()) pause = kPeriodWhileAStartWaits;
  again_ = parts_.reactor.at(parts_.reactor.clock().since_boot() + pause, [this] { ask(); });
}

void Shares::settle_policy() {
  Policy policy = parts_.engine.scheduler().policy();
  const bool wanted = effective_policy(parts_.config, parts_.gpus.driver_version()).users_share_gpu;
  if (policy.users_share_gpu == wanted) return;
  policy.users_share_gpu = wanted;
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
