// What an XID, an error that NVIDIA's driver reports, means for the GPU and for who uses it.
//
// Classes and codes follow NVIDIA's catalogue of XID errors, by the action that it asks for. A code that is
// not in the table is noted and changes nothing: newer drivers have more of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/enums.h"
#include "model/gpu.h"

namespace tranche {

enum class XidClass {
  note,     // informational
  job,      // an error of the program, or one that was confined to it
  watch,    // the GPU goes on, and is chosen last
  reset,    // the GPU must be reset before anything runs on it again
  reboot,   // the machine must be rebooted
  inspect,  // somebody must look at the machine: power, cabling, the board
};

struct XidRule {
  XidClass class_of = XidClass::note;
  std::string_view meaning;  // part of a sentence
};
XidRule xid_rule(uint64_t code);

// What the GPU's health becomes: ok for a note and a job's error.
Health xid_health(uint64_t code);

// "XID 95: an uncontained memory error; reset the GPU". Reasons of ill health that come from an XID begin so,
// and the code can be read back: that is how a log remembers it.
std::string xid_reason(uint64_t code);
std::optional<uint64_t> xid_of_reason(std::string_view reason);

}  // namespace tranche
