#include "gpu/topology.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <fstream>

#include "gpu/process_owner.h"

namespace tranche {
namespace {

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpu-roots-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root = name;
  }
  void TearDown() override { std::system(("rm -r " + root).c_str()); }

  void put(const std::string& path, const std::string& content) {
    for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      ::mkdir((root + "/" + path.substr(0, slash)).c_str(), 0755);
    }
    std::ofstream(root + "/" + path) << content;
  }

  std::string root;
};

using PciPlaceTest = FolderTest;
using ProcessOwnerTest = FolderTest;

TEST_F(PciPlaceTest, ReadsWhatTheKernelSays) {
  put("bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  put("bus/pci/devices/0000:3b:00.0/local_cpulist", "16-31,48-63\n");
  const PciPlace place = read_pci_place(root, "00000000:3B:00.0");
  EXPECT_EQ(place.numa_node, 1);
  EXPECT_EQ(place.cpu_list, "16-31,48-63");
}

TEST_F(PciPlaceTest, UnknownIsNotNodeZero) {
  put("bus/pci/devices/0000:3b:00.0/numa_node", "-1\n");
  EXPECT_FALSE(read_pci_place(root, "00000000:3B:00.0").numa_node.has_value());
  EXPECT_FALSE(read_pci_place(root, "00000000:5E:00.0").numa_node.has_value());
}

TEST_F(PciPlaceTest, OnlyAnAddressBecomesAPath) {
  put("numa_node", "3\n");
  EXPECT_FALSE(read_pci_place(root, "../../..").numa_node.has_value());
  EXPECT_FALSE(read_pci_place(root, "0:../../..").numa_node.has_value());
  EXPECT_FALSE(read_pci_place(root, "").numa_node.has_value());
}

TEST(CpuList, IsWrittenAsTheKernelDoes) {
  EXPECT_EQ(cpu_list(std::array<uint64_t, 1>{0}, 100), "");
  EXPECT_EQ(cpu_list(std::array<uint64_t, 1>{0b1'0000'1111}, 100), "0-3,8");
  EXPECT_EQ(cpu_list(std::array<uint64_t, 2>{~0ull, 1}, 100), "0-64");
  EXPECT_EQ(cpu_list(std::array<uint64_t, 1>{0x5555}, 5), "0,2,4") << "cut at a whole range";
}

TEST(LinkKindOfLevel, FarthestWhenUnknown) {
  EXPECT_EQ(link_kind(10, false), LinkKind::pcie_switch);
  EXPECT_EQ(link_kind(20, false), LinkKind::pcie_switch);
  EXPECT_EQ(link_kind(30, false), LinkKind::pcie_host_bridge);
  EXPECT_EQ(link_kind(40, false), LinkKind::numa_node);
  EXPECT_EQ(link_kind(50, false), LinkKind::system);
  EXPECT_EQ(link_kind(12345, false), LinkKind::system);
  EXPECT_EQ(link_kind(std::nullopt, false), LinkKind::system);
  EXPECT_EQ(link_kind(50, true), LinkKind::nvlink);
}

TEST_F(ProcessOwnerTest, NamesAreNotParsed) {
  put("7/stat", "7 (a) b) 1 (2 3) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4321 1 1\n");
  put("7/status", "Name:\tUid:\\n\nUmask:\t0022\nUid:\t1001\t0\t0\t0\nGid:\t1\t1\t1\t1\n");
  const ProcessOwner owner = read_process_owner(root, 7);
  EXPECT_EQ(owner.start_ticks, 4321u);
  EXPECT_EQ(owner.uid, 1001u) << "the real user, not the effective one";
}

TEST_F(ProcessOwnerTest, WhatCannotBeReadIsUnknown) {
  put("8/stat", "8 (short) S 1\n");
  put("8/status", "Name:\tshort\n");
  const ProcessOwner owner = read_process_owner(root, 8);
  EXPECT_FALSE(owner.start_ticks.has_value() || owner.uid.has_value());
  EXPECT_FALSE(read_process_owner(root, 9).uid.has_value());
}

}  // namespace
}  // namespace tranche
