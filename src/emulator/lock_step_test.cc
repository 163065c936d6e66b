// Virtual time: many clients on many GPUs, an hour of load in the time that its bookkeeping takes, twice
// alike.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/random.h"
#include "emulator/device_model.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

struct Load {
  uint32_t gpus = 0, clients = 0;
  uint64_t seconds = 0;  // of virtual time
  uint64_t seed = 0;
  bool one_dies = false;
};

// What a client tells in the end.
struct Account {
  uint64_t trace = 0;  // a hash of what it did when
  uint64_t launches = 0;
  uint64_t busy_ns = 0;
};

class LockStepTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "lock_step_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    for (const char* name : {"/device_model", "/processes"}) unlink((directory_ + name).c_str());
    rmdir(directory_.c_str());
  }

  // Kernels of all lengths, now and then a copy, now and then a rest.
  static Account run_client(DeviceModel& model, uint32_t client, uint32_t slot, const Load& load) {
    const uint32_t gpu = client % load.gpus;
    Random random(load.seed * 1000 + client);
    Account account;
    const auto note = [&account](uint64_t value) { account.trace = (account.trace ^ value) * 0x100000001B3; };
    model.join_lock_step(client, slot);
    const uint64_t begin = model.now(), end = begin + load.seconds * kSecond;
    uint64_t kernels_ns = 0;
    while (model.now() < end) {
      if (load.one_dies && client == 1 && account.launches == 3) raise(SIGKILL);
      GpuWork work;
      work.ns = kSecond / 2 + random.below(5 * kSecond);
      work.copy = random.below(10) == 0;
      if (!work.copy) kernels_ns += work.ns;
      const Launched launched = model.launch(slot, gpu, work);
      ++account.launches;
      if (random.below(20) == 0) model.sleep_until_time(model.now() + random.below(3 * kSecond));
      model.wait(slot, gpu, launched.tag);
      note(model.now() - begin);
    }
    for (const ProcessReading& reading : model.processes(gpu)) {
      if (reading.pid == getpid()) account.busy_ns = reading.busy_ns;
    }
    const uint64_t difference =
        account.busy_ns > kernels_ns ? account.busy_ns - kernels_ns : kernels_ns - account.busy_ns;
    if (difference > 1000) account.launches = 0;  // its account is not what it had
    model.leave_lock_step();
    return account;
  }

  void client_process(uint32_t client, const Load& load, int result) {
    auto model = DeviceModel::attach(directory_);
    const auto slot = (*model)->enter();
    (*model)->add_context(*slot, client % load.gpus, 1 << 20);
    const Account account = run_client(**model, client, *slot, load);
    _exit(write(result, &account, sizeof account) == sizeof account ? 0 : 1);
  }

  std::vector<Account> run(const Load& load) {
    ServerDescription server;
    EXPECT_TRUE(add_boards("h100-80:" + std::to_string(load.gpus), server));
    auto model = DeviceModel::create(directory_, server);
    EXPECT_TRUE(model);
    (*model)->start_lock_step(load.clients);
    std::vector<pid_t> children;
    std::vector<int> results;
    for (uint32_t client = 0; client < load.clients; ++client) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      const pid_t child = fork();
      if (child == 0) client_process(client, load, ends[1]);
      close(ends[1]);
      children.push_back(child);
      results.push_back(ends[0]);
    }
    std::vector<Account> accounts(load.clients);
    for (uint32_t client = 0; client < load.clients; ++client) {
      const bool came = read(results[client], &accounts[client], sizeof(Account)) == sizeof(Account);
      EXPECT_TRUE(came || (load.one_dies && client == 1)) << client;
      close(results[client]);
      waitpid(children[client], nullptr, 0);
    }
    return accounts;
  }

  std::string directory_;
};

Load chosen_load() {
  const char* const seed = std::getenv("TRANCHE_SEED");
  Load load{8, 32, 120, 1, false};
  if (std::getenv("TRANCHE_LONG") != nullptr) load = {64, 256, 3600, 1, false};
  if (seed != nullptr) load.seed = std::strtoull(seed, nullptr, 10);
  return load;
}

TEST_F(LockStepTest, TheSameSeedGivesTheSameTrace) {
  Load load = chosen_load();
  const std::vector<Account> first = run(load), second = run(load);
  uint64_t launches = 0;
  for (uint32_t client = 0; client < load.clients; ++client) {
    EXPECT_EQ(first[client].trace, second[client].trace) << "client " << client;
    EXPECT_GT(first[client].launches, 0u) << "client " << client;
    launches += first[client].launches;
  }
  load.seed += 1;
  load.seconds = std::min<uint64_t>(load.seconds, 60);
  EXPECT_NE(run(load)[0].trace, first[0].trace) << "another seed";
  std::printf("seed %llu: %u GPUs, %u clients, %llu s of virtual time, %llu launches, twice alike\n",
              static_cast<unsigned long long>(load.seed - 1), load.gpus, load.clients,
              static_cast<unsigned long long>(chosen_load().seconds),
              static_cast<unsigned long long>(launches));
}

TEST_F(LockStepTest, AClientThatDiesInItsTurnHoldsNobodyUp) {
  const std::vector<Account> accounts = run({2, 4, 60, 7, true});
  EXPECT_EQ(accounts[1].launches, 0u);
  for (const uint32_t client : {0u, 2u, 3u}) EXPECT_GT(accounts[client].launches, 0u);
}

}  // namespace
}  // namespace tranche::emulator
