#include "gpu/sampler_values.h"

#include <algorithm>

#include "gpu/board_type.h"
#include "gpu/nvml_calls.h"

namespace tranche {
namespace {

constexpr uint64_t kBytesPerMiB = 1024 * 1024;
constexpr uint64_t kMemoryMaxBytes = uint64_t{1} << 50;  // a PiB: more is nonsense

LinkKind link_kind_of(uint32_t number) {
  return number <= static_cast<uint32_t>(LinkKind::system) ? static_cast<LinkKind>(number) : LinkKind::system;
}

}  // namespace

MiB mib_down(uint64_t bytes) {
  return MiB(static_cast<int64_t>(std::min(bytes, kMemoryMaxBytes) / kBytesPerMiB));
}

MiB mib_up(uint64_t bytes) {
  return MiB(static_cast<int64_t>((std::min(bytes, kMemoryMaxBytes) + kBytesPerMiB - 1) / kBytesPerMiB));
}

DiscoveredGpu discovered_gpu(const sampler::Gpu& message) {
  const auto known = [&](uint32_t bit) { return (message.known & bit) != 0; };
  DiscoveredGpu gpu;
  gpu.index = message.index;
  gpu.uuid = sampler::field_text(message.uuid);
  if (known(sampler::kKnownMinor)) gpu.minor = message.minor;
  gpu.name = sampler::field_text(message.name);
  gpu.memory_total = mib_down(message.memory_total);
  const uint64_t reserve = std::min(message.memory_reserve, message.memory_total);
  gpu.memory_usable = mib_down(message.memory_total - reserve);
  gpu.type = board_type(gpu.name, gpu.memory_total);
  gpu.pci_bus_id = sampler::field_text(message.pci_bus_id);
  if (known(sampler::kKnownNumaNode)) gpu.numa_node = std::max(message.numa_node, -1);
  gpu.cpu_affinity = sampler::field_text(message.cpu_affinity);
  for (uint32_t i = 0; i < std::min(message.link_count, sampler::kGpusMax); ++i) {
    gpu.links.push_back({message.links[i].peer, link_kind_of(message.links[i].kind)});
  }
  if (known(sampler::kKnownMigCapable)) gpu.mig_capable = message.mig_capable != 0;
  if (known(sampler::kKnownMig)) {
    gpu.mig_enabled = message.mig_enabled != 0;
    gpu.mig_pending = message.mig_pending != 0;
  }
  constexpr uint32_t kGuest = 2;  // nvmlGpuVirtualizationMode_t
  gpu.virtual_guest = known(sampler::kKnownVirtualization) && message.virtualization == kGuest;
  if (known(sampler::kKnownComputeCapability)) {
    gpu.compute_capability_major = message.compute_major;
    gpu.compute_capability_minor = message.compute_minor;
  }
  if (known(sampler::kKnownPowerLimit)) gpu.power_limit_milliwatts = message.power_limit_milliwatts;
  return gpu;
}

MigDevice mig_device(const sampler::MigDevice& message) {
  constexpr uint32_t kMultiprocessorsMax = 4096, kSlicesMax = 64;
  MigDevice device;
  device.uuid = sampler::field_text(message.uuid);
  device.gpu_instance = message.gpu_instance;
  device.compute_instance = message.compute_instance;
  device.multiprocessors = std::min(message.multiprocessors, kMultiprocessorsMax);
  device.slices = std::min(message.gpu_instance_slices, kSlicesMax);
  device.memory = mib_down(std::min(message.memory_mib, kMemoryMaxBytes / kBytesPerMiB) * kBytesPerMiB);
  return device;
}

std::string problem_text(const sampler::GpuProblem& message) {
  std::string text = "GPU " + std::to_string(message.index) + " is left out: ";
  if (message.skipped != 0) return text + "the driver did not answer when it was looked at";
  const std::string_view call = nvml::call_name(static_cast<nvml::Call>(message.call));
  return text + std::string(call) + " failed with NVML error " + std::to_string(message.code) +
         "; see `nvidia-smi` and the kernel log";
}

void complete_links(std::span<DiscoveredGpu> gpus) {
  for (DiscoveredGpu& gpu : gpus) {
    std::vector<PeerLink> links;
    for (const DiscoveredGpu& peer : gpus) {
      if (peer.index == gpu.index) continue;
      const auto found = std::find_if(gpu.links.begin(), gpu.links.end(),
                                      [&](const PeerLink& link) { return link.peer == peer.index; });
      links.push_back(found != gpu.links.end() ? *found : PeerLink{peer.index, LinkKind::system});
    }
    gpu.links = std::move(links);
  }
}

}  // namespace tranche
