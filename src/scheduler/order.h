// Which job is next: from the root down to the queue that is furthest below its share, and in it by
// priority, then arrival.
//
// At each level, first the queues that use less than their quota, then those below their fair share, then the
// higher priority of the queue, then the smaller used / fair share (compared exactly), then the smaller part
// of processors and host memory for its weight, then the smaller decayed use, then the earlier head job:
// never the name.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/state.h"

namespace tranche::scheduler {

// Charge that is promised to queues on top of what they use; nothing for all of them at first.
class Planned {
 public:
  MilliGpu at(QueueIndex queue) const { return queue < charge_.size() ? charge_[queue] : MilliGpu(); }
  HostAmount host_at(QueueIndex queue) const { return queue < host_.size() ? host_[queue] : HostAmount(); }
  void add(const State& state, QueueIndex queue, MilliGpu charge, const HostAmount& host = {}) {
    charge_.resize(state.queues.size());
    host_.resize(state.queues.size());
    for (const QueueIndex above : state.queues.path_to_root(queue)) {
      charge_[above] += charge;
      host_[above] += host;
    }
  }
  bool empty() const { return charge_.empty(); }

 private:
  std::vector<MilliGpu> charge_;
  std::vector<HostAmount> host_;
};

// Siblings compared as above. Not const: the arrival of a queue's first job is worked out when asked for.
bool comes_before(QueueTree& queues, const Planned& planned, QueueIndex a, QueueIndex b);

// All ready jobs in the order in which they would start if each fitted at its turn.
std::vector<JobId> order_of_waiting(const State& state, Planned planned);

struct Turn {
  QueueIndex queue = kRootQueue;
  GroupId group = 0;
  bool by_arrival = false;  // out of the order of its queue: it came first, and the shortest are tried first
};

// The walk over ready groups that may start (their class is open, they are not parked), and over all groups
// of queues that may take from others. Each call looks at what is open at that moment.
class Order {
 public:
  // All must outlive this.
  Order(State& state, const Planned& planned);

  // All groups of the queue are to be visited, once each.
  void visit_all(QueueIndex queue);
  // The group has been visited as one of those.
  void visited(QueueIndex queue, const HeadKey& head);
  bool is_visited(QueueIndex queue, const HeadKey& head) const;

  std::optional<Turn> next();

 private:
  bool is_open(QueueIndex queue);
  bool has_startable(QueueIndex queue);
  std::optional<Turn> own_group(QueueIndex queue);

  State& state_;
  const Planned& planned_;
  // Of queues whose groups are all to be visited: how far this has come. `at_or_below` counts such queues.
  std::map<QueueIndex, std::optional<HeadKey>> visiting_;
  std::map<QueueIndex, uint32_t> at_or_below_;
  std::map<QueueIndex, JobId> first_visited_;  // the last one that had its turn because it came first
  // Groups that are open by themselves, at or below a queue; as of a version of them.
  std::map<QueueIndex, uint32_t> singles_;
  uint64_t singles_version_ = UINT64_MAX;
  std::set<QueueIndex> past_first_;  // the one that came first waits, so the shortest of the others are next
};

}  // namespace tranche::scheduler
