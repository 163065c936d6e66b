#include "emulator/xid.h"

#include <algorithm>
#include <array>

namespace tranche::emulator {
namespace {

constexpr int32_t kLaunchFailed = 719, kIllegalAddress = 700, kIllegalInstruction = 715, kLaunchTimeout = 702,
                  kEccUncorrectable = 214, kNvlinkUncorrectable = 220, kUnknown = 999;

struct Range {
  uint32_t first, last;
  XidMeaning meaning;
};

constexpr XidMeaning context(int32_t result) { return {XidEffect::context, result, RecoveryAction::none}; }
constexpr XidMeaning reset(int32_t result) { return {XidEffect::gpu, result, RecoveryAction::reset}; }

// Ascending, without overlap. What is not here is only an event.
constexpr std::array kRanges{
    Range{8, 8, context(kLaunchTimeout)},     // the GPU stopped processing: a watchdog
    Range{11, 11, context(kLaunchFailed)},    // an invalid or corrupted push buffer stream
    Range{13, 13, context(kLaunchFailed)},    // graphics engine exception
    Range{25, 25, context(kLaunchFailed)},    // an illegal display setting
    Range{31, 31, context(kIllegalAddress)},  // memory page fault
    Range{32, 32, context(kLaunchFailed)},
    Range{39, 41, context(kLaunchFailed)},
    Range{43, 43, context(kLaunchFailed)},    // the user's application hit a fault and must end
    Range{45, 45, context(kLaunchFailed)},    // pre-emptive removal of a channel
    Range{46, 46, reset(kLaunchTimeout)},     // the GPU stopped processing
    Range{48, 48, reset(kEccUncorrectable)},  // double-bit error
    Range{60, 60, context(kLaunchFailed)},
    Range{62, 62, reset(kUnknown)},           // the internal micro-controller halted
    Range{64, 64, reset(kEccUncorrectable)},  // a row could not be remapped
    Range{68, 72, context(kLaunchFailed)},
    Range{74, 74, reset(kNvlinkUncorrectable)},
    Range{75, 77, context(kLaunchFailed)},
    Range{79, 79, {XidEffect::lost, kUnknown, RecoveryAction::reboot}},
    Range{80, 80, context(kLaunchFailed)},
    Range{82, 86, context(kLaunchFailed)},
    Range{88, 89, context(kLaunchFailed)},
    Range{94, 94, context(kEccUncorrectable)},  // contained ECC error
    Range{95, 95, reset(kEccUncorrectable)},    // uncontained ECC error
    Range{96, 105, context(kLaunchFailed)},
    Range{109, 110, reset(kLaunchTimeout)},
    Range{119, 120, reset(kUnknown)},  // the GPU's system processor does not answer
    Range{126, 135, context(kLaunchFailed)},
    Range{136, 136, reset(kUnknown)},
    Range{139, 139, context(kIllegalInstruction)},
    Range{140, 140, reset(kEccUncorrectable)},
    Range{143, 143, reset(kUnknown)},
    Range{144, 150, reset(kNvlinkUncorrectable)},  // NVLink 5
    Range{151, 151, {XidEffect::gpu, kUnknown, RecoveryAction::reboot}},
    Range{155, 156, reset(kUnknown)},
    Range{158, 158, reset(kUnknown)},
    Range{167, 167, reset(kUnknown)},  // fatal timeout on PCIe
};

}  // namespace

XidMeaning meaning_of_xid(uint32_t code) {
  const auto range = std::find_if(kRanges.begin(), kRanges.end(),
                                  [&](const Range& r) { return code >= r.first && code <= r.last; });
  return range == kRanges.end() ? XidMeaning{} : range->meaning;
}

}  // namespace tranche::emulator
