#include "emulator/device_model.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <thread>

#include "base/random.h"
#include "emulator/robust_lock.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

// A server in a folder of its own, of two T4.
class DeviceModelTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "device_model_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ServerDescription server;
    ASSERT_TRUE(add_boards("t4:2", server));
    auto model = DeviceModel::create(directory_, server);
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
  }
  void TearDown() override {
    for (const char* name : {"/device_model", "/processes"}) unlink((directory_ + name).c_str());
    rmdir(directory_.c_str());
  }

  // Runs `work` in another process, with a model of its own; it says it is ready by writing to the pipe.
  pid_t spawn(const std::function<void(DeviceModel&, uint32_t slot, int ready)>& work, int ready = -1) {
    const pid_t child = fork();
    if (child != 0) return child;
    auto model = DeviceModel::attach(directory_);
    if (!model) _exit(1);
    const auto slot = (*model)->enter();
    if (!slot) _exit(2);
    work(**model, *slot, ready);
    _exit(0);
  }

  // Spawns, and returns once `work` has written a byte and only waits to be killed.
  pid_t spawn_until_ready(const std::function<void(DeviceModel&, uint32_t)>& work) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = spawn(
        [&work](DeviceModel& model, uint32_t slot, int ready) {
          work(model, slot);
          if (write(ready, "r", 1) != 1) _exit(3);
          for (;;) pause();
        },
        ends[1]);
    close(ends[1]);
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return child;
  }

  static void kill_and_reap(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  std::string directory_;
  std::unique_ptr<DeviceModel> model_;
};

TEST_F(DeviceModelTest, AnotherProcessSeesTheSameServer) {
  const auto other = DeviceModel::attach(directory_);
  ASSERT_TRUE(other);
  EXPECT_EQ((*other)->gpu_count(), 2u);
  EXPECT_STREQ((*other)->identity(1).uuid_text.data(), model_->identity(1).uuid_text.data());
  EXPECT_STRNE(model_->identity(0).uuid_text.data(), model_->identity(1).uuid_text.data());
  EXPECT_EQ((*other)->driver_version(), "550.163.01");
}

TEST_F(DeviceModelTest, UuidsFollowTheServersName) {
  const std::string first = model_->identity(0).uuid_text.data();
  ServerDescription server;
  ASSERT_TRUE(add_boards("t4:2", server));
  ASSERT_EQ(std::string((*DeviceModel::create(directory_, server))->identity(0).uuid_text.data()), first);
  server.name = "another";
  EXPECT_NE(std::string((*DeviceModel::create(directory_, server))->identity(0).uuid_text.data()), first);
}

TEST_F(DeviceModelTest, AForeignFileIsRefused) {
  std::ofstream(directory_ + "/device_model") << "not a device model";
  const auto model = DeviceModel::attach(directory_);
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message().find("start again"), std::string::npos);
}

TEST_F(DeviceModelTest, MemoryEndsExactlyAtTheUsableBytes) {
  const uint32_t slot = *model_->enter();
  ASSERT_TRUE(model_->add_context(slot, 0, 130 * kMebibyte));
  const uint64_t rest = model_->usable_bytes(0) - 130 * kMebibyte;
  EXPECT_FALSE(model_->charge(slot, 0, rest + 1));
  EXPECT_TRUE(model_->charge(slot, 0, rest));
  EXPECT_EQ(model_->free_bytes(0), 0u);
  EXPECT_FALSE(model_->charge(slot, 0, 1));
  EXPECT_EQ(model_->free_bytes(1), model_->usable_bytes(1)) << "the other GPU is untouched";
  model_->discharge(slot, 0, rest);
  EXPECT_TRUE(model_->charge(slot, 0, rest));
  model_->leave(slot);
  EXPECT_EQ(model_->free_bytes(0), model_->usable_bytes(0));
}

TEST_F(DeviceModelTest, ReadersSeeWhoHasWhat) {
  const pid_t child = spawn_until_ready([](DeviceModel& model, uint32_t slot) {
    model.add_context(slot, 1, 100 * kMebibyte);
    model.charge(slot, 1, 500 * kMebibyte);
  });
  EXPECT_TRUE(model_->processes(0).empty());
  const auto processes = model_->processes(1);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].pid, child);
  EXPECT_EQ(processes[0].used_bytes, 600 * kMebibyte);
  EXPECT_EQ(model_->read(1).used_bytes, 600 * kMebibyte);
  kill_and_reap(child);
}

TEST_F(DeviceModelTest, AKilledProcessLeavesNothing) {
  const pid_t child = spawn_until_ready([](DeviceModel& model, uint32_t slot) {
    model.add_context(slot, 0, 100 * kMebibyte);
    model.charge(slot, 0, model.free_bytes(0));
    model.launch(slot, 0, {3'600'000'000'000});
  });
  const uint32_t slot = *model_->enter();
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);  // a zombie: dead, but not reaped
  EXPECT_TRUE(model_->charge(slot, 0, kMebibyte)) << "an allocation finds the dead in its way";
  EXPECT_TRUE(model_->processes(0).empty());
  EXPECT_EQ(model_->read(0).used_bytes, kMebibyte);
  const Launched mine = model_->launch(slot, 0, {1000});
  model_->wait(slot, 0, mine.tag);
  EXPECT_TRUE(model_->is_done(slot, 0, mine.tag)) << "the dead process's hour of work is not waited for";
  waitpid(child, nullptr, 0);
  model_->leave(slot);
}

TEST_F(DeviceModelTest, AWaiterGoesOnWhenItsNeighbourIsKilled) {
  const pid_t child = spawn_until_ready(
      [](DeviceModel& model, uint32_t slot) { model.launch(slot, 0, {3'600'000'000'000}); });
  const uint32_t slot = *model_->enter();
  const Launched mine = model_->launch(slot, 0, {3'000'000'000'000});
  std::thread waiter([&] { model_->wait(slot, 0, mine.tag); });
  kill_and_reap(child);
  model_->cancel(slot, 0);
  waiter.join();  // returns, since nothing is left at work
  model_->leave(slot);
}

TEST_F(DeviceModelTest, ExecutingAnotherProgramClosesTheAccount) {
  const pid_t child = spawn([](DeviceModel& model, uint32_t slot, int) {
    model.charge(slot, 0, kMebibyte);
    execl("/bin/sleep", "sleep", "1000", nullptr);
  });
  const std::string name = "/proc/" + std::to_string(child) + "/comm";
  std::string command;
  while (command != "sleep") std::getline(std::ifstream(name), command);
  EXPECT_EQ(model_->read(0).used_bytes, 0u);
  kill_and_reap(child);
}

TEST_F(DeviceModelTest, AChildOfAForkIsNotItsParent) {
  const pid_t parent = spawn_until_ready([](DeviceModel& model, uint32_t slot) {
    model.charge(slot, 0, kMebibyte);
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);  // outlives its parent, but not for long
      sigset_t only_term;
      sigemptyset(&only_term);
      sigaddset(&only_term, SIGTERM);
      sigprocmask(SIG_BLOCK, &only_term, nullptr);
      alarm(10);  // if the parent died before prctl(), nothing would ever come
      int number = 0;
      sigwait(&only_term, &number);
      sleep(1);
      _exit(0);
    }
  });
  kill_and_reap(parent);
  EXPECT_EQ(model_->read(0).used_bytes, 0u) << "the orphan holds nothing";
}

// Children charge and launch at random and are killed at random moments, often inside a lock.
TEST_F(DeviceModelTest, KillsAtRandomMomentsLeaveTheLedgerExact) {
  const char* const chosen = std::getenv("TRANCHE_SEED");
  const uint64_t seed = chosen == nullptr ? 20261130 : std::strtoull(chosen, nullptr, 10);
  const int kKills = std::getenv("TRANCHE_LONG") == nullptr ? 120 : 10'000;
  std::printf("seed %llu, %d kills\n", static_cast<unsigned long long>(seed), kKills);
  Random random(seed);
  model_->set_sharing(1, Sharing::side_by_side);
  std::map<pid_t, int> children;
  const auto work = [](DeviceModel& model, uint32_t slot, int) {
    Random steps(static_cast<uint64_t>(getpid()));
    model.add_context(slot, 0, 2 * kMebibyte);
    model.add_context(slot, 1, 2 * kMebibyte);
    for (;;) {
      const auto gpu = static_cast<uint32_t>(steps.below(2));
      const uint64_t bytes = (1 + steps.below(1000)) * kMebibyte;
      if (model.charge(slot, gpu, bytes))
        model.discharge(slot, gpu, bytes / 2);
      else
        model.discharge(slot, gpu, 500 * kMebibyte);
      model.launch(slot, gpu, {steps.below(1'000'000), static_cast<uint32_t>(steps.below(1001))});
    }
  };
  for (int kills = 0; kills < kKills; ++kills) {
    while (children.size() < 4) children.emplace(spawn(work), 0);
    usleep(static_cast<useconds_t>(random.below(3000)));  // any moment is a good one
    auto victim = children.begin();
    std::advance(victim, static_cast<long>(random.below(children.size())));
    kill_and_reap(victim->first);
    children.erase(victim);
    for (uint32_t gpu = 0; gpu < 2; ++gpu) {
      EXPECT_LE(model_->read(gpu).used_bytes, model_->usable_bytes(gpu));
    }
    ASSERT_FALSE(HasFailure()) << "after " << kills << " kills";
  }
  for (const auto& [child, unused] : children) kill_and_reap(child);
  for (uint32_t gpu = 0; gpu < 2; ++gpu) {
    EXPECT_EQ(model_->read(gpu).used_bytes, 0u);
    EXPECT_TRUE(model_->processes(gpu).empty());
  }
}

constexpr uint32_t kProhibited = 2, kExclusiveProcess = 3;  // NVML's numbers

// nvidia-smi, compute mode: "only one context ... by a single process", and none at all.
TEST_F(DeviceModelTest, AnExclusiveGpuHasOneProcessAndAProhibitedOneNone) {
  const pid_t child =
      spawn_until_ready([](DeviceModel& model, uint32_t slot) { model.add_context(slot, 0, kMebibyte); });
  const uint32_t slot = *model_->enter();
  model_->settings(0).compute_mode.store(kExclusiveProcess);
  EXPECT_EQ(model_->admit_context(slot, 0, kMebibyte), Admission::used_by_another);
  EXPECT_EQ(model_->admit_context(slot, 1, kMebibyte), Admission::admitted) << "the mode is a GPU's own";
  kill_and_reap(child);
  EXPECT_EQ(model_->admit_context(slot, 0, kMebibyte), Admission::admitted) << "the dead are in nobody's way";
  EXPECT_EQ(model_->admit_context(slot, 0, kMebibyte), Admission::admitted) << "contexts of one process";
  model_->settings(0).compute_mode.store(kProhibited);
  EXPECT_EQ(model_->admit_context(slot, 0, kMebibyte), Admission::prohibited);
  EXPECT_EQ(model_->read(0).used_bytes, 2 * kMebibyte) << "what is there stays";
  model_->leave(slot);
}

// Clients of MPS are one process to the exclusive mode; enforcement.md 1: a fatal fault hits all clients on
// the GPU, and the server refuses new ones until the affected ones have ended.
TEST_F(DeviceModelTest, ClientsOfMpsShareAGpuAndItsFaults) {
  model_->set_sharing(0, Sharing::side_by_side);
  model_->settings(0).compute_mode.store(kExclusiveProcess);
  const pid_t child =
      spawn_until_ready([](DeviceModel& model, uint32_t slot) { model.add_context(slot, 0, kMebibyte); });
  const uint32_t slot = *model_->enter();
  EXPECT_EQ(model_->admit_context(slot, 0, kMebibyte), Admission::admitted);
  model_->raise_xid(0, 31, child);
  constexpr int32_t kIllegalAddress = 700;
  EXPECT_EQ(model_->own_fault(0), kIllegalAddress) << "its neighbour's fault";
  model_->leave(slot);
  const uint32_t again = *model_->enter();
  EXPECT_EQ(model_->admit_context(again, 0, kMebibyte), Admission::mps_recovers);
  kill_and_reap(child);
  EXPECT_EQ(model_->admit_context(again, 0, kMebibyte), Admission::admitted);
  model_->leave(again);
}

TEST_F(DeviceModelTest, MpsServes48Clients) {
  model_->set_sharing(0, Sharing::side_by_side);
  std::vector<pid_t> children;
  for (int i = 0; i < 48; ++i) {
    children.push_back(
        spawn_until_ready([](DeviceModel& model, uint32_t slot) { model.add_context(slot, 0, kMebibyte); }));
  }
  const uint32_t slot = *model_->enter();
  EXPECT_EQ(model_->admit_context(slot, 0, kMebibyte), Admission::mps_is_full);
  kill_and_reap(children.back());
  EXPECT_EQ(model_->admit_context(slot, 0, kMebibyte), Admission::admitted);
  children.pop_back();
  for (const pid_t child : children) kill_and_reap(child);
  model_->leave(slot);
}

// Virtual time: one client, whose every wait is exact.
class VirtualTimeTest : public DeviceModelTest {
 protected:
  void SetUp() override {
    DeviceModelTest::SetUp();
    slot_ = *model_->enter();
    model_->start_lock_step(1);
    model_->join_lock_step(0, slot_);
  }
  void TearDown() override {
    model_->leave_lock_step();
    model_->leave(slot_);
    DeviceModelTest::TearDown();
  }
  uint64_t duration(const GpuWork& work) {
    const uint64_t begin = model_->now();
    model_->wait(slot_, 0, model_->launch(slot_, 0, work).tag);
    return model_->now() - begin;
  }
  uint32_t slot_ = 0;
};

TEST_F(VirtualTimeTest, AThrottledGpuIsAsSlowAsTheClockItShows) {
  model_->add_context(slot_, 0, kMebibyte);
  const GpuWork kernel{3'000'000, 1000, false, {}}, copy{3'000'000, 0, true, {}};
  const auto ratio_shown = [&] {
    return static_cast<double>(model_->board(0).clock_max_mhz) / model_->read(0).clock_mhz;
  };
  EXPECT_EQ(duration(kernel), 3'000'000u);
  for (const uint64_t reasons : {kReasonHardwareSlowdown | kReasonHardwareThermal, kReasonPowerCap}) {
    model_->throttle(0, reasons);
    EXPECT_GT(ratio_shown(), 1.2);
    EXPECT_NEAR(static_cast<double>(duration(kernel)), 3e6 * ratio_shown(), 3e6 * 0.005);
    EXPECT_EQ(duration(copy), 3'000'000u);
  }
  model_->throttle(0, 0);
  EXPECT_EQ(duration(kernel), 3'000'000u);
  model_->lock_clocks(0, 300, model_->board(0).clock_max_mhz / 2);
  EXPECT_NEAR(static_cast<double>(duration(kernel)), 3e6 * ratio_shown(), 3e6 * 0.005);
  model_->lock_clocks(0, 0, 0);
  EXPECT_EQ(duration(kernel), 3'000'000u);
}

TEST_F(VirtualTimeTest, ACopyCrossesTheBusEvenlyInItsTime) {
  GpuWork copy{10'000'000, 0, true, {}};
  copy.bus_bytes[static_cast<size_t>(Bus::to_gpu)] = 1'000'000;
  const uint64_t begin = model_->now();
  model_->launch(slot_, 0, {2'000'000});  // it comes after a kernel of its process
  const Launched launched = model_->launch(slot_, 0, copy);
  EXPECT_EQ(model_->bytes_moved(0, Bus::to_gpu), 0u) << "queued is not moved";
  model_->sleep_until_time(begin + 7'000'000);
  EXPECT_EQ(model_->bytes_moved(0, Bus::to_gpu), 500'000u);
  model_->wait(slot_, 0, launched.tag);
  EXPECT_EQ(model_->bytes_moved(0, Bus::to_gpu), 1'000'000u);
  EXPECT_EQ(model_->bytes_moved(0, Bus::from_gpu), 0u);
  EXPECT_EQ(model_->bytes_moved(1, Bus::to_gpu), 0u);
}

// cuMemRelease in cuda.h: shared memory is freed when all handles and mappings are gone, in whatever process.
TEST_F(DeviceModelTest, SharedMemoryIsChargedUntilItsLastHolderIsGone) {
  constexpr uint64_t kKey = 4711;
  const pid_t maker = spawn_until_ready([](DeviceModel& model, uint32_t slot) {
    model.add_context(slot, 0, kMebibyte);
    model.charge(slot, 0, 64 * kMebibyte);
    model.share_memory(slot, 0, kKey, 64 * kMebibyte);
  });
  const pid_t other = spawn_until_ready([](DeviceModel& model, uint32_t slot) {
    model.add_context(slot, 0, kMebibyte);
    model.hold_memory(slot, kKey);
  });
  EXPECT_EQ(model_->read(0).used_bytes, 66 * kMebibyte);
  kill_and_reap(maker);
  EXPECT_EQ(model_->read(0).used_bytes, 65 * kMebibyte) << "the maker's context alone is gone";
  ASSERT_EQ(model_->processes(0).size(), 1u);
  EXPECT_EQ(model_->processes(0)[0].used_bytes, 65 * kMebibyte) << "who is left pays";
  const uint32_t slot = *model_->enter();
  EXPECT_TRUE(model_->hold_memory(slot, kKey));
  kill_and_reap(other);
  EXPECT_EQ(model_->read(0).used_bytes, 64 * kMebibyte);
  model_->drop_memory(slot, kKey);
  EXPECT_EQ(model_->read(0).used_bytes, 0u);
  EXPECT_FALSE(model_->hold_memory(slot, kKey));
  model_->leave(slot);
}

TEST_F(DeviceModelTest, SixteenProcessesNeverGetMoreThanThereIs) {
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    children.push_back(spawn_until_ready([](DeviceModel& model, uint32_t slot) {
      while (model.charge(slot, 0, 64 * kMebibyte)) {
      }
    }));
  }
  EXPECT_LE(model_->read(0).used_bytes, model_->usable_bytes(0));
  EXPECT_GT(model_->read(0).used_bytes, model_->usable_bytes(0) - 64 * kMebibyte);
  for (const pid_t child : children) kill_and_reap(child);
  EXPECT_EQ(model_->read(0).used_bytes, 0u);
}

TEST(RobustLockTest, TheNextHolderRepairsWhatADeadOneLeft) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* mutex = new (memory) pthread_mutex_t;
  initialise_robust_mutex(*mutex);
  const pid_t child = fork();
  if (child == 0) {
    new RobustLock(*mutex, [] {});  // never released
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  int repairs = 0;
  {
    RobustLock lock(*mutex, [&] { ++repairs; });
  }
  {
    RobustLock lock(*mutex, [&] { ++repairs; });
  }
  EXPECT_EQ(repairs, 1);
  munmap(memory, 4096);
}

}  // namespace
}  // namespace tranche::emulator
