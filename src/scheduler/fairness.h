// What every queue is entitled to now: first its quota as far as it can use it, then the surplus by
// priority band and weight, from the root down (weighted, demand-capped water-filling).
//
// Two shares are worked out. `fair` also looks at past use: among siblings, one that has used more than its
// part gets less of the surplus; the order of queues follows it. `entitled` does not, and it alone decides
// who may take from whom: it changes only with demand, policy and capacity, so a taken GPU cannot come back
// by the mere passing of time (property P10).
//
// QueueTree::divide keeps both up to date by level of the tree; this is the division of one level.
#pragma once

#include <vector>

#include "scheduler/queue_tree.h"

namespace tranche::scheduler {

// One division: `amount` among claimants by weight, nobody more than it needs. Rounded down; the sum never
// exceeds `amount`. Exposed for its own tests. A weight of zero gets nothing.
struct Claimant {
  int64_t need = 0;
  int64_t weight = 1;
  int64_t share = 0;      // result
  int64_t remainder = 0;  // of fill_by_units(): what was cut off
};
void water_fill(std::vector<Claimant>& claimants, int64_t amount);

// The same in whole units, except for what satisfies a claimant: in rounds, each claimant gets its part by
// weight rounded down, until nobody is satisfied by that any more. What is left over is for fill_the_rest(),
// which hands it out in pieces of at most one unit, largest remainder first, then in order.
void fill_by_units(std::vector<Claimant>& claimants, int64_t amount, int64_t unit);
int64_t fill_the_rest(std::vector<Claimant>& claimants, int64_t amount, int64_t unit);

}  // namespace tranche::scheduler
