// Checkpoints: another process is locked, suspended, resumed and unlocked, as a root helper does it.

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/cuda/checkpoint.h"
#include "emulator/cuda/libcuda_fixture.h"

namespace tranche::emulator::cuda {
namespace {

// Not a test of its own: holds 64 MiB, answers each byte it is sent with what its first word is.
TEST(LibcudaSuspended, DISABLED_AnswersWhatItsMemoryHolds) {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  ASSERT_OK("cuInit", 0u);
  ASSERT_OK("cuCtxCreate_v2", &context, 0u, CUdevice{0});
  ASSERT_OK("cuMemAlloc_v2", &address, 64 * kMebi);
  ASSERT_OK("cuMemsetD32_v2", address, 4711u, size_t{1});
  CUdeviceptr managed = 0;
  char byte = 'r';
  ASSERT_EQ(write(STDIN_FILENO, &byte, 1), 1);
  while (read(STDIN_FILENO, &byte, 1) == 1) {
    if (byte == 'm') {
      ASSERT_OK("cuMemAllocManaged", &managed, kMebi, 1u);
    }
    uint32_t word = 0;
    ASSERT_OK("cuMemcpyDtoH_v2", static_cast<void*>(&word), address, sizeof word);
    ASSERT_EQ(write(STDIN_FILENO, &word, sizeof word), static_cast<ssize_t>(sizeof word));
  }
}

class LibcudaCheckpointTest : public LibcudaTest {
 protected:
  void SetUp() override {
    LibcudaTest::SetUp();
    int version = 0;
    ASSERT_OK("cuDriverGetVersion", &version);
    if (dlsym(library(), "cuCheckpointProcessLock") == nullptr)
      GTEST_SKIP() << "this driver has no checkpoints";
    before_ = free_bytes();
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], STDIN_FILENO);
      execl("/proc/self/exe", "libcuda_test", "--gtest_filter=LibcudaSuspended.*",
            "--gtest_also_run_disabled_tests", nullptr);
      _exit(127);
    }
    close(ends[1]);
    socket_ = ends[0];
    char byte = 0;
    ASSERT_EQ(read(socket_, &byte, 1), 1);
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
      close(socket_);
    }
    LibcudaTest::TearDown();
  }

  void send(char byte) { ASSERT_EQ(write(socket_, &byte, 1), 1); }
  uint32_t answer() {
    uint32_t word = 0;
    EXPECT_EQ(read(socket_, &word, sizeof word), static_cast<ssize_t>(sizeof word));
    return word;
  }
  ProcessState state() {
    ProcessState state = ProcessState::failed;
    EXPECT_CUDA(CUDA_SUCCESS, "cuCheckpointProcessGetState", child_, &state);
    return state;
  }
  CUresult lock() {
    CUcheckpointLockArgs arguments{};
    arguments.timeout_ms = 10'000;
    return call("cuCheckpointProcessLock", child_, &arguments);
  }
  CUresult checkpoint() {
    return call("cuCheckpointProcessCheckpoint", child_, static_cast<CUcheckpointCheckpointArgs*>(nullptr));
  }
  CUresult restore() {
    return call("cuCheckpointProcessRestore", child_, static_cast<CUcheckpointRestoreArgs*>(nullptr));
  }
  CUresult unlock() {
    return call("cuCheckpointProcessUnlock", child_, static_cast<CUcheckpointUnlockArgs*>(nullptr));
  }
  // Anonymous memory of the suspended process on the host, MiB.
  size_t host_mebibytes() {
    std::FILE* const file = std::fopen(("/proc/" + std::to_string(child_) + "/status").c_str(), "re");
    char line[256];
    size_t kibibytes = 0;
    while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
      if (std::sscanf(line, "RssAnon: %zu", &kibibytes) == 1) break;
    }
    if (file != nullptr) std::fclose(file);
    return kibibytes / 1024;
  }

  pid_t child_ = -1;
  int socket_ = -1;
  size_t before_ = 0;
};

// Reference 4: running, locked, checkpointed, and back; device memory goes to host memory of the process
// itself.
TEST_F(LibcudaCheckpointTest, AProcessGoesAndComesBack) {
  const size_t held = before_ - free_bytes();
  EXPECT_GE(held, (64 + 100) * kMebi) << "memory and a context";
  EXPECT_EQ(state(), ProcessState::running);
  EXPECT_EQ(checkpoint(), CUDA_ERROR_ILLEGAL_STATE) << "not before it is locked";
  ASSERT_EQ(lock(), CUDA_SUCCESS);
  EXPECT_EQ(state(), ProcessState::locked);
  EXPECT_EQ(lock(), CUDA_ERROR_ILLEGAL_STATE);
  const size_t on_host = host_mebibytes();
  ASSERT_EQ(checkpoint(), CUDA_SUCCESS);
  EXPECT_EQ(state(), ProcessState::checkpointed);
  EXPECT_EQ(free_bytes(), before_) << "all of it, the context too";
  EXPECT_GE(host_mebibytes(), on_host + held / kMebi);
  send('?');  // waits inside the driver until it is unlocked
  ASSERT_EQ(restore(), CUDA_SUCCESS);
  EXPECT_EQ(state(), ProcessState::locked);
  EXPECT_EQ(before_ - free_bytes(), held);
  ASSERT_EQ(unlock(), CUDA_SUCCESS);
  EXPECT_EQ(answer(), 4711u);
  EXPECT_EQ(state(), ProcessState::running);
}

TEST_F(LibcudaCheckpointTest, WithoutRoomItStaysSuspended) {
  ASSERT_EQ(lock(), CUDA_SUCCESS);
  ASSERT_EQ(checkpoint(), CUDA_SUCCESS);
  CUdeviceptr all = 0;
  ASSERT_OK("cuMemAlloc_v2", &all, (free_bytes() - 50 * kMebi) / kMebi * kMebi);
  EXPECT_EQ(restore(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(state(), ProcessState::checkpointed);
  ASSERT_OK("cuMemFree_v2", all);
  EXPECT_EQ(restore(), CUDA_SUCCESS);
  EXPECT_EQ(unlock(), CUDA_SUCCESS);
  send('?');
  EXPECT_EQ(answer(), 4711u);
}

TEST_F(LibcudaCheckpointTest, ManagedMemoryIsRefused) {
  send('m');
  EXPECT_EQ(answer(), 4711u);
  ASSERT_EQ(lock(), CUDA_SUCCESS);
  EXPECT_EQ(checkpoint(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(state(), ProcessState::locked) << "it can be unlocked and goes on";
  ASSERT_EQ(unlock(), CUDA_SUCCESS);
  send('?');
  EXPECT_EQ(answer(), 4711u);
}

TEST_F(LibcudaCheckpointTest, AProcessWithoutCudaIsNone) {
  ProcessState state = ProcessState::failed;
  EXPECT_CUDA(CUDA_ERROR_NOT_INITIALIZED, "cuCheckpointProcessGetState", 1, &state);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, "cuCheckpointProcessGetState", 1 << 30, &state);
}

}  // namespace
}  // namespace tranche::emulator::cuda
