// What each queue has to give to others (reclaim.h): the least that one of its running jobs costs, and since
// when the first of them runs. An entry is exact for one count of Queue::staying_changes; during the walk in
// which it was worked out it may promise more than there is, never less. Known from the state, never part of
// it: a copy starts empty.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "scheduler/queue_tree.h"

namespace tranche::scheduler {

struct State;

struct Giver {
  uint64_t walk = 0;  // in which it was worked out
  static constexpr uint64_t kInexact = UINT64_MAX;
  uint64_t changes = kInexact;   // that it is of
  uint64_t added = 0;            // the same, of those that made what stays more
  int64_t cheapest = INT64_MAX;  // milli-GPU; 0 for an elastic job, which gives task by task
  Time first_start;              // of the preemptible jobs here and below; unset: there are none
};

class GiverMemory {
 public:
  GiverMemory() = default;
  GiverMemory(const GiverMemory&) {}
  GiverMemory& operator=(const GiverMemory&) {
    givers_.clear();
    return *this;
  }
  GiverMemory(GiverMemory&&) = default;
  GiverMemory& operator=(GiverMemory&&) = default;
  ~GiverMemory() = default;

  // Another walk begins.
  void begin_walk() { ++walk_; }
  // Of the queue and all below it. Good until the next call.
  const Giver& of(const State& state, QueueIndex queue);

 private:
  std::vector<Giver> givers_;  // by queue
  uint64_t walk_ = 1;
};

}  // namespace tranche::scheduler
