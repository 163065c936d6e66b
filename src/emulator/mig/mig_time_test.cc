// Time and faults under MIG: each compute instance is an executor of its own. Time is virtual, so that every
// expectation is exact. And the geometries that differ from that of most boards.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <set>

#include "emulator/device_model.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kMillisecondNs = 1'000'000, kContextBytes = uint64_t{300} << 20;

class MigTimeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "mig_time_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ServerDescription server;
    for (const char* board : {"a100-40:1", "t4:1", "a30:1", "rtxpro6000:1"}) {
      ASSERT_TRUE(add_boards(board, server));
    }
    auto model = DeviceModel::create(directory_, server);
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    for (const uint32_t gpu : {0u, 2u, 3u}) ASSERT_EQ(model_->set_mig_mode(gpu, true), MigResult::done);
  }
  void TearDown() override {
    for (const char* name : {"/device_model", "/processes"}) unlink((directory_ + name).c_str());
    rmdir(directory_.c_str());
  }

  MigDeviceInfo make(uint32_t gpu, const std::string& profile) {
    for (const GpuInstanceProfile& candidate : model_->mig(gpu)->profiles) {
      if (profile_name(*model_->mig(gpu), candidate) != profile) continue;
      uint32_t instance = 0, compute = 0, query = 0;
      EXPECT_EQ(model_->create_gpu_instance(gpu, candidate.id, {}, instance), MigResult::done);
      ComputeInstanceProfile whole{};
      while (!compute_profile(*model_->mig(gpu), candidate, query, whole) || whole.slices != candidate.slices)
        ++query;
      EXPECT_EQ(model_->create_compute_instance(gpu, instance, query, {}, compute), MigResult::done);
      for (const MigDeviceInfo& device : model_->mig_devices(gpu)) {
        if (device.gpu_instance == instance) return device;
      }
    }
    ADD_FAILURE() << profile;
    return {};
  }
  // A process with a context, on the device if one is given.
  uint32_t process(uint32_t gpu, const MigDeviceInfo* device = nullptr) {
    const auto slot = model_->enter();
    EXPECT_TRUE(slot);
    if (device != nullptr) model_->use_mig_device(*slot, *device);
    EXPECT_TRUE(model_->add_context(*slot, gpu, kContextBytes));
    return *slot;
  }
  // From now on time is virtual, and passes when this test waits.
  void stop_time(uint32_t slot) {
    model_->start_lock_step(1);
    model_->join_lock_step(0, slot);
  }
  // Runs `ms` of work with that demand for each process at once; how long until all of it is done.
  double run(uint32_t gpu, const std::vector<uint32_t>& slots, uint64_t ms, uint32_t demand) {
    const uint64_t start = model_->now();
    std::vector<uint64_t> tags;
    for (const uint32_t slot : slots)
      tags.push_back(model_->launch(slot, gpu, {ms * kMillisecondNs, demand}).tag);
    for (size_t i = 0; i < slots.size(); ++i) model_->wait(slots[i], gpu, tags[i]);
    return static_cast<double>(model_->now() - start) / kMillisecondNs;
  }
  uint64_t busy_ms(uint32_t gpu, const MigDeviceInfo& device) {
    for (const ProcessReading& reading : model_->processes(gpu)) {
      if (reading.gpu_instance == device.gpu_instance) return reading.busy_ns / kMillisecondNs;
    }
    return 0;
  }

  std::string directory_;
  std::unique_ptr<DeviceModel> model_;
};

TEST_F(MigTimeTest, InstancesDoNotShareTime) {
  const MigDeviceInfo first = make(0, "1g.5gb"), second = make(0, "1g.5gb");
  const uint32_t a = process(0, &first), b = process(0, &second);
  const uint32_t c = process(1), d = process(1);
  stop_time(d);
  constexpr uint32_t kTenth = 100;  // 10.8 of 108 multiprocessors fit on the 14 of an instance
  EXPECT_NEAR(run(0, {a, b}, 20, kTenth), 20, 0.01) << "side by side, though processes take turns on a GPU";
  EXPECT_GT(run(1, {c, d}, 20, kTenth), 40) << "as they do on this one, which has no instances";
  EXPECT_EQ(busy_ms(0, first), 20u);
  EXPECT_EQ(busy_ms(0, second), 20u);
}

TEST_F(MigTimeTest, ProcessesOfOneInstanceTakeTurns) {
  const MigDeviceInfo device = make(0, "1g.5gb");
  const uint32_t a = process(0, &device), b = process(0, &device);
  stop_time(b);
  EXPECT_GT(run(0, {a, b}, 20, 100), 40);
  EXPECT_EQ(busy_ms(0, device), 20u) << "each has had its own";
  model_->set_sharing(0, Sharing::side_by_side);
  EXPECT_NEAR(run(0, {a, b}, 20, 50), 20, 0.01) << "MPS works inside an instance: 5.4 and 5.4 of 14";
}

TEST_F(MigTimeTest, ANeedOfMultiprocessorsCountsAgainstThoseOfTheInstance) {
  const MigDeviceInfo small = make(0, "1g.5gb"), large = make(0, "3g.20gb");
  const uint32_t a = process(0, &small), b = process(0, &large);
  stop_time(b);
  EXPECT_NEAR(run(0, {a}, 14, 1000), 108, 0.01) << "14 of 108 multiprocessors";
  EXPECT_NEAR(run(0, {b}, 14, 1000), 36, 0.01) << "42 of 108";
  EXPECT_NEAR(run(0, {b}, 14, 250), 14, 0.01) << "27 of them fit";
}

TEST_F(MigTimeTest, ComputeInstancesOfOneGpuInstanceHaveTimeOfTheirOwn) {
  uint32_t instance = 0, first = 0, second = 0;
  constexpr uint32_t kTwoSlices = 14, kOneSlice = 0;
  ASSERT_EQ(model_->create_gpu_instance(0, kTwoSlices, {}, instance), MigResult::done);
  ASSERT_EQ(model_->create_compute_instance(0, instance, kOneSlice, {}, first), MigResult::done);
  ASSERT_EQ(model_->create_compute_instance(0, instance, kOneSlice, {}, second), MigResult::done);
  const auto devices = model_->mig_devices(0);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_NE(devices[0].executor, devices[1].executor);
  const uint32_t a = process(0, devices.data()), b = process(0, &devices[1]);
  stop_time(b);
  EXPECT_NEAR(run(0, {a, b}, 20, 100), 20, 0.01);
}

TEST_F(MigTimeTest, TheGpusAccountIsThatOfItsParts) {
  const MigDeviceInfo device = make(0, "1g.5gb");
  const uint32_t slot = process(0, &device);
  stop_time(slot);
  run(0, {slot}, 14, 1000);
  EXPECT_NEAR(static_cast<double>(model_->instance_busy_ns(device)) / kMillisecondNs, 108, 0.01);
  EXPECT_NEAR(static_cast<double>(model_->read(0).busy_ns) / kMillisecondNs, 14, 0.01)
      << "14 of its 108 multiprocessors were busy for 108 ms";
  const uint64_t before = model_->read(0).busy_ns;
  model_->remove_context(slot, 0, kContextBytes);
  ASSERT_EQ(model_->destroy_compute_instance(0, device.gpu_instance, device.compute_instance),
            MigResult::done);
  EXPECT_NEAR(static_cast<double>(model_->read(0).busy_ns), static_cast<double>(before), 1000)
      << "what was counted stays";
  ASSERT_EQ(model_->reset_gpu(0), MigResult::done);
  EXPECT_NEAR(static_cast<double>(model_->read(0).busy_ns), static_cast<double>(before), 1000);
}

TEST_F(MigTimeTest, AnXidOfAnInstanceIsItsOwn) {
  constexpr uint32_t kPageFault = 31, kUncontained = 95;
  const MigDeviceInfo other = make(0, "1g.5gb"), mine = make(0, "1g.5gb");
  process(0, &other);
  process(0, &mine);  // own_fault() is this one's
  model_->raise_xid(0, kPageFault, 0, other.gpu_instance);
  EXPECT_EQ(model_->own_fault(0), 0);
  model_->raise_xid(0, kPageFault, 0, mine.gpu_instance);
  EXPECT_NE(model_->own_fault(0), 0);
  XidRecord record;
  model_->raise_xid(0, kPageFault, getpid());
  ASSERT_TRUE(model_->xid(model_->xid_count() - 1, record));
  EXPECT_NE(record.gpu_instance, kNoInstanceId) << "the driver says whose instance it was";
  model_->raise_xid(0, kUncontained, 0);
  ASSERT_TRUE(model_->xid(model_->xid_count() - 1, record));
  EXPECT_EQ(record.gpu_instance, kNoInstanceId) << "and that this one is the GPU's";
}

// ---- Geometries ----

// Counts the layouts to which nothing can be added, of profiles without a suffix.
size_t maximal_layouts(const MigBoard& board) {
  std::set<std::set<std::pair<uint32_t, uint32_t>>> found;
  const std::function<void(uint32_t, const std::set<std::pair<uint32_t, uint32_t>>&)> extend =
      [&](uint32_t taken, const std::set<std::pair<uint32_t, uint32_t>>& layout) {
        bool is_maximal = true;
        for (const GpuInstanceProfile& profile : board.profiles) {
          if (!profile.suffix.empty()) continue;
          for (uint32_t start = 0; start < board.units; ++start) {
            const uint32_t bits = ((1u << profile.units) - 1) << start;
            if ((profile.starts >> start & 1u) == 0 || (taken & bits) != 0) continue;
            is_maximal = false;
            auto next = layout;
            next.insert({start, profile.units});
            extend(taken | bits, next);
          }
        }
        if (is_maximal) found.insert(layout);
      };
  extend(0, {});
  return found.size();
}

TEST_F(MigTimeTest, TheSmallerGeometriesHaveFiveMaximalLayouts) {
  EXPECT_EQ(maximal_layouts(*model_->mig(2)), 5u) << "A30: four slices";
  EXPECT_EQ(maximal_layouts(*model_->mig(3)), 5u) << "RTX PRO 6000: twelve units";
}

TEST_F(MigTimeTest, TwelveUnitsAreNotEight) {
  const MigDeviceInfo first = make(3, "1g.24gb"), second = make(3, "2g.48gb"), third = make(3, "1g.24gb");
  EXPECT_EQ(first.multiprocessors, 46u);
  EXPECT_EQ(second.multiprocessors, 94u);
  EXPECT_EQ(third.memory_bytes >> 20, 24192u);
  uint32_t id = 0;
  constexpr uint32_t kPlain = 14;
  EXPECT_EQ(model_->create_gpu_instance(3, kPlain, {}, id), MigResult::no_room);
  EXPECT_EQ(model_->create_gpu_instance(3, kPlain, 4, id), MigResult::invalid) << "starts are 0, 3, 6 and 9";
  EXPECT_EQ(std::set<uint32_t>({first.gpu_instance, second.gpu_instance, third.gpu_instance}).size(), 3u);
}

TEST_F(MigTimeTest, AfterAllMediaEnginesOnlyProfilesWithoutThem) {
  uint32_t id = 0;
  constexpr uint32_t kAllMedia = 65, kPlain = 14, kNoMedia = 67, kGraphics = 47;
  ASSERT_EQ(model_->create_gpu_instance(3, kAllMedia, {}, id), MigResult::done);
  EXPECT_EQ(model_->create_gpu_instance(3, kPlain, {}, id), MigResult::no_room);
  EXPECT_EQ(model_->create_gpu_instance(3, kGraphics, {}, id), MigResult::no_room);
  EXPECT_EQ(model_->mig_capacity(3, *profile_by_id(*model_->mig(3), kPlain)), 0u);
  EXPECT_EQ(model_->mig_capacity(3, *profile_by_id(*model_->mig(3), kNoMedia)), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(model_->create_gpu_instance(3, kNoMedia, {}, id), MigResult::done);
}

}  // namespace
}  // namespace tranche::emulator
