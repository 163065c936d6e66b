// MIG in the device model. The tests are named after the facts of the reference that they model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "base/random.h"
#include "emulator/device_model.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kInstanceMebibytes = uint64_t{1} << 20;
constexpr uint32_t k1g = 19, k1gMedia = 20, k1gDouble = 15, k2g = 14, k3g = 9, k4g = 5,
                   k7g = 0;  // profile ids

class MigTest : public testing::Test {
 protected:
  void SetUp() override { make("a100-40:1 h100-80:1 t4:1"); }
  void make(const std::string& boards) {
    std::string pattern = testing::TempDir() + "mig_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ServerDescription server;
    std::string left = boards;
    while (!left.empty()) {
      const size_t end = left.find(' ');
      ASSERT_TRUE(add_boards(left.substr(0, end), server));
      left = end == std::string::npos ? "" : left.substr(end + 1);
    }
    auto model = DeviceModel::create(directory_, server);
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    for (const uint32_t gpu : {0u, 1u}) ASSERT_EQ(model_->set_mig_mode(gpu, true), MigResult::done);
  }
  void TearDown() override {
    for (const char* name : {"/device_model", "/processes"}) unlink((directory_ + name).c_str());
    rmdir(directory_.c_str());
  }

  MigResult create(uint32_t gpu, uint32_t profile, std::optional<uint32_t> start = {}) {
    return model_->create_gpu_instance(gpu, profile, start, last_);
  }
  // A GPU instance with one compute instance of its whole size; its device.
  MigDeviceInfo whole_device(uint32_t gpu, uint32_t profile, uint32_t query,
                             std::optional<uint32_t> start = {}) {
    EXPECT_EQ(create(gpu, profile, start), MigResult::done);
    const uint32_t instance = last_;
    uint32_t id = 0;
    EXPECT_EQ(model_->create_compute_instance(gpu, instance, query, {}, id), MigResult::done);
    for (const MigDeviceInfo& device : model_->mig_devices(gpu)) {
      if (device.gpu_instance == instance && device.compute_instance == id) return device;
    }
    ADD_FAILURE() << "it is not listed";
    return {};
  }

  std::string directory_;
  std::unique_ptr<DeviceModel> model_;
  uint32_t last_ = 0;
};

TEST_F(MigTest, TwoInstancesCollideExactlyWhenTheirRangesOverlap) {
  const MigBoard& board = *model_->mig(0);
  uint32_t pairs = 0, collisions = 0;
  for (const GpuInstanceProfile& first : board.profiles) {
    for (const GpuInstanceProfile& second : board.profiles) {
      for (uint32_t a = 0; a < board.units; ++a) {
        for (uint32_t b = 0; b < board.units; ++b) {
          if ((first.starts >> a & 1) == 0 || (second.starts >> b & 1) == 0) continue;
          ASSERT_EQ(create(0, first.id, a), MigResult::done);
          const bool overlap = a < b + second.units && b < a + first.units;
          const bool too_many = first.id == second.id && first.most == 1;
          const MigResult result = create(0, second.id, b);
          EXPECT_EQ(result, overlap || too_many ? MigResult::no_room : MigResult::done) << a << " " << b;
          ++pairs;
          collisions += result == MigResult::no_room ? 1 : 0;
          ASSERT_EQ(model_->reset_gpu(0), MigResult::done);
        }
      }
    }
  }
  std::printf("%u pairs of placements, %u collide\n", pairs, collisions);
  EXPECT_GT(pairs, 400u);
}

TEST_F(MigTest, OnlyListedStartsAreLegal) {
  EXPECT_EQ(create(0, k3g, 2), MigResult::invalid);
  EXPECT_EQ(create(0, k2g, 6), MigResult::invalid) << "only double-memory 1g reaches units 6 and 7";
  EXPECT_EQ(create(0, k1g, 7), MigResult::invalid) << "unit 7 has no compute slice";
  EXPECT_EQ(create(0, k4g, 4), MigResult::invalid);
  EXPECT_EQ(create(0, 77), MigResult::invalid) << "no such profile";
  EXPECT_EQ(create(0, k1gDouble, 6), MigResult::done);
}

TEST_F(MigTest, TheDriversOwnPlacementIsNotSafeAgainstFragmentation) {
  for (const uint32_t profile : {k1g, k1g, k2g}) ASSERT_EQ(create(0, profile), MigResult::done);
  EXPECT_EQ(create(0, k3g), MigResult::no_room) << "1g, 1g, 2g, 3g in this order fails on A100";
  ASSERT_EQ(model_->reset_gpu(0), MigResult::done);
  for (const uint32_t profile : {k3g, k1g, k1g, k2g}) {
    EXPECT_EQ(create(0, profile), MigResult::done) << "3g first succeeds with the same set";
  }
}

TEST_F(MigTest, OneInstanceWithMediaAndNoMore) {
  EXPECT_EQ(create(0, k1gMedia), MigResult::done);
  EXPECT_EQ(create(0, k1gMedia), MigResult::no_room);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(create(0, k1g), MigResult::done) << i;
  EXPECT_EQ(create(0, k1g), MigResult::no_room);
}

TEST_F(MigTest, RemainingCapacityCountsWhatCouldBeMade) {
  const MigBoard& board = *model_->mig(0);
  const auto more = [&](uint32_t id) { return model_->mig_capacity(0, *profile_by_id(board, id)); };
  EXPECT_EQ(more(k1g), 7u);
  ASSERT_EQ(create(0, k3g, 4), MigResult::done);
  EXPECT_EQ(more(k1g), 4u);
  EXPECT_EQ(more(k3g), 1u);
  EXPECT_EQ(more(k7g), 0u);
  ASSERT_EQ(create(0, k1g, 2), MigResult::done);
  EXPECT_EQ(more(k3g), 0u);
  EXPECT_EQ(more(k2g), 1u) << "at 0 only: unit 2 is taken";
}

TEST_F(MigTest, GpuInstanceIdsTellThePosition) {
  std::map<uint32_t, std::set<uint32_t>> ids;
  for (const auto& [profile, start] : std::vector<std::pair<uint32_t, uint32_t>>{{k7g, 0},
                                                                                 {k3g, 0},
                                                                                 {k3g, 4},
                                                                                 {k2g, 0},
                                                                                 {k2g, 2},
                                                                                 {k2g, 4},
                                                                                 {k1g, 0},
                                                                                 {k1g, 1},
                                                                                 {k1g, 2},
                                                                                 {k1g, 3},
                                                                                 {k1g, 4},
                                                                                 {k1g, 5},
                                                                                 {k1g, 6}}) {
    ASSERT_EQ(create(0, profile, start), MigResult::done);
    ids[profile].insert(last_);
    ASSERT_EQ(model_->reset_gpu(0), MigResult::done);
  }
  EXPECT_EQ(ids[k7g], std::set<uint32_t>{0});
  EXPECT_EQ(ids[k3g], (std::set<uint32_t>{1, 2}));
  EXPECT_EQ(ids[k2g], (std::set<uint32_t>{3, 5, 6})) << "in the driver's order of starts: 4, then 0 and 2";
  EXPECT_EQ(*ids[k1g].begin(), 7u);
  EXPECT_LE(*ids[k1g].rbegin(), 14u);
  EXPECT_EQ(ids[k1g].size(), 7u);
}

TEST_F(MigTest, IdsAreReusedAndUuidsAreNot) {
  const MigDeviceInfo first = whole_device(0, k2g, 1, 0);
  ASSERT_EQ(model_->destroy_gpu_instance(0, first.gpu_instance), MigResult::in_use)
      << "it has a compute instance";
  ASSERT_EQ(model_->destroy_compute_instance(0, first.gpu_instance, first.compute_instance), MigResult::done);
  ASSERT_EQ(model_->destroy_gpu_instance(0, first.gpu_instance), MigResult::done);
  const MigDeviceInfo second = whole_device(0, k2g, 1, 0);
  EXPECT_EQ(second.gpu_instance, first.gpu_instance);
  EXPECT_NE(second.uuid_text, first.uuid_text);
  EXPECT_TRUE(second.uuid_text.starts_with("MIG-"));
}

TEST_F(MigTest, AGpuInstanceWithoutAComputeInstanceIsNoDevice) {
  ASSERT_EQ(create(0, k3g), MigResult::done);
  EXPECT_TRUE(model_->mig_devices(0).empty()) << "a half-finished state occurs, and must be cleaned";
}

TEST_F(MigTest, ComputeInstancesDivideTheMultiprocessorsAndShareTheMemory) {
  ASSERT_EQ(create(1, k3g, 4), MigResult::done);
  uint32_t id = 0;
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(model_->create_compute_instance(1, last_, 0, {}, id), MigResult::done);
  EXPECT_EQ(model_->create_compute_instance(1, last_, 0, {}, id), MigResult::no_room);
  const auto devices = model_->mig_devices(1);
  ASSERT_EQ(devices.size(), 3u);
  for (const MigDeviceInfo& device : devices) {
    EXPECT_EQ(device.multiprocessors, 16u);
    EXPECT_EQ(device.memory_bytes, 40448 * kInstanceMebibytes);
    EXPECT_EQ(device.name, "1c.3g.40gb");
  }
}

TEST_F(MigTest, TheNameLies) {
  // Multiprocessors are not proportional to slices from Hopper on: 3g has 60 of 132.
  const MigDeviceInfo three = whole_device(1, k3g, 2);
  EXPECT_EQ(three.name, "3g.40gb");
  EXPECT_EQ(three.multiprocessors, 60u);
  EXPECT_NE(three.memory_bytes, 40'000'000'000u);
}

TEST_F(MigTest, MemoryIsHeldByTheInstance) {
  const auto slot = model_->enter();
  ASSERT_TRUE(slot);
  const MigDeviceInfo device = whole_device(0, k1g, 0);
  model_->use_mig_device(*slot, device);
  EXPECT_EQ(model_->free_bytes(0), 4864 * kInstanceMebibytes) << "not the board's 40 GiB";
  EXPECT_TRUE(model_->add_context(*slot, 0, 300 * kInstanceMebibytes));
  EXPECT_TRUE(model_->charge(*slot, 0, 4564 * kInstanceMebibytes));
  EXPECT_FALSE(model_->charge(*slot, 0, 1));
  EXPECT_EQ(model_->used_bytes(0, device.gpu_instance), 4864 * kInstanceMebibytes);
  EXPECT_EQ(model_->used_bytes(0, device.gpu_instance + 1), 0u);
  const auto processes = model_->processes(0);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].gpu_instance, device.gpu_instance);
  EXPECT_EQ(processes[0].compute_instance, device.compute_instance);
  EXPECT_EQ(model_->destroy_compute_instance(0, device.gpu_instance, device.compute_instance),
            MigResult::in_use);
  EXPECT_EQ(model_->reset_gpu(0), MigResult::in_use);
  EXPECT_EQ(model_->set_mig_mode(0, false), MigResult::in_use);
  EXPECT_TRUE(model_->mig_enabled(0));
  EXPECT_FALSE(model_->mig_pending(0)) << "a reset is owed: show it, never plan on it";
  model_->leave(*slot);
  EXPECT_EQ(model_->destroy_compute_instance(0, device.gpu_instance, device.compute_instance),
            MigResult::done);
}

TEST_F(MigTest, NoInstanceSurvivesAReboot) {
  whole_device(0, k3g, 2);
  whole_device(1, k3g, 2);
  model_->reboot();
  EXPECT_TRUE(model_->mig_devices(0).empty());
  EXPECT_TRUE(model_->mig_enabled(0)) << "Ampere's mode survives";
  EXPECT_FALSE(model_->mig_enabled(1)) << "Hopper's does not";
}

TEST_F(MigTest, ABoardWithoutMigSaysSo) {
  EXPECT_EQ(model_->set_mig_mode(2, true), MigResult::not_supported);
  EXPECT_EQ(model_->mig(2), nullptr);
}

// All layouts that random creation and destruction reach are free of overlaps, and every maximal layout of
// the reference can be made.
TEST_F(MigTest, RandomHistoriesNeverOverlap) {
  const char* const chosen = std::getenv("TRANCHE_SEED");
  const uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 20261130;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  const MigBoard& board = *model_->mig(1);
  for (int step = 0; step < 3000; ++step) {
    if (random.below(3) != 0) {
      const auto& profile = board.profiles[random.below(board.profiles.size())];
      static_cast<void>(create(
          1, profile.id,
          random.below(2) == 0 ? std::nullopt : std::optional(static_cast<uint32_t>(random.below(9)))));
    } else {
      static_cast<void>(model_->destroy_gpu_instance(1, static_cast<uint32_t>(random.below(15))));
    }
    uint32_t taken = 0;
    for (const SharedGpuInstance& instance : model_->mig_layout(1).instances) {
      if (instance.exists == 0) continue;
      const uint32_t bits = ((1u << instance.units) - 1) << instance.start;
      ASSERT_EQ(taken & bits, 0u) << "step " << step;
      taken |= bits;
    }
    ASSERT_LT(taken, 256u);
  }
}

TEST_F(MigTest, TheGeometryHasNineteenMaximalLayouts) {
  // Without double-memory 1g and media; counted by trying all sets of placements.
  std::vector<std::pair<uint32_t, uint32_t>> places;
  const MigBoard& board = *model_->mig(0);
  for (const GpuInstanceProfile& profile : board.profiles) {
    if (profile.id == k1gDouble || profile.id == k1gMedia) continue;
    for (uint32_t start = 0; start < board.units; ++start) {
      if ((profile.starts >> start & 1) != 0) places.emplace_back(start, profile.units * 16 + profile.slices);
    }
  }
  std::set<std::set<std::pair<uint32_t, uint32_t>>> maximal;
  const auto bits = [](const std::pair<uint32_t, uint32_t>& place) {
    return ((1u << place.second / 16) - 1) << place.first;
  };
  const std::function<void(size_t, uint32_t, std::set<std::pair<uint32_t, uint32_t>>)> extend =
      [&](size_t from, uint32_t taken, const std::set<std::pair<uint32_t, uint32_t>>& layout) {
        if (std::none_of(places.begin(), places.end(),
                         [&](const auto& place) { return (taken & bits(place)) == 0; })) {
          maximal.insert(layout);
        }
        for (size_t i = from; i < places.size(); ++i) {
          if ((taken & bits(places[i])) != 0) continue;
          auto next = layout;
          next.insert(places[i]);
          extend(i + 1, taken | bits(places[i]), next);
        }
      };
  extend(0, 0, {});
  EXPECT_EQ(maximal.size(), 19u);
}

}  // namespace
}  // namespace tranche::emulator
