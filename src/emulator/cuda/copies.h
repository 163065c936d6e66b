// Moving and filling bytes, wherever they are: on the host, on a GPU, in an array.
#pragma once

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {

// What a copy is ordered behind: a stream, and whether the caller waits for it.
struct Order {
  enum class When { now, in_stream };
  CUstream stream = nullptr;
  DefaultStream mode = DefaultStream::legacy;
  When when = When::now;
};

inline Order in_order(CUstream stream, DefaultStream mode) { return {stream, mode, Order::When::in_stream}; }

// A copy of `bytes` in a row, as a request in three dimensions; `type` as CUDA_MEMCPY3D has it.
CUDA_MEMCPY3D line(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from, CUmemorytype from_type,
                   size_t bytes);

// Checks, waits or writes down as the order says, and moves the bytes.
CUresult submit_copy(const CUDA_MEMCPY3D& request, const Order& order);
CUresult submit_fill(const CUDA_MEMSET_NODE_PARAMS& request, const Order& order);

// The same in a stream that is not being captured, at once; the GPU time is queued.
CUresult copy_in(Stream& stream, const CUDA_MEMCPY3D& request);
CUresult fill_in(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& request);
CUresult check_copy(const CUDA_MEMCPY3D& request);
CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS& request);

// Reads and writes a word of device or pinned memory; false if there is none.
bool read_word(CUdeviceptr address, size_t bytes, uint64_t& value);
bool write_word(CUdeviceptr address, size_t bytes, uint64_t value);

}  // namespace tranche::emulator::cuda
