// NvmlHost and tranche-sampler on an emulated server: run under `tranche-emulator run --board rtx4090:2 --`.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/nvml_host.h"
#include "linux/sd_event_reactor.h"

extern char** environ;

namespace tranche {
namespace {

constexpr Duration kPatience = 60 * kSecond;

class EmulatedServerTest : public testing::Test {
 protected:
  void SetUp() override {
    struct stat node {};
    if (::stat("/dev/nvidia0", &node) != 0) GTEST_SKIP() << "not on an emulated server: no /dev/nvidia0";
    auto created = SdEventReactor::create();
    ASSERT_TRUE(created.has_value());
    reactor = std::move(*created);
    NvmlHostOptions options;
    options.sampler_program = TRANCHE_SAMPLER_PROGRAM;
    options.sample_period = 50 * kMillisecond;
    host = std::make_unique<NvmlHost>(*reactor, options);
    std::optional<Result<GpuInventory>> answer;
    host->discover([&](Result<GpuInventory> found) { answer.emplace(std::move(found)); });
    ASSERT_TRUE(turn_until([&] { return answer.has_value(); }));
    ASSERT_TRUE(answer->has_value()) << answer->error().message();
    inventory = std::move(**answer);
    ASSERT_FALSE(inventory.gpus.empty());
  }

  void TearDown() override {
    if (child > 0) end_child();
  }

  bool turn_until(const std::function<bool()>& done) {
    bool fulfilled = false;
    const Duration give_up = reactor->clock().since_boot() + kPatience;
    Reactor::Handle timer;
    const std::function<void()> look = [&] {
      fulfilled = done();
      if (fulfilled || reactor->clock().since_boot() > give_up) return reactor->stop();
      timer = reactor->at(reactor->clock().since_boot() + 2 * kMillisecond, [&] { reactor->post(look); });
    };
    reactor->post(look);
    EXPECT_TRUE(reactor->run().has_value());
    return fulfilled;
  }

  void start_training(const std::string& visible) {
    std::string program = TRANCHE_EXAMPLE_TRAIN;
    std::string device = "CUDA_VISIBLE_DEVICES=" + visible;
    std::vector<std::string> words{"env", device, program, "--seconds", "600", "--memory", "1000"};
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ASSERT_EQ(::posix_spawn(&child, "/usr/bin/env", nullptr, nullptr, pointers.data(), environ), 0);
  }

  void end_child() {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    child = -1;
  }

  const GpuProcess* process_on(uint32_t index) {
    const auto& reading = host->status(index)->reading;
    if (!reading || !reading->processes) return nullptr;
    for (const GpuProcess& process : *reading->processes) {
      if (process.pid == child) return &process;
    }
    return nullptr;
  }

  std::unique_ptr<SdEventReactor> reactor;
  std::unique_ptr<NvmlHost> host;
  GpuInventory inventory;
  pid_t child = -1;
};

TEST_F(EmulatedServerTest, IsDescribedInFull) {
  EXPECT_FALSE(inventory.driver_version.empty());
  EXPECT_TRUE(inventory.problems.empty());
  uint32_t index = 0;
  for (const DiscoveredGpu& gpu : inventory.gpus) {
    EXPECT_EQ(gpu.index, index);
    EXPECT_TRUE(gpu.uuid.starts_with("GPU-")) << gpu.uuid;
    EXPECT_EQ(gpu.minor, index);
    EXPECT_LT(gpu.memory_usable, gpu.memory_total);
    EXPECT_GT(gpu.memory_usable.count() * 20, gpu.memory_total.count() * 19);
    EXPECT_FALSE(gpu.pci_bus_id.empty());
    EXPECT_GE(gpu.compute_capability_major, 7u);
    EXPECT_TRUE(gpu.power_limit_milliwatts.has_value());
    EXPECT_TRUE(gpu.mig_capable.has_value());
    EXPECT_EQ(gpu.links.size(), inventory.gpus.size() - 1);
    const bool nvlink_board = gpu.type == "h100-80" || gpu.type == "a100-80";
    for (const PeerLink& link : gpu.links) EXPECT_EQ(link.kind == LinkKind::nvlink, nvlink_board) << gpu.type;
    // The emulator's key of the board is the type that users ask for.
    const char* const boards = std::getenv("TRANCHE_TEST_BOARD");
    if (boards != nullptr) {
      EXPECT_EQ(gpu.type, boards);
    }
    ++index;
  }
}

TEST_F(EmulatedServerTest, ShowsAProcessAndItsEnd) {
  const uint32_t last = inventory.gpus.back().index;
  start_training(std::to_string(last));
  ASSERT_TRUE(turn_until([&] {
    const GpuProcess* const process = process_on(last);
    return process != nullptr && process->memory >= MiB(1000) && !process->user.empty();
  }));
  EXPECT_EQ(process_on(last)->uid, ::getuid());
  EXPECT_TRUE(process_on(last)->start_ticks.has_value());
  EXPECT_GE(host->status(last)->reading->memory_used, process_on(last)->memory);
  ASSERT_TRUE(turn_until([&] { return host->status(last)->reading->utilisation_percent.value_or(0) > 50; }));
  if (last != 0) {
    EXPECT_TRUE(host->status(0)->reading->processes->empty());
    EXPECT_EQ(host->status(0)->reading->memory_used, MiB(0)) << "the driver's reserve is nobody's use";
  }

  end_child();
  // What the daemon does before it calls a slice free.
  std::optional<Result<GpuReading>> answer;
  bool asked = false;
  ASSERT_TRUE(turn_until([&] {
    if (answer && answer->has_value() && (*answer)->processes && (*answer)->processes->empty() &&
        (*answer)->memory_used == MiB(0)) {
      return true;
    }
    if (asked && !answer) return false;
    answer.reset();
    asked = true;
    host->check_now(last, [&](Result<GpuReading> reading) { answer.emplace(std::move(reading)); });
    return false;
  }));
}

TEST_F(EmulatedServerTest, ChecksAreQuick) {
  // No assertion on time: printed, so that a person sees it.
  constexpr int kChecks = 200;
  int answered = 0;
  const Duration start = reactor->clock().since_boot();
  std::function<void()> next = [&] {
    host->check_now(0, [&](Result<GpuReading> reading) {
      EXPECT_TRUE(reading.has_value());
      if (++answered < kChecks) next();
    });
  };
  next();
  ASSERT_TRUE(turn_until([&] { return answered == kChecks; }));
  const Duration took = reactor->clock().since_boot() - start;
  RecordProperty("microseconds_per_check", static_cast<int>(took.count() / kChecks / 1000));
  std::printf("a check takes %lld us\n", static_cast<long long>(took.count() / kChecks / 1000));
}

}  // namespace
}  // namespace tranche
