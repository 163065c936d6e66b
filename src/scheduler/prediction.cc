#include "scheduler/prediction.h"

#include <algorithm>

namespace tranche::scheduler {

void Prediction::learn(uint32_t uid, Duration run) {
  const auto [entry, is_first] = runs_.try_emplace(uid);
  Runs& runs = entry->second;
  runs.before = runs.last;
  runs.last = run;
  runs.has_two = !is_first;
}

Duration Prediction::expected(uint32_t uid, Duration time_limit) const {
  const auto found = runs_.find(uid);
  if (found == runs_.end() || !found->second.has_two) return std::max(time_limit, kNanosecond);
  const Runs& runs = found->second;
  const Duration mean(runs.last.count() / 2 + runs.before.count() / 2);
  return std::clamp(mean, kNanosecond, std::max(time_limit, kNanosecond));
}

void Prediction::add_to(StateHash& hash) const {
  for (const auto& [uid, runs] : runs_) {
    hash.add(uint64_t{uid});
    hash.add(runs.last.count());
    hash.add(runs.before.count());
    hash.add(uint64_t{runs.has_two});
  }
}

}  // namespace tranche::scheduler
