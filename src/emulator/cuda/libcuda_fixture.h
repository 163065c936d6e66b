// What the tests of libcuda.so.1 share: the library by its name, calls of its functions by theirs, and a
// context.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "emulator/cuda/graph_types.h"

namespace tranche::emulator::cuda {

inline constexpr size_t kMebi = size_t{1} << 20;
inline constexpr const char* kPtx =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    "// .entry commented_out()\n"
    ".visible .entry tranche_busy(.param .u64 microseconds)\n{ ret; }\n"
    ".visible .entry plain(.param .u64 buffer, .param .u32 count)\n{\n .reg .u32 %r<2>; ret;\n}\n"
    ".visible .entry tranche_fault(.param .u64 result)\n{ ret; }\n"
    ".visible .global .align 4 .f32 weights[8][4];\n";

inline void* library() {
  static void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return handle;
}

// Calls the entry point of that name.
template <class... Arguments>
CUresult call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(library(), name));
  EXPECT_NE(function, nullptr) << name;
  return function == nullptr ? CUDA_ERROR_UNKNOWN : function(arguments...);
}

#define EXPECT_CUDA(expected, ...) EXPECT_EQ(expected, call(__VA_ARGS__))
#define ASSERT_OK(...) ASSERT_EQ(CUDA_SUCCESS, call(__VA_ARGS__))

class LibcudaTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(library(), nullptr) << dlerror();
    ASSERT_OK("cuInit", 0u);
    ASSERT_OK("cuCtxCreate_v2", &context_, 0u, CUdevice{0});
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    EXPECT_CUDA(CUDA_SUCCESS, "cuCtxDestroy_v2", context_);
  }

  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_CUDA(CUDA_SUCCESS, "cuMemAlloc_v2", &address, bytes);
    return address;
  }
  size_t free_bytes() {
    size_t free = 0, total = 0;
    EXPECT_CUDA(CUDA_SUCCESS, "cuMemGetInfo_v2", &free, &total);
    return free;
  }
  CUfunction kernel(const char* name) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, "cuModuleLoadData", &module, static_cast<const void*>(kPtx));
    EXPECT_CUDA(CUDA_SUCCESS, "cuModuleGetFunction", &function, module, name);
    return function;
  }
  CUfunction busy_kernel() { return kernel("tranche_busy"); }
  // A kernel of one block whose one parameter is a number.
  CUresult launch_busy(CUfunction function, uint64_t microseconds, CUstream stream) {
    void* parameters[] = {&microseconds};
    return call("cuLaunchKernel", function, 1u, 1u, 1u, 32u, 1u, 1u, 0u, stream,
                static_cast<void**>(parameters), static_cast<void**>(nullptr));
  }

  CUcontext context_ = nullptr;
};

}  // namespace tranche::emulator::cuda
