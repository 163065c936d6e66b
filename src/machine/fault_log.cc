#include "machine/fault_log.h"

#include <algorithm>

#include "gpu/xid_policy.h"

namespace tranche::machine {
namespace {

constexpr size_t kFaultsKept = 16;  // of one GPU
constexpr Duration kToldOnceIn = kMinute;

}  // namespace

void FaultLog::apply(const Event& event) {
  const auto* const fault = std::get_if<GpuFaulted>(&event.payload);
  if (fault == nullptr) return;
  std::vector<RecordedFault>& faults = faults_[fault->gpu];
  if (faults.size() >= kFaultsKept) faults.erase(faults.begin());
  faults.push_back({event.time, fault->xid, fault->jobs});
}

const std::vector<RecordedFault>& FaultLog::of(GpuId gpu) const {
  static const std::vector<RecordedFault> kNone;
  const auto found = faults_.find(gpu);
  return found == faults_.end() ? kNone : found->second;
}

bool FaultLog::is_repeated(const GpuFaulted& fault, Time now) const {
  const std::vector<RecordedFault>& faults = of(fault.gpu);
  return std::any_of(faults.begin(), faults.end(), [&](const RecordedFault& other) {
    return other.xid == fault.xid && other.jobs == fault.jobs && now - other.time < kToldOnceIn;
  });
}

std::string fault_text(uint32_t xid, uint32_t gpu_index) {
  const XidRule rule = xid_rule(xid);
  const std::string_view whose = rule.class_of == XidClass::job    ? ", an error of the program: "
                                 : rule.class_of == XidClass::note ? ": "
                                                                   : ", a fault of the GPU: ";
  return "XID " + std::to_string(xid) + " on GPU " + std::to_string(gpu_index) + std::string(whose) +
         std::string(rule.meaning);
}

}  // namespace tranche::machine
