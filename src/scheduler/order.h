// Which job is next: from the root down to the queue that is furthest below its share, and in it by
// priority, then arrival.
//
// At each level, first the queues that use less than their quota, then the smaller used / fair share
// (compared exactly), then the smaller decayed use, then the earlier head job: never the name.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/fairness.h"
#include "scheduler/state.h"

namespace tranche::scheduler {

struct Head {
  HeadKey key;
  GroupId group = 0;
};

// Siblings compared as above; `arrival` is the earlier head job's where all else is equal.
// `usage`: of every queue for its weight, as it stands now.
bool comes_before(const State& state, const std::vector<Share>& shares, const std::vector<MilliGpu>& planned,
                  const std::vector<Wide>& usage, const std::vector<JobId>& arrival, QueueIndex a,
                  QueueIndex b);
std::vector<Wide> usage_for_weight(const State& state);

// All ready jobs in the order in which they would start if each fitted at its turn.
std::vector<JobId> order_of_waiting(const State& state, const std::vector<Share>& shares,
                                    std::vector<MilliGpu> planned);

// One walk over all ready groups. Groups that were passed over do not come again; a group one of whose jobs
// was started stays in the walk with its next job.
class Order {
 public:
  // `planned`: charge that is promised to queues on top of what they use, by index. All must outlive this.
  Order(const State& state, const std::vector<Share>& shares, const std::vector<MilliGpu>& planned);

  // The next group to try, or nothing when all were passed over.
  std::optional<std::pair<QueueIndex, Head>> next();
  // Nothing has changed by it, so the walk stays in the queue until its groups are all passed over.
  void pass_over(QueueIndex queue, const Head& head) {
    cursors_[queue] = head.key;
    current_ = queue;
  }
  // Something was started or promised: the next queue is chosen anew.
  void choose_anew() { current_.reset(); }

 private:
  std::optional<Head> next_head(QueueIndex queue) const;

  const State& state_;
  const std::vector<Share>& shares_;
  const std::vector<MilliGpu>& planned_;
  std::vector<std::optional<HeadKey>> cursors_;
  std::optional<QueueIndex> current_;
  std::vector<Wide> usage_;
  std::vector<bool> open_;      // may have a head at or below it; found out late when not
  std::vector<JobId> arrival_;  // of the first head at or below the queue, when the walk began
};

}  // namespace tranche::scheduler
