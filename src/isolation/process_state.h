// What a process inherits that a task must not: signals, open files, limits and scores of the launcher.
#pragma once

#include <sys/resource.h>

#include <vector>

#include "isolation/failure.h"

namespace tranche::isolation {

// What the launcher was started with, taken before it changes anything about itself; tasks get it back.
struct InheritedState {
  std::vector<rlimit> limits;      // by resource number
  bool has_own_oom_score = false;  // oom_score_adj was not 0: tasks must reset it
};
InheritedState capture_inherited_state();

// Default dispositions and an empty mask. Once at the launcher's start; those it forks have no handlers to
// undo.
void reset_signals();
// An empty mask.
void unblock_signals();
// Limits as captured, OOM score 0. As root.
Outcome<void> restore_limits(const InheritedState& state);

}  // namespace tranche::isolation
