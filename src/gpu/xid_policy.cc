#include "gpu/xid_policy.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tranche {
namespace {

struct Entry {
  uint64_t first, last;
  XidRule rule;
};

// Ascending, without overlap.
constexpr std::array kEntries{
    Entry{8, 8, {XidClass::job, "the program's work was stopped by a watchdog"}},
    Entry{11, 11, {XidClass::job, "the program's command stream was corrupt"}},
    Entry{13, 13, {XidClass::job, "the program made the GPU's engine fault"}},
    Entry{25, 25, {XidClass::job, "the program's command stream was corrupt"}},
    Entry{31, 31, {XidClass::job, "the program used memory that is not its own"}},
    Entry{32, 32, {XidClass::job, "the program's command stream was corrupt"}},
    Entry{37, 37, {XidClass::note, "the driver's firmware reports an error"}},
    Entry{38, 38, {XidClass::note, "the driver's firmware reports an error"}},
    Entry{39, 41, {XidClass::job, "an engine of the GPU faulted under the program"}},
    Entry{43, 43, {XidClass::job, "the program was ended after a fault"}},
    Entry{44, 44, {XidClass::note, "an engine faulted in a context switch"}},
    Entry{45, 45, {XidClass::job, "the program's work was removed from the GPU"}},
    Entry{46, 46, {XidClass::reset, "the GPU has stopped processing"}},
    Entry{48, 48, {XidClass::reset, "a memory error of two bits"}},
    Entry{54, 54, {XidClass::inspect, "the board's auxiliary power is not connected"}},
    Entry{60, 60, {XidClass::job, "a video engine faulted under the program"}},
    Entry{62, 62, {XidClass::reset, "the GPU's micro-controller has halted"}},
    Entry{63, 63, {XidClass::watch, "a row of memory is to be remapped at the next reset"}},
    Entry{64, 64, {XidClass::reset, "a row of memory could not be remapped"}},
    Entry{66, 67, {XidClass::note, "the driver's firmware reports an error"}},
    Entry{68, 72, {XidClass::job, "an engine of the GPU faulted under the program"}},
    Entry{74, 74, {XidClass::reset, "an NVLink has failed"}},
    Entry{75, 77, {XidClass::job, "an engine of the GPU faulted under the program"}},
    Entry{78, 78, {XidClass::inspect, "the virtual GPU's driver does not fit the host's; update it"}},
    Entry{79, 79, {XidClass::reboot, "the GPU has fallen off the bus"}},
    Entry{80, 80, {XidClass::job, "the program's data was corrupt"}},
    Entry{82, 86, {XidClass::job, "an engine of the GPU faulted under the program"}},
    Entry{88, 89, {XidClass::job, "an engine of the GPU faulted under the program"}},
    Entry{92, 92, {XidClass::watch, "many corrected memory errors"}},
    Entry{94, 94, {XidClass::job, "a memory error that was confined to the program"}},
    Entry{95, 95, {XidClass::reset, "a memory error that was not confined"}},
    Entry{96, 105, {XidClass::job, "an engine of the GPU faulted under the program"}},
    Entry{109, 110, {XidClass::reset, "the GPU did not switch contexts in time"}},
    Entry{119, 120, {XidClass::reset, "the GPU's system processor does not answer"}},
    Entry{126, 135, {XidClass::job, "an engine of the GPU faulted under the program"}},
    Entry{136, 136, {XidClass::reset, "the GPU's links could not be trained"}},
    Entry{139, 139, {XidClass::job, "an engine of the GPU faulted under the program"}},
    Entry{140, 140, {XidClass::reset, "an unrecovered memory error"}},
    Entry{143, 143, {XidClass::reset, "the GPU could not be initialised"}},
    Entry{144, 150, {XidClass::reset, "an NVLink has failed"}},
    Entry{151, 151, {XidClass::reboot, "the GPU's key could not be rotated"}},
    Entry{155, 156, {XidClass::reset, "the GPU's firmware asks for a reset"}},
    Entry{158, 158, {XidClass::reset, "the GPU's timing has failed"}},
    Entry{159, 159, {XidClass::watch, "the driver's unified memory reports an error"}},
    Entry{167, 167, {XidClass::inspect, "a fatal timeout on PCIe"}},
};

std::string_view what_to_do(XidClass class_of) {
  switch (class_of) {
    case XidClass::note:
    case XidClass::job:
      return "";
    case XidClass::watch:
      return "; the GPU is chosen last";
    case XidClass::reset:
      return "; reset the GPU, then `tranche gpus undrain` it";
    case XidClass::reboot:
      return "; reboot the machine";
    case XidClass::inspect:
      return "; have the machine inspected, then `tranche gpus undrain` the GPU";
  }
  return "";
}

constexpr std::string_view kPrefix = "XID ";

}  // namespace

XidRule xid_rule(uint64_t code) {
  const auto entry = std::find_if(kEntries.begin(), kEntries.end(),
                                  [&](const Entry& e) { return code >= e.first && code <= e.last; });
  return entry == kEntries.end() ? XidRule{XidClass::note, "the driver reports an error"} : entry->rule;
}

Health xid_health(uint64_t code) {
  constexpr uint64_t kOffTheBus = 79;
  if (code == kOffTheBus) return Health::lost;
  switch (xid_rule(code).class_of) {
    case XidClass::note:
    case XidClass::job:
      return Health::ok;
    case XidClass::watch:
      return Health::degraded;
    case XidClass::reset:
    case XidClass::reboot:
    case XidClass::inspect:
      return Health::failed;
  }
  return Health::ok;
}

std::string xid_reason(uint64_t code) {
  const XidRule rule = xid_rule(code);
  return std::string(kPrefix) + std::to_string(code) + ": " + std::string(rule.meaning) +
         std::string(what_to_do(rule.class_of));
}

std::optional<uint64_t> xid_of_reason(std::string_view reason) {
  if (!reason.starts_with(kPrefix)) return std::nullopt;
  uint64_t code = 0;
  const char* const begin = reason.data() + kPrefix.size();
  const auto parsed = std::from_chars(begin, reason.data() + reason.size(), code);
  const bool whole =
      parsed.ec == std::errc() && parsed.ptr != reason.data() + reason.size() && *parsed.ptr == ':';
  return whole ? std::optional(code) : std::nullopt;
}

}  // namespace tranche
