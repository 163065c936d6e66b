// Where the GPUs are in the machine, and who reaches whom.
//
// The emulated machine has one NUMA node, each GPU below a host bridge of its own; boards with NVLink are
// joined by NVSwitches, all links of all GPUs.
#include <unistd.h>

#include <climits>
#include <vector>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint32_t kLongBits = sizeof(unsigned long) * CHAR_BIT;

// Bits 0 .. number-1 of a set of `words` words; the rest cleared.
Return write_set(uint32_t words, unsigned long* set, uint32_t number) {
  if (set == nullptr || words == 0) return Return::invalid_argument;
  for (uint32_t word = 0; word < words; ++word) {
    const uint32_t first = word * kLongBits;
    if (number >= first + kLongBits)
      set[word] = ~0ul;
    else
      set[word] = number > first ? (1ul << (number - first)) - 1 : 0;
  }
  return Return::success;
}

uint32_t processor_count() {
  const long count = sysconf(_SC_NPROCESSORS_CONF);
  return count > 0 ? static_cast<uint32_t>(count) : 1;
}

Return cpu_affinity(Device* device, uint32_t words, unsigned long* set) {
  return with_gpu(device, [&](const Gpu&) { return write_set(words, set, processor_count()); });
}

bool is_scope(uint32_t scope) { return scope <= 1; }  // NUMA node, socket

// Boards of one kind reach each other over NVLink, or over PCIe unless they are GeForce cards (those with a
// fan of their own); libcuda.so.1 answers the same.
PeerStatus peer_status(const Gpu& first, const Gpu& second, PeerCapability capability) {
  const bool alike = first.board.key == second.board.key;
  const bool nvlink = alike && first.board.nvlinks > 0;
  switch (capability) {
    case PeerCapability::nvlink:
    case PeerCapability::atomics:
      return nvlink ? PeerStatus::ok : PeerStatus::not_supported;
    case PeerCapability::read:
    case PeerCapability::write:
    case PeerCapability::pci:
      break;
  }
  if (first.board.fan || second.board.fan) return PeerStatus::chipset_not_supported;
  return alike ? PeerStatus::ok : PeerStatus::not_supported;
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetTopologyCommonAncestor(Device* first, Device* second, TopologyLevel* level) {
  return answer_one(first, level, [&](const Gpu& gpu, TopologyLevel& answer) {
    if (!gpu.session.index_of(second)) return Return::invalid_argument;
    answer = first == second ? TopologyLevel::internal : TopologyLevel::node;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetTopologyNearestGpus(Device* device, TopologyLevel level, uint32_t* count,
                                                    Device** devices) {
  return with_gpu(device, [&](const Gpu& gpu) {
    std::vector<Device*> nearest;
    if (level == TopologyLevel::node) {
      for (uint32_t index = 0; index < gpu.session.visible().size(); ++index) {
        if (index != gpu.index) nearest.push_back(gpu.session.handle(index));
      }
    }
    if (count != nullptr && devices == nullptr) *count = 0;
    return copy_list(count, devices, static_cast<uint32_t>(nearest.size()),
                     [&](uint32_t i) { return nearest[i]; });
  });
}

NVML_EXPORT Return nvmlSystemGetTopologyGpuSet(uint32_t processor, uint32_t* count, Device** devices) {
  return with_session([&](const Session& session) {
    if (processor >= processor_count()) return Return::invalid_argument;
    if (count != nullptr && devices == nullptr) *count = 0;
    return copy_list(count, devices, static_cast<uint32_t>(session.visible().size()),
                     [&](uint32_t i) { return session.handle(i); });
  });
}

NVML_EXPORT Return nvmlDeviceGetP2PStatus(Device* first, Device* second, PeerCapability capability,
                                          PeerStatus* status) {
  return answer_one(first, status, [&](const Gpu& gpu, PeerStatus& answer) {
    const std::optional<uint32_t> other = gpu.session.index_of(second);
    if (!other || *other == gpu.index || capability > PeerCapability::pci) return Return::invalid_argument;
    answer = peer_status(gpu, gpu_at(gpu.session, *other), capability);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetCpuAffinity(Device* device, uint32_t words, unsigned long* set) {
  return cpu_affinity(device, words, set);
}
NVML_EXPORT Return nvmlDeviceGetCpuAffinityWithinScope(Device* device, uint32_t words, unsigned long* set,
                                                       uint32_t scope) {
  if (!is_scope(scope)) return with_gpu(device, [](const Gpu&) { return Return::invalid_argument; });
  return cpu_affinity(device, words, set);
}
NVML_EXPORT Return nvmlDeviceGetMemoryAffinity(Device* device, uint32_t words, unsigned long* set,
                                               uint32_t scope) {
  return with_gpu(device, [&](const Gpu&) {
    return is_scope(scope) ? write_set(words, set, 1) : Return::invalid_argument;
  });
}

}  // namespace tranche::emulator::nvml
