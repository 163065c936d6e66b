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
#include "scheduler/bit_set.h"
#include "scheduler/decay.h"
#include "scheduler/host_amount.h"
#include "scheduler/wide.h"

namespace tranche::scheduler {

struct StateArchive;

using QueueIndex = uint32_t;
using GroupId = uint32_t;  // position + 1; zero: none

inline constexpr QueueIndex kRootQueue = 0;

// Order within a queue: what its owner put first, then higher priority, then those that have less than they
// need, then the expected run time, then arrival (job ids rise with arrival).
struct HeadKey {
  int64_t descending_first = 0;     // of the event that put it first, negated; 0: nobody did
  int64_t descending_priority = 0;  // the priority, negated
  bool grows = false;               // runs already, and would take more
  int64_t expected = 0;             // run time, where the policy tries the shortest first; else 0
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

  HostBound host_quota;
  HostBound host_limit;
  HostAmount host_used;                  // as below, of processors and host memory
  HostAmount host_used_not_preemptible;  // of it
  HostAmount host_staying;

  MilliGpu used;                  // charged now, with all queues below
  MilliGpu used_not_preemptible;  // of it
  MilliGpu staying;               // of it, less what has been told to stop or has exited
  Wide usage = 0;                 // scaled sum up to `accrued`, see decay.h
  Wide accrued = 0;               // growth() at which `usage` was brought up to date
  Wide usage_seen = 0;            // past use as it counts in shares and order: see QueueTree::advance

  // Share of what there is, as of the last QueueTree::divide (fairness.h says what they mean).
  MilliGpu waiting;                 // charge of its own ready jobs
  MilliGpu demand_raw;              // used and waiting here and below, before its own limit
  MilliGpu demand;                  // used + waiting, at most the limit
  MilliGpu fair;                    // with past use
  MilliGpu entitled;                // without
  bool divide_again = false;        // among its children
  bool divide_again_below = false;  // somewhere below

  std::map<HeadKey, GroupId> heads;  // the first ready job of each of its groups
  // The same as if nothing were expected; kept only where the policy tries the shortest first.
  std::map<HeadKey, GroupId> heads_by_arrival;
  uint32_t jobs_waiting = 0;  // of this queue alone
  uint32_t jobs_running = 0;
  std::vector<JobId> running;  // jobs of this queue alone that hold something and go on; in no order
  // Of them, the preemptible ones: jobs of higher priority may take from them (bookkeeping.cc).
  std::map<int32_t, uint32_t> running_priorities;
  uint64_t staying_changes = 0;  // counts changes of what stays here or below
  uint64_t staying_added = 0;    // of them, those that did not make it less

  // Classes (waiting.h) of groups at or below the queue that are not parked.
  BitSet classes;
  std::vector<uint32_t> groups_of_class;
  // Arrival of the first head at or below; worked out when asked for.
  JobId arrival;
  bool arrival_is_known = false;
};

bool exceeds(const HostAmount& amount, const HostBound& bound);

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
  // The part of it that stays (see Queue), and ready jobs of the queue itself.
  void add_staying(QueueIndex index, MilliGpu amount);
  void add_waiting(QueueIndex index, MilliGpu amount);
  // The same for processors and host memory.
  void charge_host(QueueIndex index, const HostAmount& amount, bool preemptible);
  void add_host_staying(QueueIndex index, const HostAmount& amount);
  // What all present nodes have of them.
  void add_host(const HostAmount& amount) { host_ += amount; }
  const HostAmount& host() const { return host_; }
  // Charge and waiting at once, so that a start that only turns one into the other moves no demand.
  void start(QueueIndex index, MilliGpu charged, MilliGpu waited, bool preemptible, Time now);

  // Brings demand, fair and entitled up to date. Only levels of the tree whose division may have changed are
  // divided again: a queue that gets less than it wants before and after may want more or less at no cost.
  void divide(MilliGpu capacity);

  // A group of the class became visible or was parked at the queue.
  void show_class(QueueIndex index, uint32_t job_class);
  void hide_class(QueueIndex index, uint32_t job_class);
  void heads_changed(QueueIndex index);
  void priorities_changed(QueueIndex index);

  // Who may have to give, so that most walks look for no victims at all: queues with ready jobs of higher
  // priority than some that run, and queues among whose children somebody is over its share by enough, or
  // under its quota with jobs that wait.
  const BitSet& inverted() const { return inverted_; }
  const BitSet& uneven();
  JobId arrival(QueueIndex index);
  // Decayed use as a scaled sum: comparable between queues at one time.
  Wide usage(QueueIndex index, Time now) const;
  // The same as it counts now, in milli-GPU hours.
  int64_t usage_milli_gpu_hours(QueueIndex index, Time now) const;
  // To be called with every event's time: keeps the scaled sums small, and looks at past use. Shares and
  // order follow past use as it was at the last look, 512 times in a half-life, not at every event: between
  // two looks nothing that a queue is entitled to changes by the passing of time.
  void advance(Time now);
  int64_t looks() const { return looks_; }
  // A queue is taken from for its siblings' fair share only when it is over its own by this (reclaim.h).
  MilliGpu surplus_needed() const { return surplus_needed_; }
  MilliGpu share_unit() const { return share_unit_; }

  // The queue and those above it, itself first, the root last.
  const std::vector<QueueIndex>& path_to_root(QueueIndex index) const { return queues_[index].path_to_root; }
  bool is_known(std::string_view path) const;  // configured, so jobs may be submitted below it
  const UsageClock& clock() const { return clock_; }

 private:
  friend struct StateArchive;  // snapshot.cc
  void apply_defaults(QueueIndex index);
  void derive_guaranteed(QueueIndex index);
  void bring_up_to_date(Queue& queue, Wide growth) const;
  void look_at_usage(Time now);
  void keep_sums_small(Time now);
  void add_used(QueueIndex index, MilliGpu amount, bool preemptible, Time now);
  void demand_changed(QueueIndex index, MilliGpu by);
  void rebuild_demand();
  void divide_again(QueueIndex index);
  void divide_below(QueueIndex index);

  std::vector<Queue> queues_;
  std::map<std::string, QueueIndex, std::less<>> by_path_;
  UsageClock clock_;
  BitSet inverted_;
  BitSet uneven_;
  BitSet look_for_uneven_;
  MilliGpu surplus_needed_ = kWholeGpu;
  MilliGpu share_unit_;
  HostAmount host_;
  int64_t looks_ = 0;  // periods of the clock up to the last look at past use
};

}  // namespace tranche::scheduler
