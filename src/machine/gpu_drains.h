// GPUs that Tranche itself drains, for one cause or several, and gives back when the last cause has gone.
// What an operator has drained stays drained, whatever happens here.
//
// Whose a drain is must be known after a restart too: each cause's reasons begin with words of its own, and
// the log keeps the reason.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "machine/engine.h"

namespace tranche::machine {

enum class DrainCause {
  release,  // a GPU that does not let go of a task
  mig,      // MIG mode is on
  over,     // a job holds more of it than its part
  ghost,    // its memory is in use, and by nobody
};
inline constexpr std::string_view kReleasePrefix = "not released: ";
inline constexpr std::string_view kMigPrefix = "MIG mode is on: ";
inline constexpr std::string_view kOverPrefix = "held beyond a part: ";
inline constexpr std::string_view kGhostPrefix = "held by nobody: ";
// Of StrangerWatch, which keeps its own account.
inline constexpr std::string_view kStrangerPrefix = "used outside of jobs: ";
std::string_view prefix_of(DrainCause cause);

class GpuDrains {
 public:
  // `engine` outlives this.
  explicit GpuDrains(Engine& engine) : engine_(engine) {}

  // `sentence` goes behind the cause's prefix.
  void add(GpuId gpu, DrainCause cause, const std::string& sentence);
  void remove(GpuId gpu, DrainCause cause);
  // A drain for another cause ends: gives the GPU back, or keeps it drained for a cause that stands, in one
  // step, so that nothing starts in between.
  void give_back(GpuId gpu);
  // Whether a drain with that reason is an operator's.
  static bool is_operators(const std::string& reason);
  // The reason behind the cause's prefix.
  static std::string reason_for(DrainCause cause, const std::string& sentence);
  // Whether the log has the GPU drained for that cause, by this run or an earlier one.
  bool is_drained_for(GpuId gpu, DrainCause cause) const;

 private:
  Engine& engine_;
  std::map<GpuId, std::map<DrainCause, std::string>> reasons_;
};

}  // namespace tranche::machine
