// libcuda.so.1 as programs use it: loaded by its name, on an emulated server (run by ctest under
// tranche-emulator run --board t4:2).

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "emulator/cuda/libcuda_fixture.h"

namespace tranche::emulator::cuda {
namespace {

TEST_F(LibcudaTest, DevicesAreThoseOfTheServer) {
  int count = 0;
  ASSERT_OK("cuDeviceGetCount", &count);
  EXPECT_EQ(count, 2);
  std::array<char, 64> name{};
  ASSERT_OK("cuDeviceGetName", name.data(), 64, CUdevice{1});
  EXPECT_STREQ(name.data(), "Tesla T4");
  CUdevice device = -1;
  std::array<char, 32> bus{};
  ASSERT_OK("cuDeviceGetPCIBusId", bus.data(), 32, CUdevice{1});
  ASSERT_OK("cuDeviceGetByPCIBusId", &device, static_cast<const char*>(bus.data()));
  EXPECT_EQ(device, 1);
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, "cuDeviceGet", &device, 2);
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, "cuDeviceGet", &device, -1);
}

TEST_F(LibcudaTest, CopiesMoveTheBytes) {
  std::vector<uint8_t> source(3 * kMebi + 5);
  std::iota(source.begin(), source.end(), uint8_t{1});
  const CUdeviceptr a = allocate(source.size()), b = allocate(source.size());
  ASSERT_OK("cuMemcpyHtoD_v2", a, static_cast<const void*>(source.data()), source.size());
  ASSERT_OK("cuMemcpyDtoDAsync_v2", b, a, source.size(), CUstream{nullptr});
  std::vector<uint8_t> target(source.size());
  ASSERT_OK("cuMemcpyDtoH_v2_ptds", static_cast<void*>(target.data()), b, target.size());
  EXPECT_EQ(source, target);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemcpyHtoD_v2", a, static_cast<const void*>(source.data()),
              source.size() + 1);
  ASSERT_OK("cuMemsetD32_v2", b + 4, 0x01020304u, size_t{2});
  ASSERT_OK("cuMemcpyDtoH_v2", static_cast<void*>(target.data()), b, size_t{16});
  EXPECT_EQ(target[3], source[3]);
  EXPECT_EQ(target[4], 4);
  EXPECT_EQ(target[11], 1);
  EXPECT_EQ(target[12], source[12]);
}

TEST_F(LibcudaTest, CopiesInTwoDimensionsKeepRowsApart) {
  CUdeviceptr plane = 0;
  size_t pitch = 0;
  ASSERT_OK("cuMemAllocPitch_v2", &plane, &pitch, size_t{100}, size_t{10}, 4u);
  EXPECT_GE(pitch, 100u);
  std::vector<uint8_t> source(100 * 10), target(100 * 10);
  std::iota(source.begin(), source.end(), uint8_t{0});
  CUDA_MEMCPY2D request = {};
  request.source_type = kMemoryHost;
  request.source_host = source.data();
  request.source_pitch = 100;
  request.target_type = kMemoryDevice;
  request.target_device = plane;
  request.target_pitch = pitch;
  request.width = 100;
  request.height = 10;
  ASSERT_OK("cuMemcpy2D_v2", static_cast<const CUDA_MEMCPY2D*>(&request));
  CUDA_MEMCPY2D back = {};
  back.source_type = kMemoryDevice;
  back.source_device = plane;
  back.source_pitch = pitch;
  back.source_y = 1;
  back.target_type = kMemoryHost;
  back.target_host = target.data();
  back.target_pitch = 100;
  back.width = 100;
  back.height = 9;
  ASSERT_OK("cuMemcpy2D_v2", static_cast<const CUDA_MEMCPY2D*>(&back));
  EXPECT_EQ(std::memcmp(target.data(), source.data() + 100, 900), 0);
}

TEST_F(LibcudaTest, MemoryEndsAtTheSizeOfTheBoard) {
  constexpr size_t kUsable = (15360 - 250) * kMebi;
  EXPECT_EQ(free_bytes(), kUsable - 130 * kMebi) << "less one context";
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr address = 0;
  while (call("cuMemAlloc_v2", &address, 512 * kMebi) == CUDA_SUCCESS) blocks.push_back(address);
  EXPECT_EQ(blocks.size(), (kUsable / kMebi - 130) / 512);
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc_v2", &address, free_bytes() + 1);
  ASSERT_OK("cuMemAlloc_v2", &address, free_bytes());
  EXPECT_EQ(free_bytes(), 0u);
  ASSERT_OK("cuMemFree_v2", address);
  for (const CUdeviceptr block : blocks) ASSERT_OK("cuMemFree_v2", block);
  EXPECT_EQ(free_bytes(), kUsable - 130 * kMebi);
}

TEST_F(LibcudaTest, FreedMemoryComesBackDirty) {
  const CUdeviceptr first = allocate(4 * kMebi);
  ASSERT_OK("cuMemsetD8_v2", first, uint8_t{0xA5}, 4 * kMebi);
  ASSERT_OK("cuMemFree_v2", first);
  const CUdeviceptr second = allocate(4 * kMebi);
  uint8_t byte = 0;
  ASSERT_OK("cuMemcpyDtoH_v2", static_cast<void*>(&byte), second + kMebi, size_t{1});
  EXPECT_EQ(byte, 0xA5);
}

TEST_F(LibcudaTest, SmallAllocationsShareAPage) {
  const size_t before = free_bytes();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(allocate(1000));
  EXPECT_EQ(free_bytes(), before - 2 * kMebi);
  for (const CUdeviceptr block : blocks) {
    EXPECT_EQ(block % 256, 0u);
    ASSERT_OK("cuMemFree_v2", block);
  }
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(LibcudaTest, WrongHandlesAndPointersAreRefused) {
  CUdeviceptr block = allocate(100);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemFree_v2", block + 8);
  ASSERT_OK("cuMemFree_v2", block);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemFree_v2", block);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc_v2", &block, size_t{0});
  CUstream stream = nullptr;
  ASSERT_OK("cuStreamCreate", &stream, 0u);
  ASSERT_OK("cuStreamDestroy_v2", stream);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, "cuStreamSynchronize", stream);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy_v2", stream);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, "cuEventQuery", reinterpret_cast<CUevent>(stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuStreamCreate", &stream, 8u);
  EXPECT_EQ(launch_busy(nullptr, 1, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LibcudaTest, AContextTakesItsThingsWithIt) {
  CUcontext second = nullptr;
  const size_t before = free_bytes();
  ASSERT_OK("cuCtxCreate_v2", &second, 0u, CUdevice{0});
  const CUdeviceptr block = allocate(64 * kMebi);
  EXPECT_EQ(free_bytes(), before - (64 + 130) * kMebi);
  ASSERT_OK("cuCtxDestroy_v2", second);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemFree_v2", block);
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent", second);
  CUcontext current = nullptr;
  ASSERT_OK("cuCtxGetCurrent", &current);
  EXPECT_EQ(current, context_);
}

TEST_F(LibcudaTest, WithoutAContextNothingIsAllocated) {
  std::thread([] {
    CUdeviceptr address = 0;
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, "cuMemAlloc_v2", &address, size_t{100});
  }).join();
}

TEST_F(LibcudaTest, PrimaryContextsAreCounted) {
  CUcontext primary = nullptr, again = nullptr;
  unsigned flags = 0;
  int active = 1;
  ASSERT_OK("cuDevicePrimaryCtxGetState", CUdevice{1}, &flags, &active);
  EXPECT_EQ(active, 0);
  ASSERT_OK("cuDevicePrimaryCtxRetain", &primary, CUdevice{1});
  ASSERT_OK("cuDevicePrimaryCtxRetain", &again, CUdevice{1});
  EXPECT_EQ(primary, again);
  ASSERT_OK("cuDevicePrimaryCtxRelease_v2", CUdevice{1});
  ASSERT_OK("cuDevicePrimaryCtxGetState", CUdevice{1}, &flags, &active);
  EXPECT_EQ(active, 1);
  ASSERT_OK("cuDevicePrimaryCtxRelease_v2", CUdevice{1});
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, "cuDevicePrimaryCtxRelease_v2", CUdevice{1});
}

TEST_F(LibcudaTest, EventsAreTimedByTheModel) {
  const CUfunction busy = busy_kernel();
  CUstream stream = nullptr;
  CUevent start = nullptr, middle = nullptr, end = nullptr;
  ASSERT_OK("cuStreamCreate", &stream, 1u);
  for (CUevent* event : {&start, &middle, &end}) ASSERT_OK("cuEventCreate", event, 0u);
  // Work in front, so that all of the events are recorded before the first of them happens.
  ASSERT_EQ(launch_busy(busy, 300'000, stream), CUDA_SUCCESS);
  ASSERT_OK("cuEventRecord", start, stream);
  ASSERT_EQ(launch_busy(busy, 20'000, stream), CUDA_SUCCESS);
  ASSERT_OK("cuEventRecord", middle, stream);
  ASSERT_EQ(launch_busy(busy, 10'000, stream), CUDA_SUCCESS);
  ASSERT_OK("cuEventRecord", end, stream);
  float milliseconds = 0;
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, "cuEventElapsedTime", &milliseconds, start, end);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, "cuStreamQuery", stream);
  ASSERT_OK("cuEventSynchronize", end);
  EXPECT_CUDA(CUDA_SUCCESS, "cuEventQuery", middle);
  EXPECT_CUDA(CUDA_SUCCESS, "cuStreamQuery", stream);
  ASSERT_OK("cuEventElapsedTime", &milliseconds, start, middle);
  EXPECT_NEAR(milliseconds, 20.0F, 0.01F);  // model time: not affected by how busy this machine is
  ASSERT_OK("cuEventElapsedTime", &milliseconds, middle, end);
  EXPECT_NEAR(milliseconds, 10.0F, 0.01F);
  ASSERT_OK("cuEventElapsedTime", &milliseconds, end, middle);
  EXPECT_NEAR(milliseconds, -10.0F, 0.01F);
}

TEST_F(LibcudaTest, AnEventThatMeasuresNothingSaysSo) {
  CUevent event = nullptr, untimed = nullptr;
  float milliseconds = 0;
  ASSERT_OK("cuEventCreate", &event, 0u);
  EXPECT_CUDA(CUDA_SUCCESS, "cuEventQuery", event);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime", &milliseconds, event, event);
  ASSERT_OK("cuEventCreate", &untimed, kEventDisableTiming);
  ASSERT_OK("cuEventRecord", untimed, CUstream{nullptr});
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime", &milliseconds, untimed, untimed);
}

TEST_F(LibcudaTest, HostFunctionsRunInTheirPlaceInTheStream) {
  static std::atomic<int> step{0};
  const CUfunction busy = busy_kernel();
  CUstream stream = nullptr;
  ASSERT_OK("cuStreamCreate", &stream, 0u);
  ASSERT_EQ(launch_busy(busy, 5000, stream), CUDA_SUCCESS);
  const CUhostFn first = [](void*) {
    if (step.load() == 0) step.store(1);
  };
  const CUhostFn second = [](void*) {
    if (step.load() == 1) step.store(2);
  };
  ASSERT_OK("cuLaunchHostFunc", stream, first, static_cast<void*>(nullptr));
  ASSERT_OK("cuLaunchHostFunc", stream, second, static_cast<void*>(nullptr));
  ASSERT_OK("cuStreamSynchronize", stream);
  EXPECT_EQ(step.load(), 2);
}

TEST_F(LibcudaTest, CodeIsReadForItsNames) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_OK("cuModuleLoadData", &module, static_cast<const void*>(kPtx));
  EXPECT_CUDA(CUDA_SUCCESS, "cuModuleGetFunction", &function, module, "plain");
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, "cuModuleGetFunction", &function, module, "commented_out");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  ASSERT_OK("cuModuleGetGlobal_v2", &address, &bytes, module, "weights");
  EXPECT_EQ(bytes, 128u);
  ASSERT_OK("cuModuleUnload", module);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, "cuModuleUnload", module);
  EXPECT_CUDA(CUDA_ERROR_INVALID_IMAGE, "cuModuleLoadData", &module, static_cast<const void*>("nonsense"));
  ASSERT_OK("cuModuleLoadData", &module,
            static_cast<const void*>("\x7f"
                                     "ELF, opaque"));
  EXPECT_CUDA(CUDA_SUCCESS, "cuModuleGetFunction", &function, module, "anything");
}

TEST_F(LibcudaTest, BadLaunchesAreRefused) {
  const CUfunction busy = busy_kernel();
  uint64_t microseconds = 1;
  void* parameters[] = {&microseconds};
  const auto launch = [&](unsigned grid, unsigned block, unsigned shared) {
    return call("cuLaunchKernel", busy, grid, 1u, 1u, block, 1u, 1u, shared, CUstream{nullptr},
                static_cast<void**>(parameters), static_cast<void**>(nullptr));
  };
  EXPECT_EQ(launch(1, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(launch(0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 49 << 10), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK("cuFuncSetAttribute", busy, 8, 64 << 10);
  EXPECT_EQ(launch(1, 1, 49 << 10), CUDA_SUCCESS);
}

void* resolve(const char* name, int version, uint64_t flags, int& status) {
  void* function = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, "cuGetProcAddress_v2", name, &function, version, flags, &status);
  return function;
}

TEST_F(LibcudaTest, EntryPointsAreFoundByVersionAndStream) {
  int status = -1;
  const auto exported = [](const char* name) { return dlsym(library(), name); };
  EXPECT_EQ(resolve("cuMemcpyHtoD", 12040, 0, status), exported("cuMemcpyHtoD_v2"));
  EXPECT_EQ(resolve("cuMemcpyHtoD", 12040, kProcAddressLegacy, status), exported("cuMemcpyHtoD_v2"));
  EXPECT_EQ(resolve("cuMemcpyHtoD", 12040, kProcAddressPerThread, status), exported("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(resolve("cuMemcpyHtoD", 5000, kProcAddressPerThread, status), exported("cuMemcpyHtoD_v2"));
  EXPECT_EQ(resolve("cuLaunchKernel", 12040, kProcAddressPerThread, status), exported("cuLaunchKernel_ptsz"));
  EXPECT_EQ(resolve("cuCtxCreate", 3020, 0, status), exported("cuCtxCreate_v2"));
  EXPECT_EQ(resolve("cuCtxCreate", 11040, 0, status), exported("cuCtxCreate_v3"));
  EXPECT_EQ(resolve("cuCtxCreate", 13000, 0, status), exported("cuCtxCreate_v3"))
      << "this driver is CUDA 12.4";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(resolve("cuMemAllocAsync", 11010, 0, status), nullptr);
  EXPECT_EQ(status, 2) << "there, but newer than asked for";
  EXPECT_EQ(resolve("cuNothing", 12040, 0, status), nullptr);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(resolve("cuStreamGetDevice", 13000, 0, status), nullptr) << "of CUDA 12.8";
  void* function = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuGetProcAddress_v2", "cuInit", &function, 12000, uint64_t{3},
              &status);
}

TEST_F(LibcudaTest, EveryEntryOfTheTableIsExported) {
  int driver = 0;
  ASSERT_OK("cuDriverGetVersion", &driver);
#define X(name, exported, version, form) \
  EXPECT_EQ(dlsym(library(), #exported) != nullptr, version <= driver) << #exported;
#include "emulator/cuda/driver_symbols.inc"
#undef X
}

TEST_F(LibcudaTest, ManagedMemoryIsTheHostsToo) {
  CUdeviceptr address = 0;
  ASSERT_OK("cuMemAllocManaged", &address, kMebi, 1u);
  reinterpret_cast<uint8_t*>(address)[5] = 42;
  uint8_t byte = 0;
  ASSERT_OK("cuMemcpyDtoH_v2", static_cast<void*>(&byte), address + 5, size_t{1});
  EXPECT_EQ(byte, 42);
  unsigned managed = 0;
  ASSERT_OK("cuPointerGetAttribute", static_cast<void*>(&managed), 8, address);
  EXPECT_EQ(managed, 1u);
  ASSERT_OK("cuMemFree_v2", address);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemFree_v2", address);
}

TEST_F(LibcudaTest, PrivateTablesAreNotThere) {
  const CUuuid id = {{0x6b, 0xd5, 0xfb, 0x6c}};
  const void* table = nullptr;
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, "cuGetExportTable", &table, &id);
}

TEST_F(LibcudaTest, AChildOfAForkCannotUseTheDriver) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    _exit(call("cuDeviceGetCount", &count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// Not a test of its own: the process that the next test kills.
TEST(LibcudaHolder, DISABLED_HoldsMemoryUntilKilled) {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  ASSERT_OK("cuInit", 0u);
  ASSERT_OK("cuCtxCreate_v2", &context, 0u, CUdevice{0});
  ASSERT_OK("cuMemAlloc_v2", &address, 4096 * kMebi);
  ASSERT_EQ(write(STDERR_FILENO, "r", 1), 1);
  for (;;) pause();
}

TEST_F(LibcudaTest, AKilledProcessGivesItsMemoryBack) {
  const size_t before = free_bytes();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    execl("/proc/self/exe", "libcuda_test", "--gtest_filter=LibcudaHolder.*",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_EQ(free_bytes(), before - (4096 + 130) * kMebi);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  EXPECT_EQ(free_bytes(), before);
}

// What threads allocate and free adds up, and no two get the same bytes.
TEST_F(LibcudaTest, ThreadsAllocateAtOnce) {
  const size_t before = free_bytes();
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      EXPECT_CUDA(CUDA_SUCCESS, "cuCtxSetCurrent", context_);
      for (unsigned i = 0; i < 200; ++i) {
        CUdeviceptr address = 0;
        const size_t bytes = size_t{1} << ((seed * 7 + i * 5) % 23);
        EXPECT_CUDA(CUDA_SUCCESS, "cuMemAlloc_v2", &address, bytes);
        EXPECT_CUDA(CUDA_SUCCESS, "cuMemsetD8_v2", address, static_cast<unsigned char>(seed + 1), bytes);
        unsigned char last = 0;
        EXPECT_CUDA(CUDA_SUCCESS, "cuMemcpyDtoH_v2", static_cast<void*>(&last), address + bytes - 1,
                    size_t{1});
        EXPECT_EQ(last, seed + 1);
        EXPECT_CUDA(CUDA_SUCCESS, "cuMemFree_v2", address);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(free_bytes(), before);
}

}  // namespace
}  // namespace tranche::emulator::cuda
