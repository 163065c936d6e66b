#include "machine/fences.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "linux/files.h"

namespace tranche::machine {
namespace {

constexpr size_t kMaxProof = 64 * 1024;

// A line for each GPU: its UUID and `held`, or what did not hold.
std::string faults_of(std::string_view proof) {
  std::string faults;
  while (!proof.empty()) {
    const std::string_view line = proof.substr(0, proof.find('\n'));
    proof.remove_prefix(std::min(proof.size(), line.size() + 1));
    if (line.empty() || (line.starts_with("GPU-") && line.ends_with(" held"))) continue;
    faults += (faults.empty() ? "" : "; ") + std::string(line.substr(0, 200));
  }
  return faults;
}

}  // namespace

FractionFence fraction_fence(const std::string& run_dir) {
  if (::access((run_dir + "/guard/libcuda.so.1").c_str(), R_OK) != 0) {
    return {api::Tier::unenforced, "unenforced: the guard's libraries are missing, or do not fit this driver",
            "'tranche-up stop' and 'tranche-up start' fit the guard to the driver again and say what they "
            "lack (--guard-dir)"};
  }
  if (::access((run_dir + "/arbiter.sock").c_str(), F_OK) != 0) {
    return {api::Tier::guarded,
            "guarded, but the arbiter is not running: jobs keep what they have and get nothing more",
            "start it: `tranche-up start`"};
  }
  const auto proof = read_file(run_dir + "/guard/fences", kMaxProof);
  if (!proof || proof->empty()) {
    return {api::Tier::unenforced, "unenforced: the guard is there, but was not tried out on these GPUs",
            "restart the launcher: `tranche-up start` tries each GPU"};
  }
  if (const std::string faults = faults_of(*proof); !faults.empty()) {
    return {
        api::Tier::unenforced, "unenforced: the guard did not hold when it was tried out (" + faults + ")",
        "restart the launcher when the GPUs are free, and see that the driver is one that the guard knows"};
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
