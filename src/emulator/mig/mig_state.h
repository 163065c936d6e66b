// How a GPU is cut up now, as it lies in shared memory.
//
// Locks: the GPU's own. Ids are reused when an instance is destroyed and another made; UUIDs are not: they
// are made from the GPU's and a count of all instances ever made there.
#pragma once

#include <array>
#include <cstdint>

namespace tranche::emulator {

inline constexpr uint32_t kMaxGpuInstances = 8;      // on one GPU
inline constexpr uint32_t kMaxComputeInstances = 8;  // in one GPU instance
inline constexpr uint32_t kMaxExecutors = 8;  // on one GPU: each has a slice of it, and no board has more

struct SharedComputeInstance {
  uint32_t exists;
  uint32_t profile;        // id
  uint32_t start, slices;  // in compute slices of the GPU instance
  uint32_t multiprocessors;
  uint32_t executor;  // whose time it has: an index into SharedGpu::instance_timelines
  std::array<uint8_t, 16> uuid;
  std::array<char, 48> uuid_text;  // "MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
};

struct SharedGpuInstance {
  uint32_t exists;
  uint32_t id;  // as the driver numbers it
  uint32_t profile;
  uint32_t start, units;                                            // in memory units of the board
  std::array<SharedComputeInstance, kMaxComputeInstances> compute;  // by compute instance id
};

struct SharedMig {
  uint32_t enabled, pending;  // pending: the mode after a reset
  uint64_t made;              // instances ever made, for UUIDs
  std::array<SharedGpuInstance, kMaxGpuInstances> instances;
};

}  // namespace tranche::emulator
