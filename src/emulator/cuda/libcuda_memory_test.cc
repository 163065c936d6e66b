// Device memory beyond cuMemAlloc: pools, virtual memory, arrays, managed memory, other processes.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <numeric>
#include <vector>

#include "emulator/cuda/libcuda_fixture.h"

namespace tranche::emulator::cuda {
namespace {

using LibcudaMemoryTest = LibcudaTest;

CUmemAllocationProp on_device(int handle_types) {
  CUmemAllocationProp properties{};
  properties.type = kAllocationPinned;
  properties.handle_types = handle_types;
  properties.location = {kLocationDevice, 0};
  return properties;
}

void put(CUdeviceptr address, const char* text) {
  ASSERT_OK("cuMemcpyHtoD_v2", address, static_cast<const void*>(text), std::strlen(text) + 1);
}
std::string get(CUdeviceptr address) {
  std::array<char, 64> text{};
  EXPECT_CUDA(CUDA_SUCCESS, "cuMemcpyDtoH_v2", static_cast<void*>(text.data()), address, size_t{16});
  return text.data();
}

uint64_t attribute(CUmemoryPool pool, int number) {
  uint64_t value = 0;
  EXPECT_CUDA(CUDA_SUCCESS, "cuMemPoolGetAttribute", pool, number, static_cast<void*>(&value));
  return value;
}

TEST_F(LibcudaMemoryTest, APoolReservesChunksAndGivesThemBackAtASynchronisation) {
  const size_t before = free_bytes();
  CUmemoryPool pool = nullptr;
  ASSERT_OK("cuDeviceGetDefaultMemPool", &pool, CUdevice{0});
  CUdeviceptr a = 0, b = 0;
  ASSERT_OK("cuMemAllocAsync", &a, size_t{1000}, CUstream{nullptr});
  EXPECT_EQ(attribute(pool, 5), 32 * kMebi);
  EXPECT_EQ(attribute(pool, 7), 1024u);
  EXPECT_EQ(free_bytes(), before - 32 * kMebi);
  put(a, "first owner");
  ASSERT_OK("cuMemFreeAsync", a, CUstream{nullptr});
  ASSERT_OK("cuMemAllocAsync", &b, size_t{900}, CUstream{nullptr});
  EXPECT_EQ(b, a) << "what a stream frees it may use at once";
  EXPECT_EQ(get(b), "first owner") << "dirty";
  ASSERT_OK("cuMemFreeAsync", b, CUstream{nullptr});
  EXPECT_EQ(free_bytes(), before - 32 * kMebi) << "kept until a synchronisation";
  ASSERT_OK("cuCtxSynchronize");
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(attribute(pool, 5), 0u);
  EXPECT_EQ(attribute(pool, 6), 32 * kMebi) << "the most that was reserved";
}

TEST_F(LibcudaMemoryTest, AReleaseThresholdKeepsMemoryUntilItIsTrimmed) {
  const size_t before = free_bytes();
  CUmemPoolProps properties{};
  properties.allocation_type = kAllocationPinned;
  properties.location = {kLocationDevice, 0};
  CUmemoryPool pool = nullptr;
  ASSERT_OK("cuMemPoolCreate", &pool, static_cast<const CUmemPoolProps*>(&properties));
  uint64_t all = UINT64_MAX;
  ASSERT_OK("cuMemPoolSetAttribute", pool, 4, static_cast<void*>(&all));
  CUdeviceptr address = 0;
  ASSERT_OK("cuMemAllocFromPoolAsync", &address, 100 * kMebi, pool, CUstream{nullptr});
  ASSERT_OK("cuMemFree_v2", address);
  ASSERT_OK("cuCtxSynchronize");
  EXPECT_EQ(free_bytes(), before - 100 * kMebi);
  ASSERT_OK("cuMemPoolTrimTo", pool, size_t{0});
  EXPECT_EQ(free_bytes(), before);
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, "cuMemAllocFromPoolAsync", &address, size_t{1} << 40, pool,
              CUstream{nullptr});
  ASSERT_OK("cuMemPoolDestroy", pool);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemPoolDestroy", pool);
}

TEST_F(LibcudaMemoryTest, VirtualMemoryGoesAfterTheLastUnmapOrRelease) {
  const size_t before = free_bytes();
  const CUmemAllocationProp properties = on_device(kHandleNone);
  size_t granularity = 0;
  ASSERT_OK("cuMemGetAllocationGranularity", &granularity, &properties, 0);
  EXPECT_EQ(granularity, 2 * kMebi);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemCreate", &handle, size_t{1000}, &properties, 0ull);
  ASSERT_OK("cuMemCreate", &handle, 4 * kMebi, &properties, 0ull);
  EXPECT_EQ(free_bytes(), before - 4 * kMebi);
  CUdeviceptr address = 0;
  ASSERT_OK("cuMemAddressReserve", &address, 8 * kMebi, size_t{0}, CUdeviceptr{0}, 0ull);
  EXPECT_EQ(free_bytes(), before - 4 * kMebi) << "addresses cost nothing";
  ASSERT_OK("cuMemMap", address, 4 * kMebi, size_t{0}, handle, 0ull);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemsetD8_v2", address, static_cast<unsigned char>(1), size_t{1})
      << "no access yet";
  const CUmemAccessDesc access{{kLocationDevice, 0}, kAccessReadWrite};
  ASSERT_OK("cuMemSetAccess", address, 4 * kMebi, &access, size_t{1});
  put(address + 2 * kMebi, "mapped");
  ASSERT_OK("cuMemRelease", handle);
  EXPECT_EQ(get(address + 2 * kMebi), "mapped") << "the mapping holds it";
  EXPECT_EQ(free_bytes(), before - 4 * kMebi);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemAddressFree", address, 8 * kMebi);
  ASSERT_OK("cuMemUnmap", address, 4 * kMebi);
  EXPECT_EQ(free_bytes(), before);
  ASSERT_OK("cuMemAddressFree", address, 8 * kMebi);
}

TEST_F(LibcudaMemoryTest, ACopyCrossesFromOneHandleToTheNext) {
  const CUmemAllocationProp properties = on_device(kHandleNone);
  const CUmemAccessDesc access{{kLocationDevice, 0}, kAccessReadWrite};
  CUdeviceptr address = 0;
  ASSERT_OK("cuMemAddressReserve", &address, 4 * kMebi, size_t{0}, CUdeviceptr{0}, 0ull);
  for (size_t i = 0; i < 2; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_OK("cuMemCreate", &handle, 2 * kMebi, &properties, 0ull);
    ASSERT_OK("cuMemMap", address + i * 2 * kMebi, 2 * kMebi, size_t{0}, handle, 0ull);
    ASSERT_OK("cuMemRelease", handle);
  }
  ASSERT_OK("cuMemSetAccess", address, 4 * kMebi, &access, size_t{1});
  put(address + 2 * kMebi - 3, "across");
  EXPECT_EQ(get(address + 2 * kMebi - 3), "across");
  EXPECT_EQ(get(address + 2 * kMebi), "oss");
  ASSERT_OK("cuMemUnmap", address, 4 * kMebi);
  ASSERT_OK("cuMemAddressFree", address, 4 * kMebi);
}

// Design 8: the bytes of a large allocation are real in its first and last page only.
TEST_F(LibcudaMemoryTest, LargeAllocationsAreRealAtTheirEndsOnly) {
  const CUdeviceptr large = allocate(1024 * kMebi);
  ASSERT_OK("cuMemsetD8_v2", large, static_cast<unsigned char>(7), 1024 * kMebi);
  put(large + 512 * kMebi, "lost");
  put(large + 1024 * kMebi - 16, "kept");
  EXPECT_EQ(get(large + 1024 * kMebi - 16), "kept");
  EXPECT_NE(get(large + 512 * kMebi), "lost");
  unsigned char byte = 0;
  ASSERT_OK("cuMemcpyDtoH_v2", static_cast<void*>(&byte), large, size_t{1});
  EXPECT_EQ(byte, 7);
  ASSERT_OK("cuMemFree_v2", large);
}

// A program that takes a device pointer for its own is killed, as on hardware.
TEST_F(LibcudaMemoryTest, TheCpuCannotTouchDeviceMemory) {
  const CUdeviceptr address = allocate(kMebi);
  EXPECT_DEATH({ *reinterpret_cast<volatile char*>(address) = 1; }, "");
}

TEST_F(LibcudaMemoryTest, ArraysAreChargedAndCopied) {
  const size_t before = free_bytes();
  const CUDA_ARRAY3D_DESCRIPTOR description{100, 20, 4, 0x20, 1, 0};  // float
  CUarray array = nullptr;
  ASSERT_OK("cuArray3DCreate_v2", &array, &description);
  EXPECT_EQ(free_bytes(), before - 2 * kMebi);
  std::vector<float> source(100 * 20 * 4), target(source.size());
  std::iota(source.begin(), source.end(), 0.0f);
  CUDA_MEMCPY3D request{};
  request.source_type = kMemoryHost;
  request.source_host = source.data();
  request.source_pitch = 400;
  request.source_height = 20;
  request.target_type = kMemoryArray;
  request.target_array = array;
  request.width = 400;
  request.height = 20;
  request.depth = 4;
  ASSERT_OK("cuMemcpy3D_v2", static_cast<const CUDA_MEMCPY3D*>(&request));
  std::array<float, 100> row{};
  CUDA_MEMCPY3D back{};
  back.source_type = kMemoryArray;
  back.source_array = array;
  back.source_y = 3;
  back.source_z = 2;
  back.target_type = kMemoryHost;
  back.target_host = row.data();
  back.width = 400;
  back.height = 1;
  back.depth = 1;
  ASSERT_OK("cuMemcpy3D_v2", static_cast<const CUDA_MEMCPY3D*>(&back));
  EXPECT_EQ(row[5], source[(2 * 20 + 3) * 100 + 5]);
  back.source_y = 20;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemcpy3D_v2", static_cast<const CUDA_MEMCPY3D*>(&back));
  ASSERT_OK("cuArrayDestroy", array);
  EXPECT_EQ(free_bytes(), before);

  CUmipmappedArray mipmapped = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR levels{1024, 1024, 0, 0x01, 4, 0};
  ASSERT_OK("cuMipmappedArrayCreate", &mipmapped, &levels, 3u);
  EXPECT_EQ(free_bytes(), before - 6 * kMebi) << "4 + 1 + 1/4 MiB in pages";
  CUarray level = nullptr;
  ASSERT_OK("cuMipmappedArrayGetLevel", &level, mipmapped, 2u);
  CUDA_ARRAY_DESCRIPTOR small{};
  ASSERT_OK("cuArrayGetDescriptor_v2", &small, level);
  EXPECT_EQ(small.width, 256u);
  ASSERT_OK("cuMipmappedArrayDestroy", mipmapped);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(LibcudaMemoryTest, ManagedMemoryIsChargedWhileItIsOnTheGpu) {
  const size_t before = free_bytes();
  CUdeviceptr address = 0;
  ASSERT_OK("cuMemAllocManaged", &address, 10 * kMebi, 1u);
  EXPECT_EQ(free_bytes(), before) << "on the host until a GPU uses it";
  ASSERT_OK("cuMemPrefetchAsync", address, 10 * kMebi, CUdevice{0}, CUstream{nullptr});
  EXPECT_EQ(free_bytes(), before - 10 * kMebi);
  int where = 0;
  ASSERT_OK("cuMemRangeGetAttribute", static_cast<void*>(&where), sizeof where, 4, address, 10 * kMebi);
  EXPECT_EQ(where, 0);
  ASSERT_OK("cuMemPrefetchAsync", address, 10 * kMebi, CUdevice{-1}, CUstream{nullptr});
  EXPECT_EQ(free_bytes(), before);
  const CUfunction plain = kernel("plain");
  unsigned count = 1;
  void* parameters[] = {&address, &count};
  ASSERT_OK("cuLaunchKernel", plain, 1u, 1u, 1u, 32u, 1u, 1u, 0u, CUstream{nullptr},
            static_cast<void**>(parameters), static_cast<void**>(nullptr));
  EXPECT_EQ(free_bytes(), before - 12 * kMebi) << "a kernel was given it; its code takes a page";
  ASSERT_OK("cuMemFree_v2", address);
  EXPECT_EQ(free_bytes(), before - 2 * kMebi);
}

// Not a test of its own: opens what another process exports, for the next test. Standard input is a socket.
TEST(LibcudaPeer, DISABLED_OpensWhatItIsSent) {
  CUcontext context = nullptr;
  ASSERT_OK("cuInit", 0u);
  ASSERT_OK("cuCtxCreate_v2", &context, 0u, CUdevice{0});
  CUipcMemHandle handle;
  ASSERT_EQ(read(STDIN_FILENO, &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  size_t before = 0, after = 0, total = 0;
  ASSERT_OK("cuMemGetInfo_v2", &before, &total);
  CUdeviceptr address = 0, again = 0;
  ASSERT_OK("cuIpcOpenMemHandle_v2", &address, handle, 1u);
  ASSERT_OK("cuIpcOpenMemHandle_v2", &again, handle, 1u);
  EXPECT_EQ(address, again);
  ASSERT_OK("cuMemGetInfo_v2", &after, &total);
  EXPECT_EQ(before, after) << "the exporter pays";
  EXPECT_EQ(get(address + 5), "from there");
  put(address + 5, "from here");
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuMemFree_v2", address);
  ASSERT_OK("cuIpcCloseMemHandle", address);
  ASSERT_OK("cuIpcCloseMemHandle", address);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuIpcCloseMemHandle", address);
}

TEST_F(LibcudaMemoryTest, MemoryIsSharedWithAnotherProcess) {
  const CUdeviceptr address = allocate(3 * kMebi);
  put(address + 5, "from there");
  CUipcMemHandle handle;
  ASSERT_OK("cuIpcGetMemHandle", &handle, address);
  CUdeviceptr own = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, "cuIpcOpenMemHandle_v2", &own, handle, 1u)
      << "not in the same process";
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDIN_FILENO);
    execl("/proc/self/exe", "libcuda_test", "--gtest_filter=LibcudaPeer.*", "--gtest_also_run_disabled_tests",
          nullptr);
    _exit(127);
  }
  close(ends[1]);
  ASSERT_EQ(write(ends[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  int status = -1;
  waitpid(child, &status, 0);
  close(ends[0]);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(address + 5), "from here");
}

TEST_F(LibcudaMemoryTest, AFileOfMemoryIsImportedOnceMore) {
  const CUmemAllocationProp properties = on_device(kHandleFile);
  const CUmemAccessDesc access{{kLocationDevice, 0}, kAccessReadWrite};
  CUmemGenericAllocationHandle handle = 0, imported = 0;
  ASSERT_OK("cuMemCreate", &handle, 2 * kMebi, &properties, 0ull);
  const size_t before = free_bytes();
  int file = -1;
  ASSERT_OK("cuMemExportToShareableHandle", static_cast<void*>(&file), handle, kHandleFile, 0ull);
  ASSERT_OK("cuMemImportFromShareableHandle", &imported, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
            kHandleFile);
  EXPECT_EQ(free_bytes(), before) << "an import is not charged";
  CUdeviceptr address = 0;
  ASSERT_OK("cuMemAddressReserve", &address, 4 * kMebi, size_t{0}, CUdeviceptr{0}, 0ull);
  ASSERT_OK("cuMemMap", address, 2 * kMebi, size_t{0}, handle, 0ull);
  ASSERT_OK("cuMemMap", address + 2 * kMebi, 2 * kMebi, size_t{0}, imported, 0ull);
  ASSERT_OK("cuMemSetAccess", address, 4 * kMebi, &access, size_t{1});
  put(address + 100, "one memory");
  EXPECT_EQ(get(address + 2 * kMebi + 100), "one memory");
  ASSERT_OK("cuMemUnmap", address, 4 * kMebi);
  ASSERT_OK("cuMemAddressFree", address, 4 * kMebi);
  ASSERT_OK("cuMemRelease", imported);
  ASSERT_OK("cuMemRelease", handle);
  EXPECT_EQ(free_bytes(), before + 2 * kMebi);
  close(file);
}

// Not tests of their own: the next one lets them run, one after the other, in processes of their own.
TEST(LibcudaOwner, DISABLED_LeavesBytesAndIsKilled) {
  CUcontext context = nullptr;
  CUdeviceptr small = 0;
  ASSERT_OK("cuInit", 0u);
  ASSERT_OK("cuCtxCreate_v2", &context, 0u, CUdevice{0});
  ASSERT_OK("cuMemAlloc_v2", &small, 4 * kMebi);
  put(small, "a secret");
  put(small + 4 * kMebi - 16, "its end");
  raise(SIGKILL);
}

TEST(LibcudaOwner, DISABLED_FindsThem) {
  CUcontext context = nullptr;
  CUdeviceptr same = 0, large = 0;
  ASSERT_OK("cuInit", 0u);
  ASSERT_OK("cuCtxCreate_v2", &context, 0u, CUdevice{0});
  ASSERT_OK("cuMemAlloc_v2", &same, 4 * kMebi);
  EXPECT_EQ(get(same), "a secret");
  EXPECT_EQ(get(same + 4 * kMebi - 16), "its end");
  ASSERT_OK("cuMemAlloc_v2", &large, 512 * kMebi);
  EXPECT_EQ(get(large), "a secret") << "memory that this process never had";
  const CUmemAllocationProp properties = on_device(kHandleFile);
  const CUmemAccessDesc access{{kLocationDevice, 0}, kAccessReadWrite};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr mapped = 0;
  ASSERT_OK("cuMemCreate", &handle, 2 * kMebi, &properties, 0ull);
  ASSERT_OK("cuMemAddressReserve", &mapped, 2 * kMebi, size_t{0}, CUdeviceptr{0}, 0ull);
  ASSERT_OK("cuMemMap", mapped, 2 * kMebi, size_t{0}, handle, 0ull);
  ASSERT_OK("cuMemSetAccess", mapped, 2 * kMebi, &access, size_t{1});
  EXPECT_EQ(get(mapped), "a secret");
}

int run_owner(const char* test) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string filter = std::string("--gtest_filter=LibcudaOwner.DISABLED_") + test;
    execl("/proc/self/exe", "libcuda_test", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

// Design 8: memory is dirty with its last owner's bytes, however that ended; enforcement.md asks for it
// of 5.3.
TEST_F(LibcudaMemoryTest, FreshMemoryIsDirtyWithTheBytesOfAnotherKilledProcess) {
  const int killed = run_owner("LeavesBytesAndIsKilled");
  ASSERT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
  EXPECT_EQ(run_owner("FindsThem"), 0);
}

// What lives is nobody else's to see: not its memory, nor what it frees before it ends.
TEST_F(LibcudaMemoryTest, AnotherProcessFindsNothingOfOneThatLives) {
  const CUdeviceptr own = allocate(4 * kMebi);
  put(own, "still in use");
  ASSERT_TRUE(WIFSIGNALED(run_owner("LeavesBytesAndIsKilled")));
  EXPECT_EQ(run_owner("FindsThem"), 0);
  EXPECT_EQ(get(own), "still in use");
}

// Not a test of its own: exports memory, tells its file over the socket and is killed.
TEST(LibcudaMaker, DISABLED_ExportsMemory) {
  CUcontext context = nullptr;
  ASSERT_OK("cuInit", 0u);
  ASSERT_OK("cuCtxCreate_v2", &context, 0u, CUdevice{0});
  const CUmemAllocationProp properties = on_device(kHandleFile);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK("cuMemCreate", &handle, 64 * kMebi, &properties, 0ull);
  int file = -1;
  ASSERT_OK("cuMemExportToShareableHandle", static_cast<void*>(&file), handle, kHandleFile, 0ull);
  ASSERT_EQ(write(STDIN_FILENO, &file, sizeof file), static_cast<ssize_t>(sizeof file));
  char byte = 0;
  ASSERT_EQ(read(STDIN_FILENO, &byte, 1), 0);
}

TEST_F(LibcudaMemoryTest, ImportedMemoryOutlivesItsMakerAndIsChargedToItsLastHolder) {
  const size_t before = free_bytes();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDIN_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "libcuda_test", "--gtest_filter=LibcudaMaker.*",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  close(ends[1]);
  int number = -1;
  ASSERT_EQ(read(ends[0], &number, sizeof number), static_cast<ssize_t>(sizeof number));
  const std::string path = "/proc/" + std::to_string(child) + "/fd/" + std::to_string(number);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_OK("cuMemImportFromShareableHandle", &imported, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
            kHandleFile);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(free_bytes(), before - 64 * kMebi) << "the maker's context is gone, its memory is not";
  ASSERT_OK("cuMemRelease", imported);
  EXPECT_EQ(free_bytes(), before);
  close(file);
  close(ends[0]);
}

}  // namespace
}  // namespace tranche::emulator::cuda
