// GPUs that somebody uses without a job, in the whole daemon on virtual time.
#include "machine/stranger_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/manual_reactor.h"
#include "gpu/simulated_host.h"
#include "linux/log.h"
#include "machine/daemon.h"
#include "machine/simulated_task_host.h"

namespace tranche::machine {
namespace {

constexpr uint32_t kEve = 1500;

class NamedUsers final : public UserDirectory {
 public:
  using UserDirectory::UserDirectory;

 protected:
  std::optional<UserRecord> look_up(uint32_t uid) override {
    return UserRecord{uid == kEve ? "eve" : "user" + std::to_string(uid), uid, "/home", "/bin/sh"};
  }
};

class StrangerWatchTest : public ::testing::Test {
 protected:
  StrangerWatchTest()
      : reactor_(Time(1'800'000'000'000'000'000)),
        gpus_(reactor_, SimulatedHost::board("h100-80", 2)),
        users_(reactor_.clock()),
        tasks_(reactor_, [this](const LaunchPlan&) {
          SimulatedTaskHost::Behaviour behaviour;
          behaviour.run_time = run_time_;
          return behaviour;
        }) {
    set_log_sink([](LogLevel, std::string_view) {});
    char folder[] = "/dev/shm/tranche-strangers-XXXXXX";
    config_.state_dir = ::mkdtemp(folder);
    config_.journal_ballast = MiB(1);
    start_daemon();
  }
  ~StrangerWatchTest() override {
    stop_daemon();
    std::filesystem::remove_all(config_.state_dir);
    set_log_sink({});
  }

  void start_daemon() {
    auto created = Daemon::create({reactor_, gpus_, tasks_, users_, config_, "boot",
                                   std::make_unique<InlineWorker>(reactor_),
                                   [this]() -> Result<DaemonConfig> { return config_; }});
    ASSERT_TRUE(created) << created.error().message();
    daemon_ = std::move(*created);
    daemon_->start([] {});
    tasks_.connect(&daemon_->listener());
    daemon_->listener().on_connected();
    pass(Duration(100 * kMillisecond.count()));
  }
  void stop_daemon() {
    tasks_.connect(nullptr);
    daemon_.reset();
  }
  void pass(Duration time) { reactor_.run_until(reactor_.clock().since_boot() + time); }
  // Long enough for a reading of the driver and a scan.
  void pass_scan() { pass(config_.scan_interval + Duration(2 * kSecond.count())); }

  void hold(uint32_t gpu, uint32_t uid, int32_t pid, bool with_context = true) {
    tasks_.strangers().push_back({pid, uid, gpu, TaskKey{}, "python3"});
    if (!with_context) return;
    GpuProcess process;
    process.pid = pid;
    process.uid = uid;
    process.memory = MiB(500);
    gpus_.add_process(gpu, process);
  }
  void let_go(uint32_t gpu, int32_t pid) {
    std::erase_if(tasks_.strangers(), [&](const NodeHolder& holder) { return holder.pid == pid; });
    gpus_.remove_process(gpu, pid);
  }
  scheduler::GpuView gpu(uint32_t index) { return daemon_->engine().scheduler().gpus().at(index); }

  JobId submit() {
    JobSpec spec;
    spec.owner = {2001, 2001, "user2001"};
    spec.queue = "default/user2001";
    spec.task.gpu.count = 1;
    spec.time_limit = kHour;
    spec.payload_hash = "none";
    const JobId id = daemon_->engine().jobs().next_id();
    Engine::Attachment attachment;
    api::SubmitRequest request;
    request.argv = {"train"};
    request.directory = "/home";
    attachment.payload = StoredPayload{"none", "train", api::encode(request)};
    attachment.request = std::make_shared<const api::SubmitRequest>(std::move(request));
    daemon_->engine().record(JobSubmitted{id, spec, {}}, std::move(attachment));
    return id;
  }

  ManualReactor reactor_;
  SimulatedHost gpus_;
  NamedUsers users_;
  SimulatedTaskHost tasks_;
  DaemonConfig config_;
  Duration run_time_ = kSecond;  // of tasks
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(StrangerWatchTest, AGpuInUseIsNamedAvoidedAndGivenBack) {
  hold(0, kEve, 4711);
  pass_scan();
  EXPECT_TRUE(gpu(0).drained);
  EXPECT_NE(gpu(0).reason.find("process 4711 of eve"), std::string::npos) << gpu(0).reason;
  EXPECT_EQ(gpu(0).reason.find("python3"), std::string::npos) << "commands are for administrators";
  EXPECT_FALSE(gpu(1).drained);
  submit();
  submit();
  pass(kMillisecond * 500);
  EXPECT_TRUE(gpu(0).tasks.empty());
  EXPECT_EQ(gpu(1).tasks.size(), 1U);
  let_go(0, 4711);
  pass_scan();
  EXPECT_FALSE(gpu(0).drained);
}

TEST_F(StrangerWatchTest, OwnTasksServicesAndLookersAreNoStrangers) {
  submit();
  hold(1, 990, 50);          // a service
  hold(1, 0, 51);            // root
  hold(1, kEve, 52, false);  // nvidia-smi: opens the node, makes no context
  for (int i = 0; i < 3; ++i) pass_scan();
  EXPECT_FALSE(gpu(0).drained) << gpu(0).reason;
  EXPECT_FALSE(gpu(1).drained) << gpu(1).reason;
}

TEST_F(StrangerWatchTest, WhenTheDriverDoesNotAnswerTheOpenNodeCounts) {
  gpus_.set_all_hanging(true);
  hold(0, kEve, 4711);
  pass(Duration(60 * kSecond.count()));
  EXPECT_TRUE(gpu(0).drained);
}

TEST_F(StrangerWatchTest, ByPolicyItIsNamedAloneOrNotAtAll) {
  std::string logged;
  set_log_sink([&](LogLevel, std::string_view line) { logged += line; });
  config_.watchdog.foreign = Foreign::ignore;
  ASSERT_TRUE(daemon_->reload());
  hold(0, kEve, 4711);
  pass_scan();
  EXPECT_FALSE(gpu(0).drained);
  EXPECT_EQ(logged.find("gpu_used_outside_of_jobs"), std::string::npos);
  config_.watchdog.foreign = Foreign::name;
  ASSERT_TRUE(daemon_->reload());
  pass_scan();
  EXPECT_FALSE(gpu(0).drained);
  EXPECT_NE(logged.find("gpu_used_outside_of_jobs"), std::string::npos);
  config_.watchdog.foreign = Foreign::drain;
  ASSERT_TRUE(daemon_->reload());
  pass_scan();
  EXPECT_TRUE(gpu(0).drained);
  config_.watchdog.foreign = Foreign::name;
  ASSERT_TRUE(daemon_->reload());
  pass_scan();
  EXPECT_FALSE(gpu(0).drained) << "a change of policy gives it back";
}

TEST_F(StrangerWatchTest, AnAdoptedOneMayHaveWhatNobodyWasPromised) {
  run_time_ = kHour;
  config_.watchdog.foreign = Foreign::adopt;
  ASSERT_TRUE(daemon_->reload());
  hold(0, kEve, ::getpid());  // what it holds counts only while the process exists
  pass_scan();
  EXPECT_FALSE(gpu(0).drained);
  submit();
  submit();
  pass(kMillisecond * 500);
  ASSERT_EQ(gpu(0).memory_free, MiB());
  pass_scan();
  EXPECT_TRUE(gpu(0).drained) << "everything is promised now, and it holds 500 MiB of it";
}

TEST_F(StrangerWatchTest, AnOperatorsDrainIsLeftAlone) {
  daemon_->engine().record(GpuDrained{gpu(0).gpu->id, "root", "a fan is loud"});
  hold(0, kEve, 4711);
  pass_scan();
  EXPECT_EQ(gpu(0).reason, "a fan is loud");
  let_go(0, 4711);
  pass_scan();
  EXPECT_TRUE(gpu(0).drained);
  EXPECT_EQ(gpu(0).reason, "a fan is loud");
}

TEST_F(StrangerWatchTest, ANewDaemonKnowsItsOwnDrains) {
  hold(0, kEve, 4711);
  pass_scan();
  ASSERT_TRUE(gpu(0).drained);
  stop_daemon();
  let_go(0, 4711);
  start_daemon();
  EXPECT_TRUE(gpu(0).drained) << "nothing is known before the first scan";
  pass_scan();
  EXPECT_FALSE(gpu(0).drained);
}

TEST_F(StrangerWatchTest, NothingChangesWithoutTheLauncher) {
  hold(0, kEve, 4711);
  tasks_.connect(nullptr);
  daemon_->listener().on_disconnected();
  pass_scan();
  EXPECT_FALSE(gpu(0).drained);
}

TEST_F(StrangerWatchTest, ManyAreCounted) {
  for (int32_t pid = 1; pid <= 5; ++pid) hold(0, kEve, pid);
  pass_scan();
  EXPECT_NE(gpu(0).reason.find("and 2 more"), std::string::npos) << gpu(0).reason;
}

}  // namespace
}  // namespace tranche::machine
