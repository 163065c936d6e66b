// What cuDeviceGetAttribute answers.
#pragma once

#include "emulator/board.h"
#include "emulator/cuda/cuda_api.h"
#include "emulator/device_model.h"

namespace tranche::emulator::cuda {

// The attribute of that number; CUDA_ERROR_INVALID_VALUE for numbers CUDA 12 does not know.
CUresult device_attribute(const Board& board, const GpuIdentity& identity, int attribute, int& value);

// Bytes of shared memory that a block may opt in to.
int shared_bytes_opt_in(const Board& board);

inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kSharedBytesPerBlock = 48 << 10;
inline constexpr int kRegisters = 65536;  // of a block and of a multiprocessor

}  // namespace tranche::emulator::cuda
