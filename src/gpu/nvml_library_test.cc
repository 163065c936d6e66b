#include "gpu/nvml_library.h"

#include <gtest/gtest.h>

#include "gpu/testing/fake_driver.h"

namespace tranche::nvml {
namespace {

constexpr uint64_t kMiBBytes = 1024 * 1024;

struct Opened {
  std::unique_ptr<NvmlLibrary> library;
  std::unique_ptr<CallInFlight> in_flight;
  std::unique_ptr<NvmlCaller> nvml;
  Device device = nullptr;
};

Opened open_generation(const std::string& generation) {
  Opened opened;
  auto library = NvmlLibrary::open(fake_nvml_directory(generation));
  EXPECT_TRUE(library.has_value()) << library.error().message();
  if (!library) return opened;
  opened.library = std::move(*library);
  opened.in_flight = std::make_unique<CallInFlight>();
  opened.nvml = std::make_unique<NvmlCaller>(*opened.library, *opened.in_flight);
  EXPECT_EQ(opened.nvml->init(), Code::success);
  opened.device = opened.nvml->device(0).value;
  return opened;
}

class NvmlGenerations : public testing::TestWithParam<const char*> {
 protected:
  FakeDriver driver;
};

TEST_P(NvmlGenerations, ReadProcessesInWhateverLayoutTheDriverHas) {
  const Opened opened = open_generation(GetParam());
  ASSERT_NE(opened.device, nullptr);
  for (const int count : {0, 1, 2, 3, 63, 64, 65, 300}) {
    driver.set("many 0 " + std::to_string(count) + "\nprocess 0 77 na\n");
    const auto list = opened.nvml->processes(opened.device);
    ASSERT_TRUE(list.ok()) << code_text(list.code);
    ASSERT_EQ(list.value.size(), static_cast<size_t>(count) + 1);
    EXPECT_EQ(list.value[0].pid, 77u);
    EXPECT_FALSE(list.value[0].used_memory.has_value()) << "not available is not zero";
    for (int i = 0; i < count; ++i) {
      const Process& process = list.value[static_cast<size_t>(i) + 1];
      ASSERT_EQ(process.pid, 100000u + static_cast<uint32_t>(i));
      ASSERT_EQ(process.used_memory, kMiBBytes);
    }
  }
}

TEST_P(NvmlGenerations, MoreProcessesThanTheBoundAreUnknownNotCut) {
  const Opened opened = open_generation(GetParam());
  driver.set("many 0 5000\n");
  EXPECT_EQ(opened.nvml->processes(opened.device).code, Code::insufficient_size);
}

TEST_P(NvmlGenerations, MemoryHasAReserveOnlyIfTheDriverSaysSo) {
  const Opened opened = open_generation(GetParam());
  driver.set("process 0 5 104857600\n");
  const auto memory = opened.nvml->memory(opened.device);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value.total, 24564 * kMiBBytes);
  EXPECT_EQ(memory.value.free, (24564 - 346 - 100) * kMiBBytes);
  const bool oldest = std::string(GetParam()) == "1";
  EXPECT_EQ(memory.value.reserved.has_value(), !oldest);
  EXPECT_EQ(memory.value.reserved.value_or(346 * kMiBBytes), 346 * kMiBBytes);
}

INSTANTIATE_TEST_SUITE_P(All, NvmlGenerations, testing::Values("1", "2", "3", "535", "536"));

TEST(NvmlLibrary, AFunctionThatIsMissingSaysSo) {
  const FakeDriver driver;
  const Opened opened = open_generation("3");
  EXPECT_EQ(opened.nvml->power_milliwatts(opened.device).code, Code::function_not_found);
  EXPECT_FALSE(opened.nvml->temperature_celsius(opened.device).known().has_value());
  EXPECT_EQ(opened.nvml->utilization(opened.device).value.gpu, 37u);
}

TEST(NvmlLibrary, TextsOfTheDriverAreCleaned) {
  const FakeDriver driver;
  const Opened opened = open_generation("3");
  EXPECT_EQ(opened.nvml->driver_version().value, "550.1?");
}

TEST(NvmlLibrary, ErrorsSayWhatToDo) {
  const auto missing = NvmlLibrary::open("/nonexistent");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), ErrorCode::unavailable);
  EXPECT_NE(missing.error().message().find("install the NVIDIA driver"), std::string::npos);
  const auto hollow = NvmlLibrary::open(fake_nvml_directory("0"));
  ASSERT_FALSE(hollow.has_value());
  EXPECT_NE(hollow.error().message().find("reinstall"), std::string::npos);
}

TEST(NvmlLibrary, CodesThatAreNewHaveAText) {
  EXPECT_EQ(code_text(static_cast<Code>(1234)), "NVML error 1234");
  EXPECT_EQ(call_name(static_cast<Call>(9999)), "an NVML function");
}

}  // namespace
}  // namespace tranche::nvml
