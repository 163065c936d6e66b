// The PCIe link of a GPU.
#include <ctime>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

// Boards that sleep between jobs slow their link down to the first generation.
uint32_t current_generation(const Gpu& gpu) {
  constexpr uint32_t kIdleState = 8;
  if (gpu.detail.keeps_link_speed || gpu.read().performance_state < kIdleState)
    return gpu.board.pcie_generation;
  return 1;
}

// Megatransfers a second of one lane, by generation: 2500, 5000, 8000, then doubling.
uint32_t lane_speed(uint32_t generation) {
  if (generation <= 2) return 2500 * generation;
  return 8000u << (generation - 3);
}

Return most(Device* device, uint32_t* answer, uint32_t Board::*what) {
  return answer_one(device, answer, [&](const Gpu& gpu, uint32_t& value) {
    value = gpu.board.*what;
    return Return::success;
  });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetMaxPcieLinkGeneration(Device* device, uint32_t* generation) {
  return most(device, generation, &Board::pcie_generation);
}
NVML_EXPORT Return nvmlDeviceGetGpuMaxPcieLinkGeneration(Device* device, uint32_t* generation) {
  return most(device, generation, &Board::pcie_generation);
}
NVML_EXPORT Return nvmlDeviceGetMaxPcieLinkWidth(Device* device, uint32_t* width) {
  return most(device, width, &Board::pcie_width);
}
NVML_EXPORT Return nvmlDeviceGetCurrPcieLinkWidth(Device* device, uint32_t* width) {
  return most(device, width, &Board::pcie_width);
}
NVML_EXPORT Return nvmlDeviceGetCurrPcieLinkGeneration(Device* device, uint32_t* generation) {
  return answer_one(device, generation, [](const Gpu& gpu, uint32_t& answer) {
    answer = current_generation(gpu);
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetPcieSpeed(Device* device, uint32_t* speed) {
  return answer_one(device, speed, [](const Gpu& gpu, uint32_t& answer) {
    answer = lane_speed(current_generation(gpu));
    return Return::success;
  });
}
// NVML numbers the speeds as it numbers the generations.
NVML_EXPORT Return nvmlDeviceGetPcieLinkMaxSpeed(Device* device, uint32_t* speed) {
  return most(device, speed, &Board::pcie_generation);
}
NVML_EXPORT Return nvmlDeviceGetBusType(Device* device, uint32_t* type) {
  return answer_one(device, type, [](const Gpu&, uint32_t& answer) {
    answer = 2;  // PCIe
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetPcieReplayCounter(Device* device, uint32_t* replays) {
  return answer_one(device, replays, [](const Gpu&, uint32_t& answer) {
    answer = 0;
    return Return::success;
  });
}
// The rate over 20 ms, for which the call waits, as the driver's does; KB (1000 bytes) a second.
NVML_EXPORT Return nvmlDeviceGetPcieThroughput(Device* device, uint32_t counter, uint32_t* kilobytes) {
  constexpr uint32_t kSent = 0, kReceived = 1;  // by the GPU
  constexpr uint64_t kWindowNs = 20'000'000;
  return answer_one(device, kilobytes, [&](const Gpu& gpu, uint32_t& answer) {
    if (counter > kReceived) return Return::invalid_argument;
    const Bus direction = counter == kSent ? Bus::from_gpu : Bus::to_gpu;
    const uint64_t before = gpu.model.bytes_moved(gpu.number, direction), began = monotonic_now();
    timespec left{.tv_sec = 0, .tv_nsec = kWindowNs};
    while (nanosleep(&left, &left) != 0) {
    }
    const uint64_t bytes = gpu.model.bytes_moved(gpu.number, direction) - before;
    answer = static_cast<uint32_t>(static_cast<double>(bytes) * 1e6 /
                                   static_cast<double>(monotonic_now() - began));
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
