#include "machine/release_watch.h"

#include <algorithm>

#include "linux/process_identity.h"
#include "machine/ghost_watch.h"

namespace tranche::machine {
namespace {

// Reaping is not instant, and neither is the driver: orphans were seen to take 1-2 s.
constexpr Duration kDrainAfter{3 * kSecond.count()};
constexpr Duration kFirstPause = kMillisecond;
constexpr Duration kLongestPause{100 * kMillisecond.count()};
constexpr Duration kPauseOnceDrained{2 * kSecond.count()};

}  // namespace

ReleaseWatch::ReleaseWatch(Reactor& reactor, Engine& engine, GpuManager& gpus, GpuDrains& drains)
    : reactor_(reactor), engine_(engine), gpus_(gpus), drains_(drains) {}

void ReleaseWatch::watch(const TaskKey& task, const Slice& slice) {
  const Key key{task, slice.gpu};
  if (pending_.contains(key)) return;
  // An earlier run of the daemon may have drained it on account of this very slice.
  const bool drained = drains_.is_drained_for(slice.gpu, DrainCause::release);
  pending_[key] = {slice, reactor_.clock().since_boot(), kFirstPause, drained, nullptr};
  check(key);
}

void ReleaseWatch::check(const Key& key) {
  const Gpu* gpu = gpus_.find(key.second);
  if (gpu == nullptr) return released(key);  // removed from the machine: nothing is left to hold
  gpus_.host().check_now(gpu->index, [this, key](Result<GpuReading> reading) { judge(key, reading); });
}

void ReleaseWatch::judge(const Key& key, const Result<GpuReading>& reading) {
  const auto pending = pending_.find(key);
  if (pending == pending_.end()) return;
  if (!reading) return still_held(key, "the driver does not answer: " + reading.error().message());
  if (!reading->processes) return still_held(key, "the driver does not say which processes are on it");
  for (const GpuProcess& process : *reading->processes) {
    // A process that is alive belongs to somebody else: the task's cgroup is empty.
    if (open_pidfd(process.pid)) continue;
    return still_held(key,
                      "it still holds memory of process " + std::to_string(process.pid) + ", which is gone");
  }
  const bool holds_memory = reading->memory_used && *reading->memory_used > kIdleMemoryMax;
  if (pending->second.slice.kind == SliceKind::whole && reading->processes->empty() && holds_memory) {
    return still_held(
        key, "it still holds " + std::to_string(reading->memory_used->count()) + " MiB that no process owns");
  }
  released(key);
}

void ReleaseWatch::released(const Key& key) {
  const auto pending = pending_.find(key);
  const bool drained = pending->second.drained;
  pending_.erase(pending);
  engine_.record(SliceReleased{key.first, key.second});
  // Another task may have left something on the same GPU; the last one to let go puts it back.
  const bool others = std::any_of(pending_.begin(), pending_.end(), [&](const auto& other) {
    return other.first.second == key.second && other.second.drained;
  });
  if (drained && !others) drains_.remove(key.second, DrainCause::release);
}

void ReleaseWatch::still_held(const Key& key, const std::string& reason) {
  Pending& pending = pending_[key];
  const Duration now = reactor_.clock().since_boot();
  if (!pending.drained && now - pending.since >= kDrainAfter) {
    pending.drained = true;
    drains_.add(key.second, DrainCause::release,
                "job " + engine_.jobs().display(key.first.job) + " has ended, but " + reason);
  }
  const Duration pause = pending.drained ? kPauseOnceDrained : pending.pause;
  pending.pause = std::min(pending.pause * 2, kLongestPause);
  pending.again = reactor_.at(now + pause, [this, key] { check(key); });
}

}  // namespace tranche::machine
