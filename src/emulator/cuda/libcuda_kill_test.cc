// Programs that die at any instant: real processes on the library that allocate, share, copy and launch, and
// are killed wherever they are, often inside a lock of the device model. TRANCHE_SEED replays a history,
// TRANCHE_LONG asks for all.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "emulator/cuda/libcuda_fixture.h"

namespace tranche::emulator::cuda {
namespace {

// Whatever takes memory or GPU time, and gives some of it back; `draw(n)` is one of 0 .. n-1.
class Worker {
 public:
  explicit Worker(uint64_t seed) : random_(seed) {
    call("cuModuleLoadData", &module_, static_cast<const void*>(kPtx));
    call("cuModuleGetFunction", &busy_, module_, "tranche_busy");
  }
  void step() {
    switch (draw(6)) {
      case 0:
        return allocate();
      case 1:
        return release();
      case 2:
        return launch();
      case 3:
        return share();
      case 4:
        return from_pool();
      default:
        return copy();
    }
  }

 private:
  uint64_t draw(uint64_t below) { return random_() % below; }
  void allocate() {
    CUdeviceptr address = 0;
    if (call("cuMemAlloc_v2", &address, size_t{1} << (9 + draw(22))) == CUDA_SUCCESS)
      blocks_.push_back(address);
    if (blocks_.size() > 50) release();
  }
  void release() {
    if (blocks_.empty()) return;
    call("cuMemFree_v2", blocks_.back());
    blocks_.pop_back();
  }
  void launch() {
    uint64_t microseconds = draw(2000);
    void* parameters[] = {&microseconds};
    call("cuLaunchKernel", busy_, 1u, 1u, 1u, 32u, 1u, 1u, 0u, CUstream{nullptr},
         static_cast<void**>(parameters), static_cast<void**>(nullptr));
  }
  // Memory that others could open, opened once more here.
  void share() {
    CUmemAllocationProp properties{};
    properties.type = kAllocationPinned;
    properties.handle_types = kHandleFile;
    properties.location = {kLocationDevice, 0};
    CUmemGenericAllocationHandle made = 0, opened = 0;
    int file = -1;
    if (call("cuMemCreate", &made, 2 * kMebi, static_cast<const CUmemAllocationProp*>(&properties), 0ull) !=
        0)
      return;
    call("cuMemExportToShareableHandle", static_cast<void*>(&file), made, kHandleFile, 0ull);
    call("cuMemImportFromShareableHandle", &opened, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
         kHandleFile);
    call("cuMemRelease", made);
    close(file);
    if (draw(2) == 0) call("cuMemRelease", opened);
  }
  void from_pool() {
    CUdeviceptr address = 0;
    if (call("cuMemAllocAsync", &address, size_t{1} << (9 + draw(18)), CUstream{nullptr}) != CUDA_SUCCESS)
      return;
    if (draw(4) != 0) call("cuMemFreeAsync", address, CUstream{nullptr});
  }
  void copy() {
    if (blocks_.empty()) return;
    std::array<char, 512> bytes{};
    call("cuMemcpyHtoD_v2", blocks_[draw(blocks_.size())], static_cast<const void*>(bytes.data()),
         bytes.size());
  }

  std::mt19937_64 random_;
  CUmodule module_ = nullptr;
  CUfunction busy_ = nullptr;
  std::vector<CUdeviceptr> blocks_;
};

// Not a test of its own: works until it is killed. TRANCHE_WORKER is its seed.
TEST(LibcudaWorker, DISABLED_WorksUntilItIsKilled) {
  CUcontext context = nullptr;
  call("cuInit", 0u);
  while (call("cuCtxCreate_v2", &context, 0u, CUdevice{0}) != CUDA_SUCCESS) usleep(1000);  // no room just now
  const char* const seed = std::getenv("TRANCHE_WORKER");
  Worker worker(seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10));
  for (;;) worker.step();
}

// Whether it has got as far as device memory.
bool is_at_work(pid_t worker) {
  std::ifstream maps("/proc/" + std::to_string(worker) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("tranche-memory:") != std::string::npos) return true;
  }
  return false;
}

using LibcudaKillTest = LibcudaTest;

TEST_F(LibcudaKillTest, ProgramsKilledAtRandomInstantsLeaveNothing) {
  const char* const chosen = std::getenv("TRANCHE_SEED");
  const uint64_t seed = chosen == nullptr ? 20261130 : std::strtoull(chosen, nullptr, 10);
  const int kills = std::getenv("TRANCHE_LONG") == nullptr ? 60 : 10'000;
  std::mt19937_64 random(seed);
  const size_t before = free_bytes();
  std::vector<pid_t> workers;
  int at_work = 0;
  for (int killed = 0; killed < kills; ++killed) {
    while (workers.size() < 3) {
      setenv("TRANCHE_WORKER", std::to_string(random()).c_str(), 1);
      const pid_t worker = fork();
      if (worker == 0) {
        const int nothing = open("/dev/null", O_WRONLY);
        dup2(nothing, STDOUT_FILENO);
        execl("/proc/self/exe", "libcuda_test", "--gtest_filter=LibcudaWorker.*",
              "--gtest_also_run_disabled_tests", nullptr);
        _exit(127);
      }
      workers.push_back(worker);
    }
    usleep(static_cast<useconds_t>(random() %
                                   10'000));  // any instant is a good one: before it begins, or within
    const size_t victim = random() % workers.size();
    at_work += is_at_work(workers[victim]) ? 1 : 0;
    kill(workers[victim], SIGKILL);
    waitpid(workers[victim], nullptr, 0);
    workers.erase(workers.begin() + static_cast<ptrdiff_t>(victim));
    ASSERT_LE(free_bytes(), before) << "after " << killed << " kills";
  }
  for (const pid_t worker : workers) {
    kill(worker, SIGKILL);
    waitpid(worker, nullptr, 0);
  }
  unsetenv("TRANCHE_WORKER");
  EXPECT_EQ(free_bytes(), before) << "all memory is back";
  const CUdeviceptr all = allocate(before / (2 * kMebi) * (2 * kMebi));
  EXPECT_CUDA(CUDA_SUCCESS, "cuMemFree_v2", all);
  EXPECT_EQ(launch_busy(busy_kernel(), 10, nullptr), CUDA_SUCCESS);
  EXPECT_CUDA(CUDA_SUCCESS, "cuCtxSynchronize") << "no lock is left, and nobody's work is waited for";
  std::printf("seed %llu: %d programs killed, %d of them at work\n", static_cast<unsigned long long>(seed),
              kills, at_work);
}

}  // namespace
}  // namespace tranche::emulator::cuda
