// libnvidia-ml.so.1 as C programs use it: initialisation, errors, layouts and board differences.
//
// Runs inside an emulated server: `tranche-emulator run --board B -- nvml_library_test`, with the same
// boards in TRANCHE_TEST_BOARDS.
#include "nvml_library.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace tranche::clients {
namespace {

struct ExpectedBoard {
  const char* name;
  uint64_t total_mib, reserved_mib;
  bool ecc, fan, nvlink, mig, serial;
};

const std::map<std::string, ExpectedBoard> kExpectedBoards = {
    {"t4", {"Tesla T4", 15360, 250, true, false, false, false, true}},
    {"rtx4090", {"NVIDIA GeForce RTX 4090", 24564, 346, false, true, false, false, false}},
    {"l40s", {"NVIDIA L40S", 46068, 612, true, false, false, false, true}},
    {"a100-40", {"NVIDIA A100-SXM4-40GB", 40960, 624, true, false, true, true, true}},
    {"a100-80", {"NVIDIA A100-SXM4-80GB", 81920, 870, true, false, true, true, true}},
    {"h100-80", {"NVIDIA H100 80GB HBM3", 81559, 561, true, false, true, true, true}},
    {"h200", {"NVIDIA H200", 143771, 607, true, false, true, true, true}},
    {"b200", {"NVIDIA B200", 183359, 729, true, false, true, true, true}},
};

constexpr uint64_t kMiB = 1u << 20;

// A buffer that shows how far it was written: filled with a pattern that no answer here ends in.
template <size_t Size>
struct Guarded {
  std::array<uint8_t, Size + 64> bytes;
  Guarded() { bytes.fill(0xA7); }
  void* data() { return bytes.data(); }
  bool is_intact_after(size_t size) const {
    return std::all_of(bytes.begin() + static_cast<ptrdiff_t>(size), bytes.end(),
                       [](uint8_t byte) { return byte == 0xA7; });
  }
  template <class T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
  void put(size_t offset, uint32_t value) { std::memcpy(bytes.data() + offset, &value, sizeof value); }
};

// This process as a CUDA program: a context with some memory on one GPU.
class CudaMemory {
 public:
  CudaMemory(int gpu, size_t bytes) : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);  // CUDA's numbers are then NVML's
    int device = -1;
    worked_ = library_ != nullptr && call("cuInit", 0u) == 0 && call("cuDeviceGet", &device, gpu) == 0 &&
              call("cuCtxCreate_v2", &context_, 0u, device) == 0 &&
              call("cuMemAlloc_v2", &pointer_, bytes) == 0;
  }
  ~CudaMemory() {
    if (worked_) call("cuCtxDestroy_v2", context_);
  }
  bool worked() const { return worked_; }

 private:
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) {
    return reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name))(arguments...);
  }

  void* library_;
  void* context_ = nullptr;
  unsigned long long pointer_ = 0;
  bool worked_ = false;
};

class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* boards = std::getenv("TRANCHE_TEST_BOARDS");
    if (boards == nullptr)
      GTEST_SKIP() << "runs only inside an emulated server (TRANCHE_TEST_BOARDS is not set)";
    ASSERT_TRUE(nvml_.is_loaded()) << dlerror();
    std::istringstream words{std::string(boards)};
    for (std::string word; words >> word;) {
      const size_t colon = word.find(':');
      const int count = colon == std::string::npos ? 1 : std::stoi(word.substr(colon + 1));
      for (int i = 0; i < count; ++i) expected_.push_back(kExpectedBoards.at(word.substr(0, colon)));
    }
  }
  void TearDown() override {
    while (nvml_.is_loaded() && nvml_.call("nvmlShutdown") == kSuccess) {
    }
  }

  void initialise() { ASSERT_EQ(nvml_.call("nvmlInit_v2"), kSuccess); }
  Handle device(uint32_t index) {
    Handle handle = nullptr;
    EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByIndex_v2", index, &handle), kSuccess);
    return handle;
  }
  // The code of a function that has one pointer for its answer.
  int code_of(const std::string& name, Handle handle) {
    Guarded<128> answer;
    return nvml_.call(name, handle, answer.data());
  }

  NvmlLibrary nvml_;
  std::vector<ExpectedBoard> expected_;
};

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

TEST_F(NvmlTest, NoFunctionOfAGpuSucceedsOnNullAnswers) {
  initialise();
  const std::set<std::string> takes_no_gpu = {"nvmlDeviceGetCount", "nvmlDeviceGetCount_v2"};
  for (uint32_t gpu = 0; gpu < expected_.size(); ++gpu) {
    const auto handle = reinterpret_cast<unsigned long>(device(gpu));
    for (const std::string& name : nvml_.exported()) {
      if (name.rfind("nvmlDevice", 0) != 0 || takes_no_gpu.contains(name)) continue;
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

TEST_F(NvmlTest, NamesAndMemoryAreTheBoards) {
  initialise();
  for (uint32_t gpu = 0; gpu < expected_.size(); ++gpu) {
    const ExpectedBoard& board = expected_[gpu];
    std::array<char, 96> name{};
    ASSERT_EQ(nvml_.call("nvmlDeviceGetName", device(gpu), name.data(), 96u), kSuccess);
    EXPECT_STREQ(name.data(), board.name);

    Guarded<40> memory;
    memory.put(0, 40u | 2u << 24);
    ASSERT_EQ(nvml_.call("nvmlDeviceGetMemoryInfo_v2", device(gpu), memory.data()), kSuccess);
    EXPECT_TRUE(memory.is_intact_after(40));
    const auto total = memory.at<uint64_t>(8), reserved = memory.at<uint64_t>(16),
               free = memory.at<uint64_t>(24), used = memory.at<uint64_t>(32);
    EXPECT_EQ(total, board.total_mib * kMiB);
    EXPECT_EQ(reserved, board.reserved_mib * kMiB);
    EXPECT_EQ(total, reserved + free + used);

    Guarded<24> old;
    ASSERT_EQ(nvml_.call("nvmlDeviceGetMemoryInfo", device(gpu), old.data()), kSuccess);
    EXPECT_TRUE(old.is_intact_after(24));
    EXPECT_EQ(old.at<uint64_t>(0), total);
    EXPECT_EQ(old.at<uint64_t>(8) + old.at<uint64_t>(16), total);
  }
}

TEST_F(NvmlTest, BoardsSupportWhatTheyHave) {
  initialise();
  for (uint32_t gpu = 0; gpu < expected_.size(); ++gpu) {
    const ExpectedBoard& board = expected_[gpu];
    SCOPED_TRACE(board.name);
    const Handle handle = device(gpu);
    const auto code = [](bool has) { return has ? kSuccess : kNotSupported; };
    uint32_t a = 0, b = 0;
    std::array<char, 64> text{};
    EXPECT_EQ(code_of("nvmlDeviceGetFanSpeed", handle), code(board.fan));
    EXPECT_EQ(nvml_.call("nvmlDeviceGetEccMode", handle, &a, &b), code(board.ecc));
    EXPECT_EQ(nvml_.call("nvmlDeviceGetMigMode", handle, &a, &b), code(board.mig));
    EXPECT_EQ(nvml_.call("nvmlDeviceGetNvLinkState", handle, 0u, &a), code(board.nvlink));
    EXPECT_EQ(nvml_.call("nvmlDeviceGetNvLinkState", handle, 99u, &a), kInvalidArgument);
    EXPECT_EQ(nvml_.call("nvmlDeviceGetSerial", handle, text.data(), 64u), code(board.serial));
    EXPECT_EQ(code_of("nvmlDeviceGetDriverModel", handle), kNotSupported);
    EXPECT_EQ(nvml_.call("nvmlDeviceGetNumFans", handle, &a), kSuccess);
    EXPECT_EQ(a > 0, board.fan);
  }
}

TEST_F(NvmlTest, PciInfoFillsExactlyItsForm) {
  initialise();
  const Handle handle = device(0);
  Guarded<68> first, second, third;
  ASSERT_EQ(nvml_.call("nvmlDeviceGetPciInfo", handle, first.data()), kSuccess);
  ASSERT_EQ(nvml_.call("nvmlDeviceGetPciInfo_v2", handle, second.data()), kSuccess);
  ASSERT_EQ(nvml_.call("nvmlDeviceGetPciInfo_v3", handle, third.data()), kSuccess);
  EXPECT_TRUE(first.is_intact_after(32));
  EXPECT_TRUE(second.is_intact_after(52));
  EXPECT_TRUE(third.is_intact_after(68));
  EXPECT_EQ(third.at<uint32_t>(28) & 0xFFFF, 0x10DEu);
  const std::string bus_id(reinterpret_cast<const char*>(third.bytes.data()) + 36);
  Handle found = nullptr;
  EXPECT_EQ(bus_id.size(), 16u);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &found), kSuccess);
  EXPECT_EQ(found, handle);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.substr(4).c_str(), &found), kSuccess);
  EXPECT_EQ(found, handle);
}

TEST_F(NvmlTest, WrongStructureVersionsAreRefused) {
  initialise();
  const Handle handle = device(0);
  for (const char* name :
       {"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetPciInfoExt", "nvmlDeviceGetRunningProcessDetailList",
        "nvmlDeviceGetProcessesUtilizationInfo"}) {
    for (const uint32_t version : {0u, 1u, 40u | 3u << 24, 0xFFFFFFFFu}) {
      Guarded<128> structure;
      structure.put(0, version);
      EXPECT_EQ(nvml_.call(name, handle, structure.data()), kVersionMismatch) << name << " " << version;
      EXPECT_TRUE(structure.is_intact_after(4)) << name;
    }
  }
}

TEST_F(NvmlTest, ShortBuffersAreNotOverrun) {
  initialise();
  for (const char* name : {"nvmlDeviceGetName", "nvmlDeviceGetUUID"}) {
    Guarded<64> text;
    EXPECT_EQ(nvml_.call(name, device(0), text.data(), 4u), kInsufficientSize) << name;
    EXPECT_TRUE(text.is_intact_after(4)) << name;
  }
  Guarded<64> version;
  EXPECT_EQ(nvml_.call("nvmlSystemGetDriverVersion", version.data(), 3u), kInsufficientSize);
  EXPECT_TRUE(version.is_intact_after(3));
}

TEST_F(NvmlTest, ProcessListsHaveTheirLayouts) {
  const CudaMemory memory(0, 512 * kMiB);
  ASSERT_TRUE(memory.worked());
  initialise();
  struct Layout {
    const char* name;
    size_t entry;
  };
  for (const Layout& layout : {Layout{"nvmlDeviceGetComputeRunningProcesses", 16},
                               Layout{"nvmlDeviceGetComputeRunningProcesses_v2", 24},
                               Layout{"nvmlDeviceGetComputeRunningProcesses_v3", 24}}) {
    SCOPED_TRACE(layout.name);
    uint32_t count = 0;
    EXPECT_EQ(nvml_.call(layout.name, device(0), &count, nullptr), kInsufficientSize);
    EXPECT_EQ(count, 1u);
    Guarded<96> list;
    count = 4;
    ASSERT_EQ(nvml_.call(layout.name, device(0), &count, list.data()), kSuccess);
    ASSERT_EQ(count, 1u);
    EXPECT_TRUE(list.is_intact_after(layout.entry));
    EXPECT_EQ(list.at<uint32_t>(0), static_cast<uint32_t>(getpid()));
    EXPECT_GT(list.at<uint64_t>(8), 512 * kMiB);
    EXPECT_LT(list.at<uint64_t>(8), 1536 * kMiB);
    if (layout.entry == 24) {
      EXPECT_EQ(list.at<uint64_t>(16), UINT64_MAX);  // no GPU instance, no compute instance
    }
  }
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

TEST_F(NvmlTest, FieldsAnswerEachForItself) {
  initialise();
  struct Field {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type;
    int32_t result;
    uint64_t value;
  };
  std::array<Field, 4> fields{};
  fields[0].field = 83;   // energy
  fields[1].field = 91;   // NVLinks
  fields[2].field = 138;  // NVLink bytes: not accounted
  fields[3].field = 9999;
  ASSERT_EQ(nvml_.call("nvmlDeviceGetFieldValues", device(0), 4, fields.data()), kSuccess);
  EXPECT_EQ(fields[0].result, kSuccess);
  EXPECT_GT(fields[0].timestamp, 0);
  EXPECT_EQ(fields[1].result, kSuccess);
  EXPECT_EQ(fields[1].value > 0, expected_[0].nvlink);
  EXPECT_EQ(fields[2].result, kNotSupported);
  EXPECT_EQ(fields[3].result, kInvalidArgument);
}

TEST_F(NvmlTest, PeersAreTheSameFromBothSides) {
  initialise();
  for (uint32_t i = 0; i < expected_.size(); ++i) {
    for (uint32_t j = 0; j < expected_.size(); ++j) {
      uint32_t there = 77, back = 77;
      if (i == j) {
        EXPECT_EQ(nvml_.call("nvmlDeviceGetTopologyCommonAncestor", device(i), device(j), &there), kSuccess);
        EXPECT_EQ(there, 0u);
        continue;
      }
      for (uint32_t capability = 0; capability < 5; ++capability) {
        EXPECT_EQ(nvml_.call("nvmlDeviceGetP2PStatus", device(i), device(j), capability, &there), kSuccess);
        EXPECT_EQ(nvml_.call("nvmlDeviceGetP2PStatus", device(j), device(i), capability, &back), kSuccess);
        EXPECT_EQ(there, back);
      }
    }
  }
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
