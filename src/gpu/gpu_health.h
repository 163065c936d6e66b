// When a GPU's health changes: a pure judge of one GPU's readings and silences.
//
// Bad news that the driver states counts at once; what might be a moment's weakness must repeat; good news
// must repeat always, so that a loose board does not flap between jobs.
#pragma once

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
    std::string reason;  // a sentence; empty when ok
  };

  // What a reading says of the GPU itself.
  struct Evidence {
    nvml::Code code = nvml::Code::success;  // of memory and processes
    std::string call;                       // that gave the code
    uint64_t clocks_event_reasons = 0;
    bool rows_pending = false, rows_failure = false;
  };

  // The change of verdict that the reading makes, if any.
  std::optional<Verdict> reading(const Evidence& evidence);
  // The GPU has not answered while others have; `reason` says in what it is stuck.
  std::optional<Verdict> silent(std::string reason);
  // The driver does not list the GPU any more.
  std::optional<Verdict> missing();

  const Verdict& verdict() const { return verdict_; }

 private:
  std::optional<Verdict> change(Health health, std::string reason);

  Verdict verdict_;
  uint32_t good_ = 0, unanswered_ = 0, slowed_ = 0;  // consecutive readings
};

}  // namespace tranche
