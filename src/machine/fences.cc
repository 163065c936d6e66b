#include "machine/fences.h"

#include <unistd.h>

namespace tranche::machine {

FractionFence fraction_fence(const std::string& run_dir) {
  if (::access((run_dir + "/guard/libcuda.so.1").c_str(), R_OK) != 0) {
    return {api::Tier::unenforced, "unenforced: the guard's libraries are missing, or do not fit this driver",
            "see the launcher's log; restart the launcher after a change of the driver"};
  }
  if (::access((run_dir + "/arbiter.sock").c_str(), F_OK) != 0) {
    return {api::Tier::guarded,
            "guarded, but the arbiter is not running: jobs keep what they have and get nothing more",
            "start it: `tranche-up start`"};
  }
  return {api::Tier::guarded,
          "guarded: the guard in front of the driver's libraries holds a job's memory to its part; a program "
          "that "
          "goes around it is not held",
          ""};
}

api::Tier tier_of(SliceKind kind, api::Tier fraction_tier) {
  return kind == SliceKind::fraction ? fraction_tier : api::Tier::enforced;
}

}  // namespace tranche::machine
