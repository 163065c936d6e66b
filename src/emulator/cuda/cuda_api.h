// The part of the CUDA driver API that the emulator implements, in our own declarations: types, results
// and the numbers of enumerators as the ABI has them.
//
// Handles are opaque numbers, never addresses of anything, and never reused: a destroyed one is told apart.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tranche::emulator::cuda {

// X(name, number, text)
#define EMULATOR_CUDA_RESULTS(X)                                                                      \
  X(CUDA_SUCCESS, 0, "no error")                                                                      \
  X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                                  \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                                     \
  X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                            \
  X(CUDA_ERROR_DEINITIALIZED, 4, "driver shutting down")                                              \
  X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                                  \
  X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                         \
  X(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                                  \
  X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                                        \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "uncorrectable ECC error encountered")                         \
  X(CUDA_ERROR_UNSUPPORTED_LIMIT, 215, "limit is not supported on this architecture")                 \
  X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217, "peer access is not supported between these devices")    \
  X(CUDA_ERROR_INVALID_PTX, 218, "a PTX JIT compilation failed")                                      \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220, "uncorrectable NVLink error detected during the execution") \
  X(CUDA_ERROR_FILE_NOT_FOUND, 301, "file not found")                                                 \
  X(CUDA_ERROR_OPERATING_SYSTEM, 304, "OS call failed or operation not supported on this OS")         \
  X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                                        \
  X(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                                              \
  X(CUDA_ERROR_NOT_READY, 600, "device not ready")                                                    \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                      \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "too many resources requested for launch")               \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702, "the launch timed out and was terminated")                        \
  X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704, "peer access is already enabled")                    \
  X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705, "peer access has not been enabled")                      \
  X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708, "cannot set while device is active in this process")      \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed")                                     \
  X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712, "part or all of the memory is already mapped")    \
  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713, "pointer does not correspond to a registered region") \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715, "an illegal instruction was encountered")                    \
  X(CUDA_ERROR_LAUNCH_FAILED, 719, "unspecified launch failure")                                      \
  X(CUDA_ERROR_NOT_PERMITTED, 800, "operation not permitted")                                         \
  X(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported")                                         \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803,                                                           \
    "system has unsupported display driver / cuda driver combination")                                \
  X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720, "too many blocks in cooperative launch")            \
  X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

enum CUresult : int {
#define EMULATOR_CUDA_RESULT_ENUM(name, number, text) name = number,
  EMULATOR_CUDA_RESULTS(EMULATOR_CUDA_RESULT_ENUM)
#undef EMULATOR_CUDA_RESULT_ENUM
};

using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = struct ContextHandle*;
using CUstream = struct StreamHandle*;
using CUevent = struct EventHandle*;
using CUmodule = struct ModuleHandle*;
using CUfunction = struct FunctionHandle*;
using CUlibrary = struct LibraryHandle*;
using CUkernel = struct KernelHandle*;
using CUmemoryPool = struct PoolHandle*;
using CUarray = struct ArrayHandle*;
using CUhostFn = void (*)(void* data);
using CUstreamCallback = void (*)(CUstream stream, CUresult status, void* data);
using CUoccupancyB2DSize = size_t (*)(int block_size);

struct CUuuid {
  uint8_t bytes[16];
};

enum CUmemorytype : unsigned { kMemoryHost = 1, kMemoryDevice = 2, kMemoryArray = 3, kMemoryUnified = 4 };

struct CUDA_MEMCPY2D {
  size_t source_x, source_y;
  CUmemorytype source_type;
  const void* source_host;
  CUdeviceptr source_device;
  CUarray source_array;
  size_t source_pitch;
  size_t target_x, target_y;
  CUmemorytype target_type;
  void* target_host;
  CUdeviceptr target_device;
  CUarray target_array;
  size_t target_pitch;
  size_t width, height;
};

struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  void* attributes;
  unsigned attribute_count;
};

struct CUmemLocation {
  int type;  // 1: device
  int id;
};

struct CUmemPoolProps {
  int allocation_type;
  int handle_types;
  CUmemLocation location;
  void* security;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};

struct CUdevprop {
  int threads_per_block;
  int block_dimensions[3];
  int grid_dimensions[3];
  int shared_bytes_per_block;
  int constant_bytes;
  int warp;
  int pitch;
  int registers_per_block;
  int clock_khz;
  int texture_alignment;
};

// Stream handles with a meaning of their own.
inline constexpr uintptr_t kLegacyStream = 1;
inline constexpr uintptr_t kPerThreadStream = 2;

// Flags.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventFlagsAll = 7;
inline constexpr uint64_t kProcAddressLegacy = 1;
inline constexpr uint64_t kProcAddressPerThread = 2;

}  // namespace tranche::emulator::cuda

// Returns a result that is not CUDA_SUCCESS from the enclosing function.
#define CUDA_TRY(expression)                                                \
  do {                                                                      \
    if (const ::tranche::emulator::cuda::CUresult cuda_try_ = (expression); \
        cuda_try_ != ::tranche::emulator::cuda::CUDA_SUCCESS) {             \
      return cuda_try_;                                                     \
    }                                                                       \
  } while (false)

// A function of the driver's ABI.
#define CUDA_ENTRY extern "C" __attribute__((visibility("default"))) ::tranche::emulator::cuda::CUresult
