// What a property test is here: it plays the history of a seed and says what is wrong with it, in words, and
// counts what it has looked at and what its premises have exempted. Tests, mutants (mutant_test.cc) and the
// long run (histories_main.cc) play the same ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"

namespace tranche::scheduler::test {

struct Finding {
  std::string property;  // P1 ... P21, or "contract": what a caller may rely on beside them
  std::string what;
};

// By what was counted, in words.
class Counts {
 public:
  void add(const std::string& what, uint64_t count = 1) { counts_[what] += count; }
  void add(const Counts& other) {
    for (const auto& [what, count] : other.counts_) counts_[what] += count;
  }
  uint64_t of(const std::string& what) const {
    const auto found = counts_.find(what);
    return found == counts_.end() ? 0 : found->second;
  }
  const std::map<std::string, uint64_t>& all() const { return counts_; }

 private:
  std::map<std::string, uint64_t> counts_;
};

// One history. `dropped`: inputs that do not happen, to find a smaller one (History::drop).
struct Played {
  uint64_t seed = 1;
  std::set<uint64_t> dropped = {};
  uint64_t inputs = 0;  // result: how many there were
};

struct Property {
  const char* name;       // "P4"; "histories" is those that hold of every history
  const char* statement;  // with its premises
  std::optional<Finding> (*play)(Played& played, Counts& counts);
  uint64_t histories;  // that CI plays; the long run a hundred times as many
};

// All of them; `histories` is the first.
std::span<const Property> properties();
const Property* find_property(const std::string& name);

// history_audit.cc
std::optional<Finding> audit_history(Played& played, Counts& counts);
// fairness_properties.cc
std::optional<Finding> sharing_incentive(Played& played, Counts& counts);
std::optional<Finding> inflation_gains_nothing(Played& played, Counts& counts);
std::optional<Finding> nobody_envies(Played& played, Counts& counts);
std::optional<Finding> shares_are_monotonic(Played& played, Counts& counts);
std::optional<Finding> weights_scale(Played& played, Counts& counts);
std::optional<Finding> order_does_not_decay(Played& played, Counts& counts);
// placement_properties.cc
std::optional<Finding> nobody_can_grow(Played& played, Counts& counts);
std::optional<Finding> nodes_only_help(Played& played, Counts& counts);
std::optional<Finding> twice_is_twice(Played& played, Counts& counts);
std::optional<Finding> nobody_starves(Played& played, Counts& counts);
// history_properties.cc
std::optional<Finding> queues_reach_quota(Played& played, Counts& counts);
std::optional<Finding> taking_ends(Played& played, Counts& counts);
std::optional<Finding> names_decide_nothing(Played& played, Counts& counts);

}  // namespace tranche::scheduler::test
