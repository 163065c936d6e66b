// How firmly a job is held to its part of a GPU here, in the words that users see.
#pragma once

#include <string>

#include "codec/api.h"

namespace tranche::machine {

struct FractionFence {
  api::Tier tier = api::Tier::unenforced;
  std::string sentence;  // begins with the tier
  std::string remedy;    // "" when nothing is wrong
};

// What holds fractions of tasks that start now: the guard, if its libraries fit this driver and the arbiter
// serves. Cheap: a few looks at the run directory.
FractionFence fraction_fence(const std::string& run_dir);

// A whole GPU is enforced by the device filter.
api::Tier tier_of(SliceKind kind, api::Tier fraction_tier);

}  // namespace tranche::machine
