// The real sampler process against the fake library: hangs, restarts, losses.
#include "gpu/nvml_host.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/testing/fake_driver.h"
#include "linux/sd_event_reactor.h"

namespace tranche {
namespace {

// Long enough for a machine under any load; a test that gets here has failed.
constexpr Duration kPatience = 60 * kSecond;

class NvmlHostTest : public testing::Test {
 protected:
  void SetUp() override {
    auto created = SdEventReactor::create();
    ASSERT_TRUE(created.has_value());
    reactor = std::move(*created);
    options.sampler_program = TRANCHE_SAMPLER_PROGRAM;
    options.library_dir = fake_nvml_directory("3");
    options.sample_period = 20 * kMillisecond;
    options.progress_period = 20 * kMillisecond;
    options.call_deadline = 300 * kMillisecond;
    options.inventory_call_deadline = 300 * kMillisecond;
    options.check_deadline = 10 * kSecond;
    options.progress_deadline = 10 * kSecond;
    options.restart_delay_min = 10 * kMillisecond;
    options.retry_delay_min = kHour;
    options.probe_period = kHour;
    options.dev_root.clear();  // the fake driver has no nodes
  }

  // Turns the loop until `done`; false if it never is. That it turns at all shows that nothing blocks it.
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

  void make_host() {
    host = std::make_unique<NvmlHost>(*reactor, options);
    host->on_health([this](uint32_t index, Health health, const std::string& reason) {
      edges.push_back(std::to_string(index) + " " + std::string(to_string(health)));
      last_reason = reason;
    });
  }

  Result<GpuInventory> discover() {
    if (!host) make_host();
    std::optional<Result<GpuInventory>> answer;
    host->discover([&](Result<GpuInventory> inventory) { answer.emplace(std::move(inventory)); });
    EXPECT_FALSE(answer.has_value()) << "the callback came from inside the call";
    if (!turn_until([&] { return answer.has_value(); })) return fail(ErrorCode::internal, "no answer at all");
    return std::move(*answer);
  }

  Result<GpuReading> check(uint32_t index) {
    std::optional<Result<GpuReading>> answer;
    host->check_now(index, [&](Result<GpuReading> reading) { answer.emplace(std::move(reading)); });
    EXPECT_FALSE(answer.has_value()) << "the callback came from inside the call";
    if (!turn_until([&] { return answer.has_value(); })) return fail(ErrorCode::internal, "no answer at all");
    return std::move(*answer);
  }

  // A reading of `index` that was taken after this call.
  bool read_again(uint32_t index) {
    const Duration after = reactor->clock().since_boot();
    return turn_until([&] {
      const auto& reading = host->status(index)->reading;
      return reading && reading->taken_at > after;
    });
  }

  FakeDriver driver;
  NvmlHostOptions options;
  std::unique_ptr<SdEventReactor> reactor;
  std::unique_ptr<NvmlHost> host;
  std::vector<std::string> edges;
  std::string last_reason;
};

TEST_F(NvmlHostTest, DiscoversWhatTheMachineHas) {
  driver.set("count 3\n");
  const auto inventory = discover();
  ASSERT_TRUE(inventory.has_value()) << inventory.error().message();
  EXPECT_EQ(inventory->driver_version, "550.1?");
  ASSERT_EQ(inventory->gpus.size(), 3u);
  const DiscoveredGpu& gpu = inventory->gpus[1];
  EXPECT_EQ(gpu.index, 1u);
  EXPECT_EQ(gpu.uuid, "GPU-fake-1");
  EXPECT_EQ(gpu.minor, 1u);
  EXPECT_EQ(gpu.type, "rtx4090");
  EXPECT_EQ(gpu.memory_total, MiB(24564));
  EXPECT_EQ(gpu.memory_usable, MiB(24564 - 346));
  EXPECT_EQ(gpu.mig_capable, false);
  EXPECT_FALSE(gpu.power_limit_milliwatts.has_value()) << "unknown is not zero";
  EXPECT_EQ(gpu.numa_node, -1);
  EXPECT_EQ(gpu.links,
            (std::vector<PeerLink>{{0, LinkKind::pcie_host_bridge}, {2, LinkKind::pcie_host_bridge}}));
  EXPECT_TRUE(host->source().answering);
  EXPECT_EQ(discover()->gpus, inventory->gpus) << "asked again, it answers the same";
}

TEST_F(NvmlHostTest, ShowsProcessesWithTheirUsers) {
  const std::string self = std::to_string(::getpid());
  driver.set("process 1 " + self + " 104857601\nprocess 1 4194305 na\n");
  ASSERT_TRUE(discover().has_value());
  const auto mine = [&]() -> const GpuProcess* {
    const GpuStatus* const status = host->status(1);
    if (!status->reading || !status->reading->processes) return nullptr;
    for (const GpuProcess& process : *status->reading->processes) {
      if (process.pid == ::getpid()) return &process;
    }
    return nullptr;
  };
  ASSERT_TRUE(turn_until([&] { return mine() != nullptr && !mine()->user.empty(); }));
  EXPECT_EQ(mine()->uid, ::getuid());
  EXPECT_TRUE(mine()->start_ticks.has_value());
  EXPECT_EQ(mine()->memory, MiB(101)) << "what is used rounds up";
  const GpuReading& reading = *host->status(1)->reading;
  EXPECT_EQ(reading.memory_used, MiB(101));
  EXPECT_EQ(reading.utilisation_percent, 37u);
  EXPECT_FALSE(reading.temperature_celsius.has_value());
  const GpuProcess& gone = reading.processes->back();  // a number no process can have
  EXPECT_EQ(gone.pid, 4194305);
  EXPECT_FALSE(gone.uid.has_value() || gone.start_ticks.has_value() || gone.memory.has_value());
}

TEST_F(NvmlHostTest, ACheckSeesWhatIsThereNow) {
  options.sample_period = kHour;  // so that only the check can
  driver.set("process 0 4194305 1048576\n");
  ASSERT_TRUE(discover().has_value());
  auto reading = check(0);
  ASSERT_TRUE(reading.has_value()) << reading.error().message();
  EXPECT_EQ(reading->processes->size(), 1u);
  driver.set("");
  reading = check(0);
  ASSERT_TRUE(reading.has_value());
  EXPECT_TRUE(reading->processes->empty());
  EXPECT_EQ(reading->memory_used, MiB(0));
  EXPECT_EQ(check(7).error().code(), ErrorCode::not_found);
}

TEST_F(NvmlHostTest, UnknownStaysUnknown) {
  driver.set("code processes 0 999\ncode utilization * 3\n");
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(read_again(0));
  const GpuReading& reading = *host->status(0)->reading;
  EXPECT_FALSE(reading.processes.has_value());
  EXPECT_FALSE(reading.utilisation_percent.has_value());
  EXPECT_EQ(reading.memory_used, MiB(0));
  const auto checked = check(0);
  ASSERT_TRUE(checked.has_value());
  EXPECT_FALSE(checked->processes.has_value());
}

TEST_F(NvmlHostTest, OneGpuThatHangsFailsAloneAndNothingIsKilled) {
  driver.set("count 3\n");
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(read_again(1));
  driver.set("count 3\nhang memory 1\n");
  ASSERT_TRUE(turn_until([&] { return host->status(1)->health == Health::failed; }));
  EXPECT_NE(host->status(1)->health_reason.find("nvmlDeviceGetMemoryInfo"), std::string::npos);
  const Duration last = host->status(1)->reading->taken_at;
  EXPECT_TRUE(read_again(0) && read_again(2));
  EXPECT_EQ(host->status(1)->reading->taken_at, last) << "an old value keeps its age";
  EXPECT_TRUE(check(2).has_value());
  EXPECT_EQ(check(1).error().code(), ErrorCode::unavailable);
  EXPECT_EQ(edges, std::vector<std::string>{"1 failed"});
  EXPECT_EQ(host->source().restarts, 0u);

  driver.set("count 3\n");
  ASSERT_TRUE(turn_until([&] { return host->status(1)->health == Health::ok; }));
  EXPECT_TRUE(check(1).has_value());
}

TEST_F(NvmlHostTest, WhenTheDriversLockIsHeldTheCulpritIsLeftOut) {
  driver.set("count 3\n");
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(read_again(0));
  driver.set("count 3\nlock memory 2\n");
  ASSERT_TRUE(turn_until([&] { return host->source().restarts > 0 && host->source().answering; }));
  ASSERT_TRUE(read_again(0) && read_again(1)) << host->source().problem;
  // The first that is seen stuck may have only waited for the lock: then there is a second start.
  ASSERT_TRUE(turn_until([&] { return host->status(2)->health == Health::failed; }));
  EXPECT_LE(host->source().restarts, 3u);
}

TEST_F(NvmlHostTest, ALeftOutGpuIsAskedAgain) {
  options.retry_delay_min = 500 * kMillisecond;
  ASSERT_TRUE(discover().has_value());
  driver.set("lock memory 1\n");
  ASSERT_TRUE(turn_until([&] { return host->status(1)->health == Health::failed; }));
  driver.set("");
  ASSERT_TRUE(turn_until(
      [&] { return host->status(1)->health == Health::ok && host->status(0)->health == Health::ok; }));
  EXPECT_TRUE(read_again(1));
}

TEST_F(NvmlHostTest, ASamplerThatEndsIsStartedAgain) {
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(read_again(0));
  driver.set("exit memory 0\n");
  ASSERT_TRUE(turn_until([&] { return host->source().restarts > 0; }));
  EXPECT_TRUE(host->status(0)->reading.has_value()) << "the last value stays";
  driver.set("");
  EXPECT_TRUE(read_again(0) && read_again(1));
  EXPECT_TRUE(edges.empty()) << "the sampler's end says nothing of a GPU: " << edges.front();
}

TEST_F(NvmlHostTest, ASamplerThatFallsSilentIsKilledAndStartedAgain) {
  options.progress_deadline = 500 * kMillisecond;
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(read_again(0));
  driver.set("stop memory 0\n");
  ASSERT_TRUE(turn_until([&] { return host->source().restarts > 0; }));
  EXPECT_NE(host->source().problem, "");
  driver.set("");
  EXPECT_TRUE(read_again(0) && read_again(1));
}

TEST_F(NvmlHostTest, ALostGpuIsLost) {
  ASSERT_TRUE(discover().has_value());
  driver.set("code memory 1 15\ncode processes 1 15\n");
  ASSERT_TRUE(turn_until([&] { return host->status(1)->health == Health::lost; }));
  EXPECT_EQ(host->status(0)->health, Health::ok);
  EXPECT_EQ(check(1).error().code(), ErrorCode::unavailable);
}

TEST_F(NvmlHostTest, AGpuThatIsNotListedAnyMoreIsLost) {
  driver.set("count 2\n");
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(read_again(0));
  driver.set("count 1\nexit memory 0\n");
  ASSERT_TRUE(turn_until([&] { return host->source().restarts > 0; }));
  driver.set("count 1\n");
  ASSERT_TRUE(turn_until([&] { return host->status(1)->health == Health::lost; }));
  EXPECT_TRUE(read_again(0));
}

TEST_F(NvmlHostTest, AnXidOfAProgramIsToldAndTheGpuIsWell) {
  make_host();
  std::vector<std::string> xids;
  host->on_xid([&](uint32_t index, const XidEvent& event) {
    xids.push_back(std::to_string(index) + " " + std::to_string(event.code) +
                   (event.of_the_job ? " job" : " gpu"));
    return std::set<uid_t>{};
  });
  ASSERT_TRUE(discover().has_value());
  driver.set("xid 31 1\nxid 63 0\n");
  ASSERT_TRUE(turn_until([&] { return xids.size() == 2; }));
  EXPECT_EQ(xids, (std::vector<std::string>{"1 31 job", "0 63 gpu"}));
  EXPECT_EQ(host->status(1)->health, Health::ok);
  EXPECT_EQ(host->status(0)->health, Health::degraded) << "a row waits to be remapped";
}

TEST_F(NvmlHostTest, ProgramsOfDifferentUsersThatFailMakeTheirGpuSuspectWithoutAReadingBetween) {
  // Nobody's process is in any reading: whose jobs are there is what counts.
  make_host();
  std::vector<uid_t> owners;
  size_t told = 0;
  host->on_xid([&](uint32_t, const XidEvent&) { return std::set<uid_t>{owners.at(told++)}; });
  ASSERT_TRUE(discover().has_value());
  std::string lines;
  const auto fail_for = [&](uid_t owner) {
    owners.push_back(owner);
    lines += "xid 13 1\n";
    driver.set(lines);
    return turn_until([&] { return told == owners.size(); });
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(fail_for(2001));
  EXPECT_EQ(host->status(1)->health, Health::ok) << "one user's programs say nothing of the GPU";
  ASSERT_TRUE(fail_for(2002));
  EXPECT_EQ(host->status(1)->health, Health::degraded);
}

TEST_F(NvmlHostTest, AGpuComesBackWhenItsDriverRecommendsNothingAnyMore) {
  ASSERT_TRUE(discover().has_value());
  driver.set("xid 95 0\nrecovery 0 1\n");
  ASSERT_TRUE(turn_until([&] { return host->status(0)->health == Health::failed; }));
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(read_again(0));
  EXPECT_EQ(host->status(0)->health, Health::failed) << "it answers, and still asks for a reset";
  driver.set("xid 95 0\n");
  ASSERT_TRUE(turn_until([&] { return host->status(0)->health == Health::ok; }));
  EXPECT_EQ(edges, (std::vector<std::string>{"0 failed", "0 ok"}));
}

TEST_F(NvmlHostTest, WithoutTheDriversVerdictAnXidStandsUntilAnOperatorAbsolves) {
  options.library_dir = fake_nvml_directory("2");  // has neither the field nor events
  ASSERT_TRUE(discover().has_value());
  host->remember_xid(1, 119);
  EXPECT_EQ(host->status(1)->health, Health::failed);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(read_again(1));
  EXPECT_EQ(host->status(1)->health, Health::failed) << "good readings do not disprove it";
  host->absolve(1);
  EXPECT_EQ(host->status(1)->health, Health::ok);
  EXPECT_EQ(edges, (std::vector<std::string>{"1 failed", "1 ok"}));
}

TEST_F(NvmlHostTest, AMissingDeviceNodeFailsTheGpuUntilItIsThere) {
  char folder[] = "/tmp/fake-dev-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  options.dev_root = folder;
  const auto make = [&](const char* name) { FakeDriver::touch(options.dev_root + "/" + name); };
  for (const char* name : {"nvidiactl", "nvidia0", "nvidia1"}) make(name);
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(turn_until([&] { return host->status(0)->health == Health::failed; }));
  EXPECT_NE(host->status(0)->health_reason.find("/dev/nvidia-uvm"), std::string::npos);
  make("nvidia-uvm");
  ASSERT_TRUE(turn_until(
      [&] { return host->status(0)->health == Health::ok && host->status(1)->health == Health::ok; }));
  for (const char* name : {"nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm"}) {
    ::unlink((options.dev_root + "/" + name).c_str());
  }
  ::rmdir(folder);
}

TEST_F(NvmlHostTest, AChangeFromOutsideIsNoticedAndDescribed) {
  make_host();
  int changes = 0;
  host->on_inventory([&] { ++changes; });
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(read_again(1));
  driver.set("minor 1 7\n");
  ASSERT_TRUE(turn_until([&] { return changes == 1; }));
  auto inventory = discover();
  ASSERT_TRUE(inventory.has_value());
  EXPECT_EQ(inventory->gpus[1].minor, 7u);
  EXPECT_EQ(inventory->gpus[1].index, 1u);
  ASSERT_TRUE(read_again(1));
  driver.set("minor 1 7\nmig 0 MIG-a MIG-b\n");
  ASSERT_TRUE(turn_until([&] { return changes == 2; }));
  inventory = discover();
  EXPECT_EQ(inventory->gpus[0].mig_enabled, true);
  ASSERT_EQ(inventory->gpus[0].mig_devices.size(), 2u);
  EXPECT_EQ(inventory->gpus[0].mig_devices[1].uuid, "MIG-b");
  EXPECT_EQ(inventory->gpus[0].mig_devices[1].gpu_instance, 2u);
  EXPECT_EQ(inventory->gpus[0].mig_devices[1].memory, MiB(9984));
  EXPECT_TRUE(edges.empty()) << "a change is no illness: " << edges.front();
}

TEST_F(NvmlHostTest, AVirtualGuestIsKnownAsSuch) {
  driver.set("guest 1 1\n");
  const auto inventory = discover();
  ASSERT_TRUE(inventory.has_value());
  EXPECT_FALSE(inventory->gpus[0].virtual_guest);
  EXPECT_TRUE(inventory->gpus[1].virtual_guest);
}

TEST_F(NvmlHostTest, ADriverThatLetsNobodyInFailsEveryGpuWhileOldReadingsGoOn) {
  ASSERT_TRUE(discover().has_value());
  ASSERT_TRUE(read_again(0));
  driver.set("code init * 18\n");
  host->look_again();
  ASSERT_TRUE(turn_until([&] { return host->status(0)->health == Health::failed; }));
  EXPECT_EQ(host->status(1)->health, Health::failed);
  EXPECT_NE(host->source().driver_problem.find("reboot"), std::string::npos) << host->source().driver_problem;
  EXPECT_TRUE(host->source().answering);
  EXPECT_TRUE(read_again(0)) << "what runs is still seen";
  driver.set("");
  ASSERT_TRUE(turn_until([&] {
    host->look_again();
    return host->status(0)->health == Health::ok && host->status(1)->health == Health::ok;
  }));
  EXPECT_EQ(host->source().driver_problem, "");
  EXPECT_EQ(host->source().restarts, 0u);
}

TEST_F(NvmlHostTest, WindowsSubsystemForLinuxIsRefused) {
  char folder[] = "/tmp/fake-proc-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  options.proc_root = folder;
  ASSERT_EQ(::mkdir((options.proc_root + "/sys").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir((options.proc_root + "/sys/kernel").c_str(), 0755), 0);
  FakeDriver::touch(options.proc_root + "/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
  const auto inventory = discover();
  ASSERT_FALSE(inventory.has_value());
  EXPECT_NE(inventory.error().message().find("Windows Subsystem for Linux"), std::string::npos);
  ::unlink((options.proc_root + "/sys/kernel/osrelease").c_str());
  for (const char* name : {"/sys/kernel", "/sys", ""}) ::rmdir((options.proc_root + name).c_str());
}

TEST_F(NvmlHostTest, ADriverThatHangsAtTheStartIsAnErrorInTime) {
  options.inventory_deadline = 500 * kMillisecond;
  driver.set("hang init *\n");
  const auto inventory = discover();
  ASSERT_FALSE(inventory.has_value());
  EXPECT_EQ(inventory.error().code(), ErrorCode::timed_out);
  driver.set("");
  options.inventory_deadline = kPatience;
  make_host();
  EXPECT_TRUE(discover().has_value());
}

TEST_F(NvmlHostTest, AGpuThatHangsWhenLookedAtIsLeftOut) {
  driver.set("count 3\nhang uuid 1\n");
  const auto inventory = discover();
  ASSERT_TRUE(inventory.has_value()) << inventory.error().message();
  ASSERT_EQ(inventory->gpus.size(), 2u);
  EXPECT_EQ(inventory->gpus[1].index, 2u) << "the others keep their index";
  ASSERT_EQ(inventory->problems.size(), 1u);
  EXPECT_NE(inventory->problems[0].find("GPU 1"), std::string::npos);
  EXPECT_TRUE(read_again(2));
}

TEST_F(NvmlHostTest, AMachineWithoutADriverSaysWhatToDo) {
  options.library_dir = "/nonexistent";
  const auto inventory = discover();
  ASSERT_FALSE(inventory.has_value());
  EXPECT_EQ(inventory.error().code(), ErrorCode::unavailable);
  EXPECT_NE(inventory.error().message().find("install the NVIDIA driver"), std::string::npos);
  EXPECT_FALSE(host->source().answering);
}

TEST_F(NvmlHostTest, AModuleThatIsNotLoadedSaysSo) {
  driver.set("code init * 9\n");
  const auto inventory = discover();
  ASSERT_FALSE(inventory.has_value());
  EXPECT_NE(inventory.error().message().find("kernel driver is not loaded"), std::string::npos);
}

TEST_F(NvmlHostTest, NoGpusAreNoError) {
  driver.set("count 0\n");
  const auto inventory = discover();
  ASSERT_TRUE(inventory.has_value()) << inventory.error().message();
  EXPECT_TRUE(inventory->gpus.empty());
}

TEST_F(NvmlHostTest, AMissingOrUselessProgramIsAnError) {
  options.sampler_program = "/nonexistent/tranche-sampler";
  EXPECT_FALSE(discover().has_value());
  options.sampler_program = "/bin/false";
  make_host();
  EXPECT_EQ(discover().error().code(), ErrorCode::unavailable);
}

TEST_F(NvmlHostTest, SurvivesASamplerThatBabbles) {
  options.sampler_program = BABBLING_SAMPLER_PROGRAM;
  options.restart_delay_min = kHour;
  int adopted = 0;
  for (int seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ::setenv("BABBLE_SEED", std::to_string(seed).c_str(), 1);
    make_host();
    const auto inventory = discover();
    if (!inventory) continue;
    ++adopted;
    for (const DiscoveredGpu& gpu : inventory->gpus) {
      EXPECT_LT(gpu.index, sampler::kGpusMax);
      host->check_now(gpu.index, [](Result<GpuReading>) {});
    }
    ASSERT_TRUE(turn_until([&] { return host->source().restarts > 0; }));
    for (const DiscoveredGpu& gpu : inventory->gpus) {
      const auto& reading = host->status(gpu.index)->reading;
      EXPECT_LE(reading ? reading->utilisation_percent.value_or(0) : 0, 100u);
    }
  }
  ::unsetenv("BABBLE_SEED");
  EXPECT_GT(adopted, 50) << "most conversations must get far enough to matter";
}

TEST_F(NvmlHostTest, DestroyedWhileQuestionsWaitItAnswersNone) {
  driver.set("hang processes *\n");
  ASSERT_TRUE(discover().has_value());
  bool answered = false;
  host->check_now(0, [&](Result<GpuReading>) { answered = true; });
  host->discover([&](Result<GpuInventory>) { answered = true; });
  host.reset();
  bool turned = false;
  reactor->post([&] { turned = true; });
  EXPECT_TRUE(turn_until([&] { return turned; }));
  EXPECT_FALSE(answered);
}

}  // namespace
}  // namespace tranche
