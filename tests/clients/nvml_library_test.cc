// How libnvidia-ml.so.1 behaves as a library: its functions, initialisation, refusals, events, and the GPUs
// that it lists.
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include <atomic>
#include <set>
#include <thread>

#include "nvml_fixture.h"

namespace tranche::clients {
namespace {

TEST_F(NvmlTest, ExportsNothingButNvml) {
  const std::vector<std::string> names = nvml_.exported();
  EXPECT_GT(names.size(), 300u);
  for (const std::string& name : names) EXPECT_EQ(name.substr(0, 4), "nvml") << name;
}

TEST_F(NvmlTest, LacksWhatDriver550Lacks) {
  for (const char* name :
       {"nvmlDeviceGetTemperatureV", "nvmlDeviceGetDriverModel_v2", "nvmlDeviceGetHandleByUUIDV",
        "nvmlDeviceSetMemoryLimits_v1", "nvmlEventSetWait_v3"}) {
    EXPECT_EQ(nvml_.find(name), nullptr) << name;
  }
}

// Functions that need no initialisation, by NVML's documentation.
const std::set<std::string> kNeedNoInitialisation = {"nvmlInit",
                                                     "nvmlInit_v2",
                                                     "nvmlInitWithFlags",
                                                     "nvmlErrorString",
                                                     "nvmlGetExcludedDeviceCount",
                                                     "nvmlGetExcludedDeviceInfoByIndex"};

TEST_F(NvmlTest, EveryFunctionRefusesBeforeInitialisation) {
  for (const std::string& name : nvml_.exported()) {
    if (kNeedNoInitialisation.contains(name)) continue;
    EXPECT_EQ(nvml_.call(name, 0ul, 0ul, 0ul, 0ul, 0ul, 0ul), kUninitialized) << name;
  }
}

TEST_F(NvmlTest, NoFunctionSucceedsOnNullArguments) {
  initialise();
  for (const std::string& name : nvml_.exported()) {
    if (kNeedNoInitialisation.contains(name) || name == "nvmlShutdown") continue;
    const int code = nvml_.call(name, 0ul, 0ul, 0ul, 0ul, 0ul, 0ul);
    EXPECT_TRUE(code == kInvalidArgument || code == kNotSupported) << name << " answers " << code;
  }
}

TEST_F(NvmlTest, NoQuestionToAGpuSucceedsOnNullAnswers) {
  initialise();
  const std::set<std::string> takes_no_gpu = {"nvmlDeviceGetCount", "nvmlDeviceGetCount_v2"};
  for (uint32_t gpu = 0; gpu < expected_.size(); ++gpu) {
    const auto handle = reinterpret_cast<unsigned long>(device(gpu));
    for (const std::string& name : nvml_.exported()) {
      if (name.rfind("nvmlDeviceGet", 0) != 0 || takes_no_gpu.contains(name)) continue;
      const int code = nvml_.call(name, handle, 0ul, 0ul, 0ul, 0ul, 0ul);
      EXPECT_NE(code, kSuccess) << name;
    }
  }
}

TEST_F(NvmlTest, InitialisationIsCounted) {
  initialise();
  initialise();
  uint32_t count = 0;
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(count, expected_.size());
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetCount_v2", &count), kUninitialized);
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kUninitialized);
}

TEST_F(NvmlTest, InitialisationTakesItsFlagsAndNoOthers) {
  EXPECT_EQ(nvml_.call("nvmlInitWithFlags", 0u), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlInitWithFlags", 3u), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlInitWithFlags", 0x8000u), kInvalidArgument);
}

TEST_F(NvmlTest, RepeatedInitialisationLeaksNoDescriptor) {
  initialise();
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kSuccess);
  const int before = dup(0);
  close(before);
  for (int i = 0; i < 100; ++i) {
    initialise();
    EXPECT_EQ(nvml_.call("nvmlShutdown"), kSuccess);
  }
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

TEST_F(NvmlTest, HandlesStayAndOthersAreRefused) {
  initialise();
  const Handle first = device(0);
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kSuccess);
  initialise();
  EXPECT_EQ(device(0), first);
  Handle handle = nullptr;
  uint32_t index = 0;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByIndex_v2", static_cast<uint32_t>(expected_.size()), &handle),
            kInvalidArgument);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetIndex", Handle{&index}, &index), kInvalidArgument);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByUUID", "GPU-00000000-0000-0000-0000-000000000000", &handle),
            kNotFound);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByPciBusId_v2", "00000000:FE:00.0", &handle), kNotFound);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByPciBusId_v2", "somewhere", &handle), kInvalidArgument);
}

TEST_F(NvmlTest, WaitsForEventsTimeOut) {
  initialise();
  Handle set = nullptr;
  ASSERT_EQ(nvml_.call("nvmlEventSetCreate", &set), kSuccess);
  uint64_t types = 0;
  ASSERT_EQ(nvml_.call("nvmlDeviceGetSupportedEventTypes", device(0), &types), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlDeviceRegisterEvents", device(0), types, set), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlDeviceRegisterEvents", device(0), uint64_t{1} << 60, set), kNotSupported);
  Guarded<32> data;
  timespec before{}, after{};
  clock_gettime(CLOCK_MONOTONIC, &before);
  EXPECT_EQ(nvml_.call("nvmlEventSetWait_v2", set, data.data(), 30u), kTimeout);
  clock_gettime(CLOCK_MONOTONIC, &after);
  EXPECT_GE((after.tv_sec - before.tv_sec) * 1'000'000'000L + after.tv_nsec - before.tv_nsec, 30'000'000L);
  EXPECT_TRUE(data.is_intact_after(0));
  EXPECT_EQ(nvml_.call("nvmlEventSetFree", set), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlEventSetFree", set), kInvalidArgument);
  EXPECT_EQ(nvml_.call("nvmlEventSetWait_v2", set, data.data(), 0u), kInvalidArgument);
}

TEST_F(NvmlTest, ThreadsMayInitialiseAskAndShutDownAtOnce) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        Handle handle = nullptr;
        Guarded<8> rates;
        if (nvml_.call("nvmlInit_v2") != kSuccess) ++wrong;
        if (nvml_.call("nvmlDeviceGetHandleByIndex_v2", 0u, &handle) != kSuccess) ++wrong;
        if (nvml_.call("nvmlDeviceGetUtilizationRates", handle, rates.data()) != kSuccess) ++wrong;
        if (nvml_.call("nvmlShutdown") != kSuccess) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kUninitialized);
}

// Puts something that cannot be opened over a device node, in a mount namespace of the calling process.
bool hide_node(const std::string& node) {
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return false;
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/tmp/nvml-test-" + std::to_string(getpid());
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const bool hidden = bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                      mount(path.c_str(), node.c_str(), nullptr, MS_BIND, nullptr) == 0;
  close(made);
  unlink(path.c_str());
  return hidden;
}

// What a process sees that may not open the first GPU: the exit status of a child that looks.
int look_without_first_gpu(const NvmlLibrary& nvml, const std::string& second_uuid, uint32_t gpus) {
  if (!hide_node("/dev/nvidia0")) return 77;
  uint32_t count = 99, minor = 99;
  Handle first = nullptr;
  std::array<char, 96> uuid{};
  if (nvml.call("nvmlInit_v2") != kSuccess || nvml.call("nvmlDeviceGetCount_v2", &count) != kSuccess)
    return 1;
  if (count != gpus - 1) return 2;
  if (count == 0) return 0;
  if (nvml.call("nvmlDeviceGetHandleByIndex_v2", 0u, &first) != kSuccess) return 3;
  nvml.call("nvmlDeviceGetUUID", first, uuid.data(), 96u);
  nvml.call("nvmlDeviceGetMinorNumber", first, &minor);
  return uuid.data() == second_uuid && minor == 1 ? 0 : 4;
}

TEST_F(NvmlTest, ListsOnlyGpusWhoseNodeOpens) {
  std::array<char, 96> second{};
  initialise();
  if (expected_.size() > 1) {
    ASSERT_EQ(nvml_.call("nvmlDeviceGetUUID", device(1), second.data(), 96u), kSuccess);
  }
  ASSERT_EQ(nvml_.call("nvmlShutdown"), kSuccess);
  const pid_t child = fork();
  if (child == 0)
    _exit(look_without_first_gpu(nvml_, second.data(), static_cast<uint32_t>(expected_.size())));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot make a mount namespace here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "child ended with status " << status;
}

}  // namespace
}  // namespace tranche::clients
