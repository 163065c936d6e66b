// Whom a claim may take (reclaim.h), and those that it has taken so far. They point to jobs of the state and
// are good as long as it does not change.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "scheduler/flat_index.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

// A whole job; or of an elastic one a task that it can live without, and after all of those the rest of it.
struct Victim {
  const Job* job = nullptr;
  std::vector<TaskKey> tasks;
  bool is_surplus = false;
  uint32_t nth = 0;  // of the job's, in the order in which they may be taken
  MilliGpu charge;
  HostAmount host;
  QueueIndex own_side = kRootQueue;  // `a` of the header
  QueueIndex side = kRootQueue;      // `b` of it
  bool by_quota = false;             // a reclaim of quota took it
  // For a claim without GPUs, those without GPUs first; furthest over its share first, then low priority,
  // then the shortest time lost.
  std::tuple<bool, int64_t, int32_t, int64_t, JobId> rank;
};

// Victims that are taken, in that order. Of an elastic job, which is several, the first ones come first.
class Chosen {
 public:
  bool empty() const { return victims_.empty(); }
  size_t size() const { return victims_.size(); }
  const Victim& at(size_t index) const { return victims_[index]; }
  const std::vector<Victim>& all() const { return victims_; }
  void add(const Victim& victim) {
    victims_.push_back(victim);
    ++count_of(victim);
  }
  void erase(size_t index) {
    --count_of(victims_[index]);
    victims_.erase(victims_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  bool contains(const Victim& victim) const { return count(victim) > victim.nth; }
  // Whatever comes before it of the same job has been taken, and nothing that comes after it.
  bool is_next(const Victim& victim) const { return count(victim) == victim.nth; }
  bool is_last(const Victim& victim) const { return count(victim) == victim.nth + 1; }

 private:
  uint32_t count(const Victim& victim) const {
    const auto found = index_.find(victim.job->id);
    return found ? counts_[*found] : 0;
  }
  uint32_t& count_of(const Victim& victim) {
    const auto found = index_.find(victim.job->id);
    if (found) return counts_[*found];
    index_.insert(victim.job->id, static_cast<uint32_t>(counts_.size()));
    return counts_.emplace_back(0);
  }

  std::vector<Victim> victims_;
  FlatIndex<JobId, IdHash<JobId>> index_;
  std::vector<uint32_t> counts_;  // of those of one job
};

}  // namespace tranche::scheduler
