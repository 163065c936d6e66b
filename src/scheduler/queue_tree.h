// The queues as a tree: departments, projects, users; with what each uses now and has used.
//
// Queues are never removed, so that an index stays valid; one that the policy no longer names keeps its
// place with default settings until nobody uses it. Names decide nothing (property P17): children are kept
// sorted by path for display only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "model/policy.h"
#include "scheduler/decay.h"
#include "scheduler/wide.h"

namespace tranche::scheduler {

using QueueIndex = uint32_t;
using GroupId = uint64_t;

inline constexpr QueueIndex kRootQueue = 0;

// Order within a queue: what its owner put first, then higher priority, then arrival (job ids rise with
// arrival).
struct HeadKey {
  int64_t descending_first = 0;     // of the event that put it first, negated; 0: nobody did
  int64_t descending_priority = 0;  // the priority, negated
  JobId job;
  auto operator<=>(const HeadKey&) const = default;
};

struct Queue {
  std::string path;  // "" is the root
  QueueIndex parent = kRootQueue;
  std::vector<QueueIndex> children;      // by path
  std::vector<QueueIndex> path_to_root;  // itself first, the root last
  bool configured = false;               // named by the policy, itself or as the parent of one
  std::optional<MilliGpu> quota;
  // Quota as it counts in the sharing with siblings: a queue without one of its own is guaranteed what is
  // guaranteed to those below it, or their quotas would hang in the air.
  std::optional<MilliGpu> guaranteed;
  std::optional<MilliGpu> limit;
  std::optional<MilliGpu> user_limit;  // of children that the policy does not name
  int64_t weight = 1;
  int32_t priority = 0;

  MilliGpu used;                  // charged now, with all queues below
  MilliGpu used_not_preemptible;  // of it
  Wide usage = 0;                 // scaled sum up to `accrued`, see decay.h
  Wide accrued = 0;               // growth() at which `usage` was brought up to date

  std::map<HeadKey, GroupId> heads;  // the first ready job of each of its groups
  uint32_t jobs_waiting = 0;         // of this queue alone
  uint32_t jobs_running = 0;
};

class QueueTree {
 public:
  QueueTree();

  const Queue& at(QueueIndex index) const { return queues_[index]; }
  Queue& at(QueueIndex index) { return queues_[index]; }
  QueueIndex size() const { return static_cast<QueueIndex>(queues_.size()); }

  std::optional<QueueIndex> find(std::string_view path) const;
  // Makes the queue and its parents where they are missing.
  QueueIndex ensure(std::string_view path);
  void configure(const Policy& policy, Time now);

  // Charges `amount` (may be negative) to the queue and all above it, from `now` on.
  void charge(QueueIndex index, MilliGpu amount, bool preemptible, Time now);
  // Decayed use as a scaled sum: comparable between queues at one time.
  Wide usage(QueueIndex index, Time now) const;
  // The same as it counts now, in milli-GPU hours.
  int64_t usage_milli_gpu_hours(QueueIndex index, Time now) const;
  // To be called with every event's time: keeps the scaled sums small.
  void advance(Time now);

  // The queue and those above it, itself first, the root last.
  const std::vector<QueueIndex>& path_to_root(QueueIndex index) const { return queues_[index].path_to_root; }
  bool is_known(std::string_view path) const;  // configured, so jobs may be submitted below it
  const UsageClock& clock() const { return clock_; }

 private:
  void apply_defaults(QueueIndex index);
  void derive_guaranteed(QueueIndex index);
  void bring_up_to_date(Queue& queue, Wide growth) const;

  std::vector<Queue> queues_;
  std::map<std::string, QueueIndex, std::less<>> by_path_;
  UsageClock clock_;
};

}  // namespace tranche::scheduler
