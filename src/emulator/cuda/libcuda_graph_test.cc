// Graphs, captures, faults, green contexts, limits of contexts.

#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "emulator/cuda/libcuda_fixture.h"

namespace tranche::emulator::cuda {
namespace {

class LibcudaGraphTest : public LibcudaTest {
 protected:
  void SetUp() override {
    LibcudaTest::SetUp();
    ASSERT_OK("cuStreamCreate", &stream_, kStreamNonBlocking);
  }
  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_CUDA(CUDA_SUCCESS, "cuStreamDestroy_v2", stream_);
    }
    LibcudaTest::TearDown();
  }
  CUgraphExec executable(CUgraph graph) {
    CUgraphExec made = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, "cuGraphInstantiateWithFlags", &made, graph, 0ull);
    return made;
  }
  uint32_t word(CUdeviceptr address) {
    uint32_t value = 0;
    EXPECT_CUDA(CUDA_SUCCESS, "cuMemcpyDtoH_v2", static_cast<void*>(&value), address, sizeof value);
    return value;
  }
  CUstream stream_ = nullptr;
};

TEST_F(LibcudaGraphTest, ACaptureDoesNothingUntilItIsLaunched) {
  const CUdeviceptr a = allocate(kMebi), b = allocate(kMebi);
  const CUfunction busy = busy_kernel();
  static std::atomic<int> called{0};
  called = 0;
  const CUhostFn count = [](void*) { called.fetch_add(1); };
  ASSERT_OK("cuMemsetD32_v2", a, 1u, size_t{4});
  ASSERT_OK("cuMemsetD32_v2", b, 1u, size_t{4});
  ASSERT_OK("cuStreamBeginCapture_v2", stream_, 0);
  ASSERT_OK("cuMemsetD32Async", a, 42u, size_t{4}, stream_);
  ASSERT_OK("cuMemcpyDtoDAsync_v2", b, a, size_t{16}, stream_);
  ASSERT_EQ(launch_busy(busy, 100, stream_), CUDA_SUCCESS);
  ASSERT_OK("cuLaunchHostFunc", stream_, count, static_cast<void*>(nullptr));
  int status = 0;
  ASSERT_OK("cuStreamIsCapturing", stream_, &status);
  EXPECT_EQ(status, 1);
  CUgraph graph = nullptr;
  ASSERT_OK("cuStreamEndCapture", stream_, &graph);
  EXPECT_EQ(word(a), 1u);
  EXPECT_EQ(called, 0);
  size_t nodes = 0;
  ASSERT_OK("cuGraphGetNodes", graph, static_cast<CUgraphNode*>(nullptr), &nodes);
  EXPECT_EQ(nodes, 4u);
  const CUgraphExec exec = executable(graph);
  ASSERT_OK("cuGraphDestroy", graph);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_OK("cuGraphLaunch", exec, stream_);
    ASSERT_OK("cuStreamSynchronize", stream_);
    EXPECT_EQ(called, i);
  }
  EXPECT_EQ(word(b), 42u);
  ASSERT_OK("cuGraphExecDestroy", exec);
}

TEST_F(LibcudaGraphTest, WhatACaptureCannotHoldMakesItInvalid) {
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  ASSERT_OK("cuStreamBeginCapture_v2", stream_, 0);
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamSynchronize", stream_);
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamEndCapture", stream_, &graph);
  ASSERT_OK("cuStreamBeginCapture_v2", stream_, 0);
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemAlloc_v2", &address, kMebi);
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamEndCapture", stream_, &graph);
  ASSERT_OK("cuStreamBeginCapture_v2", stream_, 2);
  EXPECT_CUDA(CUDA_SUCCESS, "cuMemAlloc_v2", &address, kMebi) << "allowed in a relaxed capture";
  EXPECT_CUDA(CUDA_SUCCESS, "cuStreamEndCapture", stream_, &graph);
  ASSERT_OK("cuGraphDestroy", graph);
}

TEST_F(LibcudaGraphTest, ACaptureForksAndJoinsByEvents) {
  CUstream other = nullptr;
  CUevent fork = nullptr, join = nullptr;
  const CUdeviceptr a = allocate(kMebi);
  ASSERT_OK("cuStreamCreate", &other, kStreamNonBlocking);
  ASSERT_OK("cuEventCreate", &fork, kEventDisableTiming);
  ASSERT_OK("cuEventCreate", &join, kEventDisableTiming);
  ASSERT_OK("cuStreamBeginCapture_v2", stream_, 1);
  ASSERT_OK("cuMemsetD32Async", a, 1u, size_t{1}, stream_);
  ASSERT_OK("cuEventRecord", fork, stream_);
  ASSERT_OK("cuStreamWaitEvent", other, fork, 0u);
  ASSERT_OK("cuMemsetD32Async", a + 4, 2u, size_t{1}, other);
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "cuStreamEndCapture", other, &graph);
  ASSERT_OK("cuEventRecord", join, other);
  ASSERT_OK("cuStreamWaitEvent", stream_, join, 0u);
  ASSERT_OK("cuStreamEndCapture", stream_, &graph);
  size_t edges = 0;
  ASSERT_OK("cuGraphGetEdges", graph, static_cast<CUgraphNode*>(nullptr), static_cast<CUgraphNode*>(nullptr),
            &edges);
  EXPECT_EQ(edges, 1u);
  const CUgraphExec exec = executable(graph);
  ASSERT_OK("cuGraphLaunch", exec, stream_);
  ASSERT_OK("cuStreamSynchronize", stream_);
  EXPECT_EQ(word(a + 4), 2u);

  ASSERT_OK("cuStreamBeginCapture_v2", stream_, 1);
  ASSERT_OK("cuEventRecord", fork, stream_);
  ASSERT_OK("cuStreamWaitEvent", other, fork, 0u);
  ASSERT_OK("cuMemsetD32Async", a, 1u, size_t{1}, other);
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "cuStreamEndCapture", stream_, &graph);
}

// Reference 2.1: a graph's memory is reserved at its first launch and kept until it is trimmed.
TEST_F(LibcudaGraphTest, MemoryNodesTakeMemoryAtTheFirstLaunch) {
  const size_t before = free_bytes();
  CUgraph graph = nullptr;
  ASSERT_OK("cuGraphCreate", &graph, 0u);
  CUDA_MEM_ALLOC_NODE_PARAMS request{};
  request.pool.allocation_type = kAllocationPinned;
  request.pool.location = {kLocationDevice, 0};
  request.bytes = 20 * kMebi;
  CUgraphNode allocation = nullptr, fill = nullptr, release = nullptr;
  ASSERT_OK("cuGraphAddMemAllocNode", &allocation, graph, static_cast<const CUgraphNode*>(nullptr), size_t{0},
            &request);
  ASSERT_NE(request.address, 0u);
  const CUDA_MEMSET_NODE_PARAMS set{request.address, 0, 9, 1, 100, 1};
  ASSERT_OK("cuGraphAddMemsetNode", &fill, graph, static_cast<const CUgraphNode*>(&allocation), size_t{1},
            &set, context_);
  ASSERT_OK("cuGraphAddMemFreeNode", &release, graph, static_cast<const CUgraphNode*>(&fill), size_t{1},
            request.address);
  const CUgraphExec exec = executable(graph);
  EXPECT_EQ(free_bytes(), before);
  ASSERT_OK("cuGraphLaunch", exec, stream_);
  ASSERT_OK("cuStreamSynchronize", stream_);
  EXPECT_EQ(free_bytes(), before - 20 * kMebi) << "kept for the next launch";
  ASSERT_OK("cuGraphLaunch", exec, stream_);
  EXPECT_EQ(free_bytes(), before - 20 * kMebi);
  uint64_t reserved = 0, used = 1;
  ASSERT_OK("cuDeviceGetGraphMemAttribute", CUdevice{0}, 2, static_cast<void*>(&reserved));
  ASSERT_OK("cuDeviceGetGraphMemAttribute", CUdevice{0}, 0, static_cast<void*>(&used));
  EXPECT_EQ(reserved, 20 * kMebi);
  EXPECT_EQ(used, 0u);
  ASSERT_OK("cuDeviceGraphMemTrim", CUdevice{0});
  EXPECT_EQ(free_bytes(), before);
  ASSERT_OK("cuGraphExecDestroy", exec);
  ASSERT_OK("cuGraphDestroy", graph);
}

TEST_F(LibcudaGraphTest, AnExecutableTakesNewParametersOfTheSameShape) {
  const CUdeviceptr a = allocate(kMebi);
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_OK("cuGraphCreate", &graph, 0u);
  CUDA_MEMSET_NODE_PARAMS set{a, 0, 3, 4, 1, 1};
  ASSERT_OK("cuGraphAddMemsetNode", &node, graph, static_cast<const CUgraphNode*>(nullptr), size_t{0},
            static_cast<const CUDA_MEMSET_NODE_PARAMS*>(&set), context_);
  const CUgraphExec exec = executable(graph);
  set.value = 4;
  ASSERT_OK("cuGraphMemsetNodeSetParams", node, static_cast<const CUDA_MEMSET_NODE_PARAMS*>(&set));
  ASSERT_OK("cuGraphLaunch", exec, stream_);
  ASSERT_OK("cuStreamSynchronize", stream_);
  EXPECT_EQ(word(a), 3u) << "an executable is a copy";
  CUgraphExecUpdateResultInfo info{};
  ASSERT_OK("cuGraphExecUpdate_v2", exec, graph, &info);
  ASSERT_OK("cuGraphLaunch", exec, stream_);
  ASSERT_OK("cuStreamSynchronize", stream_);
  EXPECT_EQ(word(a), 4u);
  CUgraphNode empty = nullptr;
  ASSERT_OK("cuGraphAddEmptyNode", &empty, graph, static_cast<const CUgraphNode*>(&node), size_t{1});
  EXPECT_CUDA(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "cuGraphExecUpdate_v2", exec, graph, &info);
  EXPECT_EQ(info.result, 2) << "another topology";
  ASSERT_OK("cuGraphAddDependencies", graph, static_cast<const CUgraphNode*>(&empty),
            static_cast<const CUgraphNode*>(&node), size_t{1});
  CUgraphExec circular = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuGraphInstantiateWithFlags", &circular, graph, 0ull);
}

// Reference 5.3: a fault of a kernel is sticky for its context, and only for it.
TEST_F(LibcudaGraphTest, AFaultIsStickyForItsContext) {
  CUcontext faulty = nullptr;
  ASSERT_OK("cuCtxCreate_v2", &faulty, 0u, CUdevice{0});
  const CUfunction fault = kernel("tranche_fault");
  const CUdeviceptr address = allocate(kMebi);
  ASSERT_EQ(launch_busy(fault, CUDA_ERROR_ILLEGAL_ADDRESS, nullptr), CUDA_SUCCESS)
      << "launches are asynchronous";
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, "cuCtxSynchronize");
  CUdeviceptr other = 0;
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, "cuMemAlloc_v2", &other, kMebi);
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, "cuMemFree_v2", address);
  EXPECT_EQ(launch_busy(fault, 0, nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  ASSERT_OK("cuCtxSetCurrent", context_);
  EXPECT_CUDA(CUDA_SUCCESS, "cuMemAlloc_v2", &other, kMebi) << "the other context goes on";
  ASSERT_OK("cuCtxDestroy_v2", faulty);
}

TEST_F(LibcudaGraphTest, LimitsOfAContextTakeMemory) {
  const size_t before = free_bytes();
  ASSERT_OK("cuCtxSetLimit", 2, size_t{108} << 20);  // the heap of malloc, 8 MiB unless set
  EXPECT_EQ(free_bytes(), before - 100 * kMebi);
  ASSERT_OK("cuCtxSetLimit", 0, size_t{2048});  // stacks: T4 has 40 multiprocessors of 1024 threads
  EXPECT_EQ(free_bytes(), before - 140 * kMebi);
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, "cuCtxSetLimit", 0, size_t{1} << 20);
  ASSERT_OK("cuCtxSetLimit", 0, size_t{1024});
  ASSERT_OK("cuCtxSetLimit", 2, size_t{8} << 20);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(LibcudaGraphTest, GreenContextsArePartsOfTheGpu) {
  CUdevResource whole{}, rest{};
  ASSERT_OK("cuDeviceGetDevResource", CUdevice{0}, &whole, 1);
  EXPECT_EQ(whole.multiprocessors.count, 40u);
  std::array<CUdevResource, 4> parts{};
  unsigned count = 4;
  ASSERT_OK("cuDevSmResourceSplitByCount", parts.data(), &count, static_cast<const CUdevResource*>(&whole),
            &rest, 0u, 9u);
  EXPECT_EQ(count, 4u);
  EXPECT_EQ(parts[0].multiprocessors.count, 10u) << "two at a time";
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  ASSERT_OK("cuDevResourceGenerateDesc", &description, parts.data(), 1u);
  ASSERT_OK("cuGreenCtxCreate", &green, description, CUdevice{0}, 1u);
  ASSERT_OK("cuCtxFromGreenCtx", &context, green);
  CUdevResource own{};
  ASSERT_OK("cuCtxGetDevResource", context, &own, 1);
  EXPECT_EQ(own.multiprocessors.count, 10u);
  ASSERT_OK("cuGreenCtxDestroy", green);
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, "cuGreenCtxDestroy", green);
}

TEST_F(LibcudaGraphTest, AWordOfMemoryIsWrittenAndWaitedFor) {
  const CUdeviceptr flag = allocate(kMebi);
  ASSERT_OK("cuMemsetD32_v2", flag, 0u, size_t{1});
  ASSERT_OK("cuStreamWriteValue32_v2", stream_, flag, uint32_t{5}, 0u);
  ASSERT_OK("cuStreamWaitValue32_v2", stream_, flag, uint32_t{4}, 0u);  // at least 4
  ASSERT_OK("cuStreamWaitValue32_v2", stream_, flag, uint32_t{5}, 1u);
  EXPECT_EQ(word(flag), 5u);
}

// The programming guide on lazy loading: code takes device memory when a function is asked for by its name.
// One that was enumerated may be loaded in part; here it is not at all, until its first launch.
TEST_F(LibcudaGraphTest, CodeIsLoadedLazily) {
  const size_t before = free_bytes();
  CUmodule module = nullptr;
  CUfunction busy = nullptr;
  ASSERT_OK("cuModuleLoadData", &module, static_cast<const void*>(kPtx));
  ASSERT_OK("cuModuleEnumerateFunctions", &busy, 1u, module);
  EXPECT_EQ(free_bytes(), before);
  int loaded = 1;
  ASSERT_OK("cuFuncIsLoaded", &loaded, busy);
  EXPECT_EQ(loaded, 0);
  ASSERT_EQ(launch_busy(busy, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), before - 2 * kMebi);
  busy_kernel();
  EXPECT_EQ(free_bytes(), before - 4 * kMebi) << "of another module, asked for by its name";
  ASSERT_OK("cuFuncIsLoaded", &loaded, busy);
  EXPECT_EQ(loaded, 1);
}

}  // namespace
}  // namespace tranche::emulator::cuda
