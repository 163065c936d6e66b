// What the tests of libnvidia-ml.so.1 share: what the boards of the server should say, buffers that show
// an overrun, and this process as a CUDA program.
//
// They run inside an emulated server: `tranche-emulator run --board B -- nvml_library_test`, with the same
// boards in TRANCHE_TEST_BOARDS.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <sstream>

#include "nvml_library.h"

namespace tranche::clients {

struct ExpectedBoard {
  const char* name;
  uint64_t total_mib, reserved_mib;
  bool ecc, fan, nvlink, mig, serial;
};

inline const std::map<std::string, ExpectedBoard> kExpectedBoards = {
    {"t4", {"Tesla T4", 15360, 250, true, false, false, false, true}},
    {"rtx4090", {"NVIDIA GeForce RTX 4090", 24564, 346, false, true, false, false, false}},
    {"l40s", {"NVIDIA L40S", 46068, 612, true, false, false, false, true}},
    {"a100-40", {"NVIDIA A100-SXM4-40GB", 40960, 624, true, false, true, true, true}},
    {"a100-80", {"NVIDIA A100-SXM4-80GB", 81920, 870, true, false, true, true, true}},
    {"h100-80", {"NVIDIA H100 80GB HBM3", 81559, 561, true, false, true, true, true}},
    {"h200", {"NVIDIA H200", 143771, 607, true, false, true, true, true}},
    {"b200", {"NVIDIA B200", 183359, 729, true, false, true, true, true}},
    {"a30", {"NVIDIA A30", 24576, 514, true, false, false, true, true}},
    {"rtxpro6000",
     {"NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 639, true, false, false, true, true}},
};

inline constexpr uint64_t kMiB = 1u << 20;

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

}  // namespace tranche::clients
