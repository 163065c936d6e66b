// What libnvidia-ml.so.1 answers: each board's own values, and structures of every version.
#include "nvml_fixture.h"

namespace tranche::clients {
namespace {

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

}  // namespace
}  // namespace tranche::clients
