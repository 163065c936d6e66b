#include "scheduler/property.h"

#include <algorithm>
#include <array>

namespace tranche::scheduler::test {

std::span<const Property> properties() {
  static constexpr std::array kProperties = {
      Property{"histories", "P1, P2, P3, P13, P16, P18, P19 and P20 of every history", audit_history, 100},
      Property{"P4", "a backlogged queue holds its part by weight, less one task", sharing_incentive, 100},
      Property{"P5", "who asks for twice what it needs runs no more tasks", inflation_gains_nothing, 100},
      Property{"P6", "nobody could run more with another's part", nobody_envies, 100},
      Property{"P7", "at rest nobody could run beside all others", nobody_can_grow, 100},
      Property{"P8", "a queue reaches its quota in time", queues_reach_quota, 50},
      Property{"P9", "every job starts within its bound", nobody_starves, 20},
      Property{"P10", "taking comes to an end", taking_ends, 40},
      Property{"P11", "capacity or a queue less never lowers a fair share", shares_are_monotonic, 100},
      Property{"P12", "an empty node more never takes a job's place", nodes_only_help, 100},
      Property{"P14", "weights count by their ratios alone", weights_scale, 30},
      Property{"P15", "the order of queues stays while nobody uses anything", order_does_not_decay, 50},
      Property{"P17", "names decide nothing", names_decide_nothing, 25},
      Property{"P21", "a cluster and its demand doubled are filled as much", twice_is_twice, 3},
  };
  return kProperties;
}

const Property* find_property(const std::string& name) {
  const auto all = properties();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Property& property) { return property.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace tranche::scheduler::test
