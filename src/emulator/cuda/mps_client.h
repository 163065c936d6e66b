// What the environment of a client of MPS asks for, on GPUs that are shared side by side.
//
// As on the driver these are wishes of the client itself and no fence: who drops the variables drops the
// limits. A list of memory limits that names a GPU that the process cannot see, or that is not understood, is
// dropped whole. Source: the vendor's MPS guide; enforcement.md 1.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tranche::emulator::cuda {

// The multiprocessors that CUDA_MPS_ACTIVE_THREAD_PERCENTAGE leaves of `all`: whole pairs, at least one; all
// of them if it says nothing.
uint32_t multiprocessors_of_client(std::string_view percentage, uint32_t all);

// CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, "0=2G,1=512M": bytes by device of the process, UINT64_MAX where there is
// no limit; empty if the list is dropped or absent.
std::vector<uint64_t> memory_limits_of_client(std::string_view list, uint32_t device_count);

}  // namespace tranche::emulator::cuda
