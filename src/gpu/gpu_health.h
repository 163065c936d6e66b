// When a GPU's health changes: a pure judge of one GPU's readings and silences, and of what is held against
// it.
//
// Bad news that the driver states counts at once; what might be a moment's weakness must repeat; good news
// must repeat always, so that a loose board does not flap between jobs. What is held against a GPU (an XID
// that asks for a reset, a driver that lets nobody in) stands until it is taken back: good readings alone do
// not disprove it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gpu/nvml_types.h"
#include "model/enums.h"
#include "model/gpu.h"

namespace tranche {

class GpuHealthJudge {
 public:
  struct Verdict {
    Health health = Health::ok;
    std::string reason;          // a sentence; empty when ok
    bool needs_reset = false;    // the GPU answers and must be reset before it is used
    bool of_the_driver = false;  // the GPU itself may be well
  };

  // What a reading says of the GPU itself.
  struct Evidence {
    nvml::Code code = nvml::Code::success;  // of memory and processes
    std::string call;                       // that gave the code
    uint64_t clocks_event_reasons = 0;
    bool rows_pending = false, rows_failure = false;
    std::optional<uint32_t>
        recovery_action;  // what the driver recommends; 0: nothing. Unset: it does not say
  };

  // What can be held against it, each by itself.
  enum class Hold { xid, driver, nodes };
  static constexpr size_t kHolds = 3;

  // Each returns the change of verdict that it makes, if any.
  std::optional<Verdict> reading(const Evidence& evidence);
  // The GPU has not answered while others have; `reason` says in what it is stuck.
  std::optional<Verdict> silent(std::string reason);
  // The driver does not list the GPU any more.
  std::optional<Verdict> missing();
  // The driver has reported that it is off the bus: good readings, when it is back, disprove it.
  std::optional<Verdict> fallen(std::string reason);
  std::optional<Verdict> hold(Hold cause, Health health, std::string reason);
  std::optional<Verdict> release(Hold cause);

  const Verdict& verdict() const { return verdict_; }

 private:
  void judge_reading(const Evidence& evidence);
  void judge(Health health, std::string reason, bool needs_reset = false);
  std::optional<Verdict> publish();

  Verdict judged_;                                      // by readings and silences
  std::array<std::optional<Verdict>, kHolds> holds_{};  // by Hold
  Verdict verdict_;                                     // the worst of them
  uint32_t good_ = 0, unanswered_ = 0, slowed_ = 0;     // consecutive readings
  uint32_t recommended_nothing_ = 0;                    // likewise
};

}  // namespace tranche
