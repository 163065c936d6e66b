// How firmly a job is held to its part of a GPU here, in the words that users see.
#pragma once

#include <set>
#include <string>

#include "codec/api.h"
#include "codec/config.h"
#include "scheduler/scheduler.h"

namespace tranche::machine {

struct FractionFence {
  api::Tier whole = api::Tier::enforced;   // of whole GPUs
  api::Tier tier = api::Tier::unenforced;  // of parts of any GPU
  std::string sentence;                    // begins with the tier
  std::string remedy;                      // "" when nothing is wrong
  std::set<std::string> enforced;          // UUIDs of the GPUs whose parts the driver itself holds

  // Of parts on this GPU that begin now.
  api::Tier on(const std::string& uuid) const;
};

// Whether tasks that start now get the guard, and can take no memory without an arbiter then.
bool has_guard(const std::string& run_dir);

// What holds fractions of tasks that start now: the guard, if its libraries fit this driver and the arbiter
// serves, and on GPUs where the driver was seen to refuse what is beyond a cgroup's limit, the driver. What
// was tried out on another driver is no proof. `driver_version`: of the driver that answers now, "" if it is
// not known. Cheap: a few looks at the run directory.
FractionFence fraction_fence(const std::string& run_dir, const std::string& driver_version);
// The same, weaker where the daemon is a user's own: there the guard is put before the driver by variables of
// the environment, and no device is closed to anybody.
FractionFence fraction_fence(const DaemonConfig& config, const std::string& driver_version);

// A whole GPU is enforced by the device filter, where there is one.
api::Tier tier_of(SliceKind kind, const FractionFence& fence);
// What holds whole GPUs, in a sentence.
std::string whole_gpu_sentence(const FractionFence& fence);

// The configured policy with what depends on the fences: on which GPUs users may meet now.
Policy effective_policy(const DaemonConfig& config, const std::string& driver_version,
                        const scheduler::Scheduler& scheduler);

}  // namespace tranche::machine
