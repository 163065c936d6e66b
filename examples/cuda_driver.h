// The part of the CUDA driver API that the examples use, found at run time: the programs build and start on a
// machine without a GPU and say so, instead of not starting.
//
// Debian has no cuda.h; the declarations follow the public documentation of the driver API. Only the driver
// API: the examples need neither a CUDA toolkit nor the runtime library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace examples {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
using CUcontext = CUctx_st*;
using CUmodule = CUmod_st*;
using CUfunction = CUfunc_st*;
using CUstream = CUstream_st*;

inline constexpr CUresult kCudaSuccess = 0;
inline constexpr CUresult kCudaOutOfMemory = 2;
inline constexpr CUresult kCudaNoDevice = 100;

// Something that the person who started the program can act on.
class Problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// libcuda.so.1, loaded and initialised. Throws Problem: no driver, no GPU visible.
class CudaDriver {
 public:
  CudaDriver();

  int device_count() const { return device_count_; }

  // Throws Problem with the driver's own words unless `result` is success. `what` says what was tried.
  void check(CUresult result, const std::string& what) const;

  CUresult (*device_get)(CUdevice*, int) = nullptr;
  CUresult (*device_name)(char*, int, CUdevice) = nullptr;
  CUresult (*primary_context_retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*context_set_current)(CUcontext) = nullptr;
  CUresult (*memory_allocate)(CUdeviceptr*, size_t) = nullptr;
  CUresult (*memory_free)(CUdeviceptr) = nullptr;
  CUresult (*memory_info)(size_t* free, size_t* total) = nullptr;
  CUresult (*memory_set)(CUdeviceptr, unsigned char, size_t) = nullptr;
  CUresult (*module_load)(CUmodule*, const void* image) = nullptr;
  CUresult (*module_function)(CUfunction*, CUmodule, const char*) = nullptr;
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     CUstream, void**, void**) = nullptr;
  CUresult (*stream_create)(CUstream*, unsigned flags) = nullptr;
  CUresult (*stream_synchronize)(CUstream) = nullptr;

 private:
  CUresult (*error_text_)(CUresult, const char**) = nullptr;
  int device_count_ = 0;
};

// One GPU of those that the process sees, with a kernel that keeps it busy.
class BusyGpu {
 public:
  // `index` counts the GPUs visible to this process. Makes a context, which takes some device memory itself.
  BusyGpu(const CudaDriver& cuda, int index);

  const std::string& name() const { return name_; }
  size_t free_mib() const;
  // Holds `mib` more of device memory, or nothing more if it throws; given back with release() or at the
  // process's end.
  void hold(size_t mib);
  void release();
  size_t held_mib() const { return held_mib_; }
  // Starts work of about `microseconds` of the whole GPU's time, behind what was started before.
  void start_work(uint64_t microseconds);
  // Waits for all that was started.
  void finish() const;

 private:
  void use() const;
  void release_to(size_t blocks);

  const CudaDriver& cuda_;
  std::string name_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUfunction kernel_ = nullptr;
  std::vector<CUdeviceptr> held_;
  size_t held_mib_ = 0;
};

}  // namespace examples
