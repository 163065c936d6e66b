// Who may have a context: compute modes, which root sets through NVML; and clients of MPS, which share a GPU
// side by side, with its faults. What is of MPS runs on a server that was started with --sharing mps@0.

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "emulator/cuda/checkpoint.h"
#include "emulator/cuda/libcuda_fixture.h"

namespace tranche::emulator::cuda {
namespace {

constexpr unsigned kDefaultMode = 0, kProhibited = 2, kExclusiveProcess = 3;
constexpr int kComputeModeAttribute = 20, kMpsEnabledAttribute = 133, kMultiprocessorsAttribute = 16;

// Not a test of its own: tells the result of making a context on GPU 0; each byte that it is sent then is a
// call: 's' waits for its work, 'f' runs a kernel that faults, 'a' allocates 1 GiB, 'm' tells its
// multiprocessors. It answers with the result.
TEST(LibcudaClient, DISABLED_DoesAsItIsTold) {
  CUcontext context = nullptr;
  ASSERT_OK("cuInit", 0u);
  int result = call("cuCtxCreate_v2", &context, 0u, CUdevice{0});
  char order = 0;
  do {
    CUdeviceptr address = 0;
    if (order == 's') result = call("cuCtxSynchronize");
    if (order == 'a') result = call("cuMemAlloc_v2", &address, size_t{1} << 30);
    if (order == 'm') call("cuDeviceGetAttribute", &result, kMultiprocessorsAttribute, CUdevice{0});
    if (order == 'f') {
      CUmodule module = nullptr;
      CUfunction function = nullptr;
      ASSERT_OK("cuModuleLoadData", &module, static_cast<const void*>(kPtx));
      ASSERT_OK("cuModuleGetFunction", &function, module, "tranche_fault");
      uint64_t fault = CUDA_ERROR_ILLEGAL_ADDRESS;
      void* parameters[] = {&fault};
      ASSERT_OK("cuLaunchKernel", function, 1u, 1u, 1u, 32u, 1u, 1u, 0u, CUstream{nullptr},
                static_cast<void**>(parameters), static_cast<void**>(nullptr));
      result = call("cuCtxSynchronize");
    }
    ASSERT_EQ(write(STDIN_FILENO, &result, sizeof result), static_cast<ssize_t>(sizeof result));
  } while (read(STDIN_FILENO, &order, 1) == 1);
}

class Client {
 public:
  Client() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDIN_FILENO);
      execl("/proc/self/exe", "libcuda_test", "--gtest_filter=LibcudaClient.*",
            "--gtest_also_run_disabled_tests", nullptr);
      _exit(127);
    }
    close(ends[1]);
    socket_ = ends[0];
    created_ = answer();
  }
  ~Client() { end(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  CUresult created() const { return static_cast<CUresult>(created_); }
  pid_t pid() const { return pid_; }
  int ask(char order) {
    EXPECT_EQ(write(socket_, &order, 1), 1);
    return answer();
  }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(socket_);
    pid_ = -1;
  }

 private:
  int answer() const {
    int result = -1;
    EXPECT_EQ(read(socket_, &result, sizeof result), static_cast<ssize_t>(sizeof result));
    return result;
  }
  pid_t pid_ = -1;
  int socket_ = -1, created_ = -1;
};

// NVML, as the administrator's tool uses it.
class LibcudaSharingTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(library(), nullptr) << dlerror();
    ASSERT_OK("cuInit", 0u);
    nvml_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nvml_, nullptr) << dlerror();
    ASSERT_EQ(ask_nvml("nvmlInit_v2"), 0);
    ASSERT_EQ(ask_nvml("nvmlDeviceGetHandleByIndex_v2", 0u, &gpu_), 0);
  }
  void TearDown() override { set_mode(kDefaultMode); }

  template <class... Arguments>
  int ask_nvml(const char* name, Arguments... arguments) {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(nvml_, name));
    return function == nullptr ? -1 : function(arguments...);
  }
  void set_mode(unsigned mode) { EXPECT_EQ(ask_nvml("nvmlDeviceSetComputeMode", gpu_, mode), 0); }
  static int attribute(int number, CUdevice device = 0) {
    int value = -1;
    EXPECT_CUDA(CUDA_SUCCESS, "cuDeviceGetAttribute", &value, number, device);
    return value;
  }

  void* nvml_ = nullptr;
  void* gpu_ = nullptr;
};

// cuda.h on CUDA_ERROR_DEVICE_UNAVAILABLE: "often unavailable due to" either mode.
TEST_F(LibcudaSharingTest, AnExclusiveGpuRefusesTheContextsOfASecondProcess) {
  set_mode(kExclusiveProcess);
  EXPECT_EQ(attribute(kComputeModeAttribute), static_cast<int>(kExclusiveProcess));
  Client first;
  EXPECT_EQ(first.created(), CUDA_SUCCESS);
  {
    const Client second;
    EXPECT_EQ(second.created(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  }
  CUcontext primary = nullptr;
  EXPECT_CUDA(CUDA_ERROR_DEVICE_UNAVAILABLE, "cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
  first.end();
  const Client third;
  EXPECT_EQ(third.created(), CUDA_SUCCESS) << "the first one has ended";
}

TEST_F(LibcudaSharingTest, AProhibitedGpuRefusesEveryNewContextAndKeepsTheOldOnes) {
  Client old;
  ASSERT_EQ(old.created(), CUDA_SUCCESS);
  set_mode(kProhibited);
  const Client refused;
  EXPECT_EQ(refused.created(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(old.ask('s'), CUDA_SUCCESS);
  set_mode(kDefaultMode);
  const Client welcome;
  EXPECT_EQ(welcome.created(), CUDA_SUCCESS);
}

// mig-and-telemetry.md 5: a program's own page fault is XID 31, an event of the GPU that says whose instance
// it was.
TEST_F(LibcudaSharingTest, AProgramsFaultIsAnXidEvent) {
  constexpr unsigned long long kCriticalXid = 8;
  struct Event {
    void* gpu;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
  };
  void* set = nullptr;
  ASSERT_EQ(ask_nvml("nvmlEventSetCreate", &set), 0);
  ASSERT_EQ(ask_nvml("nvmlDeviceRegisterEvents", gpu_, kCriticalXid, set), 0);
  Client faulty;
  EXPECT_EQ(faulty.ask('f'), CUDA_ERROR_ILLEGAL_ADDRESS);
  Event event{};
  ASSERT_EQ(ask_nvml("nvmlEventSetWait_v2", set, &event, 10'000u), 0);
  EXPECT_EQ(event.type, kCriticalXid);
  EXPECT_EQ(event.data, 31u);
  EXPECT_EQ(event.gpu_instance, UINT32_MAX);
  EXPECT_EQ(faulty.ask('s'), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NE(ask_nvml("nvmlEventSetWait_v2", set, &event, 1u), 0) << "once, however often it is met";
  ask_nvml("nvmlEventSetFree", set);
}

using LibcudaMpsTest = LibcudaSharingTest;

TEST_F(LibcudaMpsTest, TheAttributeTellsWhichGpusAreShared) {
  EXPECT_EQ(attribute(kMpsEnabledAttribute, 0), 1);
  EXPECT_EQ(attribute(kMpsEnabledAttribute, 1), 0);
}

TEST_F(LibcudaMpsTest, AFaultOfOneClientIsEveryClientsAndNewOnesWaitUntilAllHaveEnded) {
  set_mode(kExclusiveProcess);  // all clients are one process to it
  Client healthy, faulty;
  ASSERT_EQ(healthy.created(), CUDA_SUCCESS);
  ASSERT_EQ(faulty.created(), CUDA_SUCCESS);
  EXPECT_EQ(healthy.ask('s'), CUDA_SUCCESS);
  EXPECT_EQ(faulty.ask('f'), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(healthy.ask('s'), CUDA_ERROR_ILLEGAL_ADDRESS);
  faulty.end();
  {
    const Client refused;
    EXPECT_EQ(refused.created(), CUDA_ERROR_MPS_SERVER_NOT_READY) << "one that was hit still lives";
  }
  healthy.end();
  const Client welcome;
  EXPECT_EQ(welcome.created(), CUDA_SUCCESS);
}

TEST_F(LibcudaMpsTest, NvmlListsClientsAsMpsProcesses) {
  const Client client;
  struct Process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
  };
  for (const char* list :
       {"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v3"}) {
    Process processes[4];
    unsigned count = 4;
    EXPECT_EQ(ask_nvml(list, gpu_, &count, static_cast<Process*>(processes)), 0);
    ASSERT_EQ(count, 1u) << list;
    EXPECT_EQ(processes[0].pid, static_cast<unsigned>(client.pid()));
  }
}

// enforcement.md 4: checkpoints are refused under MPS, at every level that has them.
TEST_F(LibcudaMpsTest, AClientCannotBeCheckpointed) {
  const Client client;
  CUcheckpointLockArgs arguments{};
  arguments.timeout_ms = 10'000;
  EXPECT_CUDA(CUDA_SUCCESS, "cuCheckpointProcessLock", client.pid(), &arguments);
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, "cuCheckpointProcessCheckpoint", client.pid(),
              static_cast<CUcheckpointCheckpointArgs*>(nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, "cuCheckpointProcessUnlock", client.pid(),
              static_cast<CUcheckpointUnlockArgs*>(nullptr));
}

// enforcement.md 1: the limits live in the environment of the client, one invisible GPU drops all of them,
// and the view is a limited free and a whole total.
TEST_F(LibcudaMpsTest, LimitsOfClientsAreTheirOwnWishes) {
  const int all = attribute(kMultiprocessorsAttribute);
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", 1);
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=512M", 1);
  {
    Client limited;
    EXPECT_EQ(limited.ask('a'), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(limited.ask('m'), all / 2);
  }
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=512M,7=1G", 1);
  Client escaped;
  EXPECT_EQ(escaped.ask('a'), CUDA_SUCCESS);
  unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
}

}  // namespace
}  // namespace tranche::emulator::cuda
