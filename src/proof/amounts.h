// What queues use and what bounds them, in GPUs, processors or host memory, counted from facts: the checker's
// own arithmetic of limits and quotas.
//
// Units: milli-GPU, milli-CPU or MiB, as the resource. Ownership: all that is passed in outlives this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/answer.h"
#include "model/state_dump.h"

namespace tranche::proof {

// Whether the path is the queue's, or that of one below it.
bool is_below(const std::string& path, const std::string& queue);

class Amounts {
 public:
  Amounts(const StateDump& dump, const JobSpec& spec, BoundResource resource)
      : dump_(dump), spec_(spec), resource_(resource) {}

  // The queue's quota or limit; nothing: it has none.
  std::optional<int64_t> bound(const QueueFact& queue, bool is_quota) const;
  // Taken by the queue and those below it, with what is promised to claims; for a quota, by those that cannot
  // be preempted.
  int64_t used(const std::string& queue, bool is_quota) const;
  // The least and the most that the job can be charged for what it starts with, by where it goes.
  std::pair<int64_t, int64_t> charge() const;

 private:
  int64_t amount_of(MilliCpu cpu, MiB memory, const std::vector<Slice>& slices) const;
  std::pair<int64_t, int64_t> charge_of_task(const TaskRequest& task) const;

  const StateDump& dump_;
  const JobSpec& spec_;
  BoundResource resource_;
};

}  // namespace tranche::proof
