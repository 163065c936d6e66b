// The words of `tranche-emulator fault`, understood.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "emulator/fault_state.h"

namespace tranche::emulator {

struct FaultOrder {
  std::string kind;                       // one of the known ones, or "list" or "clear"
  std::string value;                      // the word behind it, or ""
  std::vector<uint32_t> gpus;             // as given
  int32_t pid = 0;                        // 0: none was named
  uint64_t for_ns = kForEver;             // of nvml-block
  uint32_t gpu_instance = kNoInstanceId;  // of xid
  bool software = false, brake = false, json = false;
};

// Errors: invalid_argument, with what to write instead.
Result<FaultOrder> parse_fault(const std::vector<std::string>& words);
// A number of at most `most`; `what` names it in the error.
Result<uint64_t> parse_fault_number(const std::string& text, uint64_t most, const std::string& what);
// "50M" as bytes: K, M, G, T are binary; bare is bytes.
Result<uint64_t> parse_fault_bytes(const std::string& text);

}  // namespace tranche::emulator
