// Faults in the device model: who is hit, what stays, what comes back. What programs see of them through the
// libraries is in tests/clients and tests/e2e/gpu_faults_test.py.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include "emulator/device_model.h"
#include "emulator/xid.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kMebibytes = uint64_t{1} << 20;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int32_t kIllegalAddress = 700, kEccUncorrectable = 214, kUnknown = 999;

class FaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "faults_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ServerDescription server;
    ASSERT_TRUE(add_boards("a100-80:2", server));
    auto model = DeviceModel::create(directory_, server);
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
  }
  void TearDown() override {
    for (const char* name : {"/device_model", "/processes"}) unlink((directory_ + name).c_str());
    rmdir(directory_.c_str());
  }

  // A process with a context and memory on each of `gpus`; it works until it is killed, or exits with what
  // its contexts are stuck with (divided by 10, to fit) once that is something.
  pid_t start_worker(std::initializer_list<uint32_t> gpus) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto model = DeviceModel::attach(directory_);
      const auto slot = model ? (*model)->enter() : Result<uint32_t>(fail(ErrorCode::internal, ""));
      if (!slot) _exit(1);
      for (const uint32_t gpu : gpus) {
        if (!(*model)->add_context(*slot, gpu, 400 * kMebibytes)) _exit(2);
        if (!(*model)->charge(*slot, gpu, 1000 * kMebibytes)) _exit(2);
      }
      if (write(ends[1], "r", 1) != 1) _exit(3);
      for (;;) {
        for (const uint32_t gpu : gpus) {
          (*model)->wait(*slot, gpu,
                         (*model)->launch(*slot, gpu, {600 * kSecondNs}).tag);  // far longer than any test
          const int32_t fault = (*model)->own_fault(gpu);
          if (fault != 0) _exit(fault / 10);
        }
      }
    }
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    workers_.push_back(child);
    return child;
  }
  int end_of(pid_t worker) {
    int status = 0;
    waitpid(worker, &status, 0);
    std::erase(workers_, worker);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int kill_worker(pid_t worker) {
    kill(worker, SIGKILL);
    return end_of(worker);
  }
  bool is_running(pid_t worker) { return waitpid(worker, nullptr, WNOHANG) == 0; }

  ~FaultsTest() override {
    for (const pid_t worker : workers_) {
      kill(worker, SIGKILL);
      waitpid(worker, nullptr, 0);
    }
  }

  std::string directory_;
  std::unique_ptr<DeviceModel> model_;
  std::vector<pid_t> workers_;
};

TEST_F(FaultsTest, AnApplicationsXidHitsTheProcessAtFaultAndNobodyElse) {
  const pid_t guilty = start_worker({0}), neighbour = start_worker({0}), elsewhere = start_worker({1});
  model_->raise_xid(0, 31, guilty);
  EXPECT_EQ(end_of(guilty), kIllegalAddress / 10) << "it waited for 600 s of work, and its wait has ended";
  EXPECT_TRUE(is_running(neighbour));
  EXPECT_TRUE(is_running(elsewhere));
  EXPECT_EQ(model_->refusal(0), 0) << "the GPU is well";
}

TEST_F(FaultsTest, AnUncontainedErrorEndsAllOnTheGpuAndClosesItUntilReset) {
  const pid_t one = start_worker({0}), other = start_worker({0}), elsewhere = start_worker({1});
  model_->raise_xid(0, 95, one);
  EXPECT_EQ(end_of(one), kEccUncorrectable / 10);
  EXPECT_EQ(end_of(other), kEccUncorrectable / 10);
  EXPECT_TRUE(is_running(elsewhere));
  EXPECT_EQ(model_->refusal(0), kEccUncorrectable);
  EXPECT_EQ(model_->refusal(1), 0);
  EXPECT_FALSE(model_->is_lost(0));
  model_->clear_faults(0);
  EXPECT_EQ(model_->refusal(0), 0);
}

TEST_F(FaultsTest, AGpuOffTheBusIsLostUntilItIsPutRight) {
  const pid_t worker = start_worker({1});
  model_->raise_xid(1, 79);
  EXPECT_EQ(end_of(worker), kUnknown / 10);
  EXPECT_TRUE(model_->is_lost(1));
  EXPECT_FALSE(model_->is_lost(0));
  EXPECT_EQ(model_->refusal(1), kUnknown);
  model_->clear_faults(1);
  EXPECT_FALSE(model_->is_lost(1));
}

TEST_F(FaultsTest, AnInformationalXidIsOnlyAnEvent) {
  const pid_t worker = start_worker({0});
  model_->raise_xid(0, 63);
  EXPECT_TRUE(is_running(worker));
  XidRecord xid;
  ASSERT_TRUE(model_->xid(0, xid));
  EXPECT_EQ(xid.code, 63u);
  EXPECT_EQ(xid.gpu, 0u);
}

TEST_F(FaultsTest, XidsAreNumberedAndTheOldestGo) {
  for (uint32_t i = 0; i < kXidsKept + 10; ++i) model_->raise_xid(i % 2, 900 + i % 50);
  XidRecord xid;
  EXPECT_EQ(model_->xid_count(), kXidsKept + 10);
  EXPECT_FALSE(model_->xid(5, xid)) << "no longer kept";
  EXPECT_FALSE(model_->xid(model_->xid_count(), xid)) << "not happened yet";
  ASSERT_TRUE(model_->xid(model_->xid_count() - 1, xid));
  EXPECT_EQ(xid.code, 900 + (kXidsKept + 9) % 50);
}

TEST_F(FaultsTest, WhoWaitsForAnXidIsWoken) {
  bool woken = false;
  std::thread waiter([&] { woken = model_->wait_for_xid(0, 600 * kSecondNs); });
  model_->raise_xid(0, 13);
  waiter.join();
  EXPECT_TRUE(woken);
  EXPECT_FALSE(model_->wait_for_xid(1, 1000)) << "there is no second one";
}

TEST_F(FaultsTest, ABlockedCallReturnsWhenTheFaultIsTakenBack) {
  model_->block_nvml(model_->faults(0).nvml, kForEver);
  model_->wait_while_nvml_blocked(1);  // another GPU's
  std::thread blocked([&] { model_->wait_while_nvml_blocked(0); });
  model_->clear_faults(0);
  blocked.join();
  model_->block_nvml(model_->faults(0).nvml, monotonic_now() + 1'000'000);
  model_->wait_while_nvml_blocked(0);  // returns by itself
}

TEST_F(FaultsTest, GhostMemoryStaysInUseUntilTheGpuIsReset) {
  const pid_t worker = start_worker({0});
  model_->faults(0).leaving.store(static_cast<uint32_t>(Leaving::memory));
  kill_worker(worker);
  EXPECT_EQ(model_->read(0).used_bytes, 1400 * kMebibytes);
  EXPECT_TRUE(model_->processes(0).empty()) << "nobody owns it";
  EXPECT_EQ(model_->free_bytes(0), model_->usable_bytes(0) - 1400 * kMebibytes);
  kill_worker(start_worker({0}));
  EXPECT_EQ(model_->read(0).used_bytes, 1400 * kMebibytes) << "only the first left something";
  model_->clear_faults(0);
  EXPECT_EQ(model_->read(0).used_bytes, 0u);
}

TEST_F(FaultsTest, AGhostProcessStaysInTheList) {
  const pid_t worker = start_worker({0});
  model_->faults(0).leaving.store(static_cast<uint32_t>(Leaving::memory_and_name));
  kill_worker(worker);
  const auto processes = model_->processes(0);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].pid, worker);
  EXPECT_EQ(processes[0].used_bytes, 1400 * kMebibytes);
}

TEST_F(FaultsTest, ThrottlingShowsInClocksTemperatureAndTime) {
  const uint32_t cool = model_->read(0).temperature;
  model_->throttle(0, kReasonHardwareSlowdown | kReasonHardwareThermal);
  const GpuReading hot = model_->read(0);
  EXPECT_EQ(hot.throttle_reasons, kReasonHardwareSlowdown | kReasonHardwareThermal);
  EXPECT_GT(hot.temperature, cool);
  EXPECT_GT(model_->throttled_ns(0), 0u);
  model_->throttle(0, 0);
  const uint64_t total = model_->throttled_ns(0);
  EXPECT_EQ(model_->read(0).throttle_reasons, 0u);
  EXPECT_EQ(model_->throttled_ns(0), total) << "the counter stands";
}

// Facts of the reference (section 5): what the catalogue tells the operator to do.
TEST(XidMeaning, FollowsTheCatalogue) {
  for (const uint32_t code : std::initializer_list<uint32_t>{8, 13, 31, 32, 43, 45, 68, 69, 94}) {
    EXPECT_EQ(meaning_of_xid(code).effect, XidEffect::context) << code;
  }
  for (const uint32_t code :
       std::initializer_list<uint32_t>{46, 48, 62, 64, 74, 95, 109, 119, 120, 136, 140, 143, 155, 156, 158}) {
    EXPECT_EQ(meaning_of_xid(code).effect, XidEffect::gpu) << code;
    EXPECT_EQ(meaning_of_xid(code).recovery, RecoveryAction::reset) << code;
  }
  for (const uint32_t code :
       std::initializer_list<uint32_t>{37, 38, 44, 63, 66, 92, 106, 121, 137, 152, 154, 157, 160}) {
    EXPECT_EQ(meaning_of_xid(code).effect, XidEffect::none) << code;
  }
  EXPECT_EQ(meaning_of_xid(79).effect, XidEffect::lost);
  for (uint32_t code = 0; code <= kXidMax; ++code) {
    const XidMeaning meaning = meaning_of_xid(code);
    EXPECT_EQ(meaning.cuda_result == 0, meaning.effect == XidEffect::none) << code;
  }
}

}  // namespace
}  // namespace tranche::emulator
