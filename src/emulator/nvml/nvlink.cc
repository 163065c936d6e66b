// NVLink: every link of a board that has them is up and leads to an NVSwitch; other boards have none.
#include <cstdio>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint32_t kMaxLinks = 18;  // links that NVML of this driver counts
constexpr uint32_t kSwitchVendor = 0x10DE;
constexpr uint32_t kFirstSwitchBus = 0xF0;
constexpr uint32_t kSwitchClassDevice = 0x22A3;

// Body for a link that exists.
template <class T, class Body>
Return answer_link(Device* device, uint32_t link, T* answer, Body body) {
  return answer_one(device, answer, [&](const Gpu& gpu, T& value) {
    if (link >= kMaxLinks) return Return::invalid_argument;
    if (gpu.board.nvlinks == 0) return Return::not_supported;
    if (link >= gpu.board.nvlinks) return Return::invalid_argument;
    return body(gpu, value);
  });
}

// nvmlNvlinkVersion_t: 3.0 on Ampere, 4.0 on Hopper, 5.0 on Blackwell.
uint32_t link_version(Architecture architecture) {
  if (architecture >= Architecture::Blackwell) return 7;
  return architecture >= Architecture::Hopper ? 6 : 4;
}

// Six switches before Hopper, four after; links go round them.
uint32_t switch_of(const Gpu& gpu, uint32_t link) {
  return link % (gpu.board.architecture >= Architecture::Hopper ? 4 : 6);
}

Return remote_pci(Device* device, uint32_t link, PciInfoV2* info_v2, PciInfoV3* info_v3) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (info_v2 == nullptr && info_v3 == nullptr) return Return::invalid_argument;
    if (link >= kMaxLinks) return Return::invalid_argument;
    if (gpu.board.nvlinks == 0) return Return::not_supported;
    if (link >= gpu.board.nvlinks) return Return::invalid_argument;
    const uint32_t bus = kFirstSwitchBus + switch_of(gpu, link);
    const uint32_t id = kSwitchClassDevice << 16 | kSwitchVendor;
    if (info_v2 != nullptr) {
      *info_v2 = {.bus_id = {},
                  .domain = 0,
                  .bus = bus,
                  .device = 0,
                  .pci_device_id = id,
                  .pci_subsystem_id = 0,
                  .reserved = {}};
      std::snprintf(info_v2->bus_id.data(), info_v2->bus_id.size(), "0000:%02X:00.0", bus);
    } else {
      *info_v3 = {.bus_id_legacy = {},
                  .domain = 0,
                  .bus = bus,
                  .device = 0,
                  .pci_device_id = id,
                  .pci_subsystem_id = 0,
                  .bus_id = {}};
      std::snprintf(info_v3->bus_id_legacy.data(), info_v3->bus_id_legacy.size(), "0000:%02X:00.0", bus);
      std::snprintf(info_v3->bus_id.data(), info_v3->bus_id.size(), "00000000:%02X:00.0", bus);
    }
    return Return::success;
  });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetNvLinkState(Device* device, uint32_t link, uint32_t* is_active) {
  return answer_link(device, link, is_active, [](const Gpu&, uint32_t& answer) {
    answer = 1;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetNvLinkVersion(Device* device, uint32_t link, uint32_t* version) {
  return answer_link(device, link, version, [](const Gpu& gpu, uint32_t& answer) {
    answer = link_version(gpu.board.architecture);
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetNvLinkCapability(Device* device, uint32_t link, uint32_t capability,
                                                 uint32_t* has) {
  constexpr uint32_t kPeerAccess = 0, kPeerAtomics = 2, kValid = 5, kCapabilities = 6;
  return answer_link(device, link, has, [&](const Gpu&, uint32_t& answer) {
    if (capability >= kCapabilities) return Return::invalid_argument;
    answer = capability == kPeerAccess || capability == kPeerAtomics || capability == kValid ? 1 : 0;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetNvLinkErrorCounter(Device* device, uint32_t link, uint32_t counter,
                                                   uint64_t* errors) {
  constexpr uint32_t kCounters = 5;
  return answer_link(device, link, errors, [&](const Gpu&, uint64_t& answer) {
    if (counter >= kCounters) return Return::invalid_argument;
    answer = 0;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetNvLinkRemoteDeviceType(Device* device, uint32_t link, uint32_t* type) {
  return answer_link(device, link, type, [](const Gpu&, uint32_t& answer) {
    answer = 2;  // NVSwitch
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetNvLinkRemotePciInfo(Device* device, uint32_t link, PciInfoV2* info) {
  return remote_pci(device, link, info, nullptr);
}
NVML_EXPORT Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device* device, uint32_t link, PciInfoV3* info) {
  return remote_pci(device, link, nullptr, info);
}

}  // namespace tranche::emulator::nvml
