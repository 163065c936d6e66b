// Lent memory and the watchdog in the whole daemon, on virtual time; the arbiter's answers are the test's.
#include "machine/shares.h"

#include "linux/files.h"
#include "machine/daemon_fixture.h"
#include "machine/device_uuid.h"

namespace tranche::machine {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

class SaidArbiter final : public MemoryArbiter {
 public:
  void usage(Answered answered) override {
    if (silent) return answered(fail(ErrorCode::unavailable, "it is silent"));
    answered(rows);
  }
  bool is_there() override { return !away; }
  void set_board(const std::string&, MiB usable, MiB) override { usable_said = usable; }
  void set_limit(const TaskKey& task, const std::string&, MiB limit, MiB guarantee) override {
    limits_said.push_back(to_text(task, limit, guarantee));
    if (!obeys) return;
    for (ShareUsage& row : rows) {
      if (row.task != task) continue;
      row.limit = static_cast<uint64_t>(limit.count()) << 20;
      row.guarantee = static_cast<uint64_t>(guarantee.count()) << 20;
    }
  }
  static std::string to_text(const TaskKey& task, MiB limit, MiB guarantee) {
    return std::to_string(task.job.value()) + ": " + std::to_string(guarantee.count()) + ".." +
           std::to_string(limit.count());
  }
  std::vector<std::string> limits_said;
  bool obeys = false;

  std::vector<ShareUsage> rows;
  bool silent = false;
  bool away = false;
  MiB usable_said;
};

Duration seconds(int64_t count) { return Duration(count * kSecond.count()); }

class SharesTest : public DaemonFixture {
 protected:
  explicit SharesTest(uint32_t gpus = 1) : DaemonFixture(SimulatedHost::board("h100-80", gpus)) {
    behaviour_.run_time = kHour;
    config_.run_dir = config_.state_dir;
    config_.share.recall_grace = seconds(20);
    start_daemon();
    pass(seconds(1));
  }
  ~SharesTest() override { stop_daemon(); }  // while its arbiter is there

  MemoryArbiter* arbiter() final { return &arbiter_; }
  const JobRecord& job(JobId id) { return *engine().jobs().find(id); }
  bool executes(JobId id) { return tasks_.running().contains(TaskKey{id, 0, job(id).attempt}); }
  void reconfigure() { ASSERT_TRUE(daemon_->reload()); }

  JobId submit(int64_t guarantee_gib, int64_t limit_gib = 0) {
    JobSpec spec;
    spec.owner = {2001, 2001, "ada"};
    spec.queue = "default/ada";
    spec.task.gpu.count = 1;
    spec.task.gpu.kind = SliceKind::fraction;
    spec.task.gpu.memory = MiB(guarantee_gib * 1024);
    spec.task.gpu.memory_limit = MiB(limit_gib * 1024);
    spec.grace = seconds(30);
    return DaemonFixture::submit(std::move(spec));
  }

  ShareUsage row(JobId id, int64_t guarantee, int64_t limit, int64_t charged, int64_t owed = 0) {
    ShareUsage usage;
    usage.task = TaskKey{id, 0, job(id).attempt};
    usage.gpu = device_uuid_digits(daemon_->gpus().find(job(id).tasks.at(0).slices.at(0).gpu)->uuid);
    usage.guarantee = static_cast<uint64_t>(guarantee) * kGib;
    usage.limit = static_cast<uint64_t>(limit) * kGib;
    usage.charged = usage.granted = static_cast<uint64_t>(charged) * kGib;
    usage.owed = static_cast<uint64_t>(owed) * kGib;
    return usage;
  }

  // A borrower of 70 GiB that runs, and a newcomer whose 60 GiB are lent to it.
  void lend() {
    borrower_ = submit(10, 70);
    pass(seconds(1));
    ASSERT_TRUE(executes(borrower_));
    arbiter_.rows = {row(borrower_, 10, 70, 70)};
    newcomer_ = submit(60);
    pass(seconds(1));
    arbiter_.rows = {row(borrower_, 10, 70, 70, 51), row(newcomer_, 60, 60, 0)};
    pass(seconds(1));
  }

  std::string note(JobId id) { return daemon_->shares()->note(id); }

  SaidArbiter arbiter_;
  JobId borrower_, newcomer_;
};

TEST_F(SharesTest, AStartWaitsUntilItsGuaranteeIsBack) {
  lend();
  EXPECT_EQ(job(newcomer_).state, JobState::starting) << "placed by what is guaranteed, and prepared";
  EXPECT_FALSE(executes(newcomer_));
  EXPECT_NE(note(newcomer_).find("gives back 51G of GPU 0"), std::string::npos) << note(newcomer_);
  EXPECT_NE(note(borrower_).find("it has to give them back"), std::string::npos) << note(borrower_);
  arbiter_.rows = {row(borrower_, 10, 70, 19), row(newcomer_, 60, 60, 0)};
  pass(kMillisecond * 300);
  EXPECT_TRUE(executes(newcomer_));
  EXPECT_EQ(note(newcomer_), "");
  pass(seconds(60));
  EXPECT_TRUE(executes(borrower_)) << "it gave back in time";
}

class TwoGpusTest : public SharesTest {
 protected:
  TwoGpusTest() : SharesTest(2) {}
};

TEST_F(TwoGpusTest, TasksThatStartTogetherWaitTogether) {
  borrower_ = submit(10, 70);
  pass(seconds(1));
  arbiter_.rows = {row(borrower_, 10, 70, 70)};
  JobSpec spec;
  spec.owner = {2001, 2001, "ada"};
  spec.queue = "default/ada";
  spec.tasks_min = spec.tasks_max = 2;
  spec.task.gpu.count = 1;
  spec.task.gpu.kind = SliceKind::fraction;
  spec.task.gpu.memory = MiB(60 * 1024);
  newcomer_ = DaemonFixture::submit(std::move(spec));
  pass(seconds(1));
  ASSERT_EQ(job(newcomer_).tasks.size(), 2U);
  const auto registered = [&](uint64_t owed) {
    std::vector<ShareUsage> rows = {row(borrower_, 10, 70, 70, static_cast<int64_t>(owed))};
    for (const TaskEntry& task : job(newcomer_).tasks) {
      ShareUsage usage = row(newcomer_, 60, 60, 0);
      usage.task = task.key;
      usage.gpu = device_uuid_digits(daemon_->gpus().find(task.slices[0].gpu)->uuid);
      rows.push_back(usage);
    }
    return rows;
  };
  arbiter_.rows = registered(51);
  pass(seconds(3));
  for (const TaskEntry& task : job(newcomer_).tasks)
    EXPECT_FALSE(tasks_.running().contains(task.key)) << task.key.rank;
  arbiter_.rows = registered(0);
  pass(seconds(1));
  for (const TaskEntry& task : job(newcomer_).tasks)
    EXPECT_TRUE(tasks_.running().contains(task.key)) << task.key.rank;
}

TEST_F(SharesTest, ItIsNotOpenedOnAnAnswerFromBeforeItsRegistration) {
  borrower_ = submit(10, 70);
  pass(seconds(1));
  arbiter_.rows = {row(borrower_, 10, 70, 70)};
  newcomer_ = submit(60);
  pass(seconds(2));
  EXPECT_FALSE(executes(newcomer_)) << "the arbiter has not heard of it";
}

TEST_F(SharesTest, ABorrowerIsToldOnceAndStoppedWhenTheGraceIsOver) {
  lend();
  ASSERT_EQ(tasks_.notices().size(), 1U) << "told at once, and once";
  EXPECT_EQ(tasks_.notices()[0].second, 23);
  pass(seconds(18));
  EXPECT_TRUE(executes(borrower_));
  pass(seconds(3));
  EXPECT_FALSE(tasks_.running().contains(TaskKey{borrower_, 0, 1}));
  EXPECT_EQ(tasks_.notices().size(), 1U);
  bool said = false;
  for (const StateChange& change : job(borrower_).history)
    said = said || change.reason.find("did not give back 51G of GPU 0") != std::string::npos;
  EXPECT_TRUE(said);
  EXPECT_EQ(job(borrower_).attempt, 2U) << "it waits again, or runs again where it fits";
}

TEST_F(SharesTest, WhatBecomesOfABorrowerIsThePolicys) {
  config_.share.recall_end = RecallEnd::cancel;
  config_.share.recall_signal = 0;
  reconfigure();
  lend();
  pass(seconds(25));
  EXPECT_TRUE(tasks_.notices().empty());
  EXPECT_EQ(job(borrower_).state, JobState::cancelled);
}

TEST_F(SharesTest, ByPolicyNobodyIsEndedAndTheStartWaits) {
  config_.share.recall_end = RecallEnd::never;
  reconfigure();
  lend();
  pass(seconds(600));
  EXPECT_TRUE(executes(borrower_));
  EXPECT_FALSE(executes(newcomer_));
}

TEST_F(SharesTest, ASilentArbiterEndsNobodyAndOpensNothing) {
  lend();
  arbiter_.silent = true;
  pass(seconds(600));
  EXPECT_TRUE(executes(borrower_));
  EXPECT_FALSE(executes(newcomer_));
  EXPECT_NE(note(newcomer_).find("arbiter"), std::string::npos);
}

TEST_F(SharesTest, ANewArbiterHasToHearOfTheBorrowerFirst) {
  lend();
  const auto rows = arbiter_.rows;
  arbiter_.silent = true;
  pass(seconds(5));
  arbiter_.silent = false;
  arbiter_.rows = {row(newcomer_, 60, 60, 0)};
  pass(seconds(5));
  EXPECT_FALSE(executes(newcomer_)) << "what is lent, the new one does not know yet";
  arbiter_.rows = rows;
  pass(seconds(2));
  EXPECT_FALSE(executes(newcomer_));
  EXPECT_EQ(tasks_.notices().size(), 1U) << "it was told before";
  pass(seconds(9));
  EXPECT_FALSE(tasks_.running().contains(TaskKey{borrower_, 0, 1})) << "its grace went on";
}

TEST_F(SharesTest, ABorrowerThatDoesNotEndIsStillNamed) {
  behaviour_.ignores_term = true;
  lend();
  engine().record(JobCancelled{.job = borrower_, .by = "ada", .reason = ""});
  pass(seconds(1));
  EXPECT_EQ(job(borrower_).state, JobState::stopping);
  EXPECT_NE(note(newcomer_).find("(that job is being stopped)"), std::string::npos) << note(newcomer_);
  EXPECT_EQ(note(borrower_), "") << "its reason says it";
}

TEST_F(SharesTest, APartStartsOnlyWhenAnArbiterKnowsIt) {
  std::filesystem::create_directory(config_.run_dir + "/guard");
  ASSERT_TRUE(write_file_atomically(config_.run_dir + "/guard/libcuda.so.1", "", 0644));
  arbiter_.silent = arbiter_.away = true;
  const JobId part = submit(10);
  JobSpec whole;
  whole.owner = {2001, 2001, "ada"};
  whole.queue = "default/ada";
  const JobId without_gpu = DaemonFixture::submit(std::move(whole));
  pass(seconds(600));
  EXPECT_EQ(job(part).state, JobState::starting);
  EXPECT_FALSE(executes(part)) << "its first byte would be refused";
  EXPECT_NE(note(part).find("`tranche-up start`"), std::string::npos) << note(part);
  EXPECT_TRUE(executes(without_gpu));
  arbiter_.silent = arbiter_.away = false;
  pass(seconds(2));
  EXPECT_FALSE(executes(part)) << "its supervisor has not come to the new arbiter yet";
  arbiter_.rows = {row(part, 10, 10, 0)};
  pass(seconds(1));
  EXPECT_TRUE(executes(part));
}

TEST_F(SharesTest, WithoutTheGuardNobodyWaitsForTheArbiter) {
  arbiter_.silent = arbiter_.away = true;
  const JobId first = submit(10), second = submit(20);
  pass(seconds(1));
  EXPECT_TRUE(executes(first));
  EXPECT_TRUE(executes(second));
}

TEST_F(SharesTest, TheArbiterIsToldWhatTheGpuHas) {
  EXPECT_EQ(arbiter_.usable_said, engine().scheduler().gpus().front().gpu->memory_usable);
}

// --- parts that are changed while the job runs

TEST_F(SharesTest, AChangedPartIsToldUntilTheArbiterHasIt) {
  const JobId id = submit(10);
  pass(seconds(1));
  arbiter_.rows = {row(id, 10, 10, 4)};
  pass(seconds(1));
  EXPECT_TRUE(arbiter_.limits_said.empty()) << "nothing differs";
  EXPECT_EQ(daemon_->shares()->held_by(id).part, MiB(10 * 1024));
  EXPECT_EQ(daemon_->shares()->held_by(id).charged, MiB(4 * 1024));
  JobUpdated updated;
  updated.job = id;
  updated.by = "ada";
  updated.gpu_memory = MiB(20 * 1024);
  updated.gpu_memory_limit = MiB(30 * 1024);
  engine().record(updated);
  pass(seconds(3));
  const std::string said = SaidArbiter::to_text({id, 0, 1}, MiB(30 * 1024), MiB(20 * 1024));
  ASSERT_GE(arbiter_.limits_said.size(), 2U) << "it does not answer to it";
  EXPECT_EQ(arbiter_.limits_said.front(), said);
  arbiter_.obeys = true;
  pass(seconds(2));
  const size_t often = arbiter_.limits_said.size();
  pass(seconds(5));
  EXPECT_EQ(arbiter_.limits_said.size(), often) << "it has it";
  arbiter_.rows = {row(id, 10, 10, 4)};  // restarted, and registered as it was started
  pass(seconds(2));
  EXPECT_EQ(arbiter_.limits_said.size(), often + 1);
  EXPECT_EQ(daemon_->shares()->held_by(id).part, MiB(30 * 1024));
}

TEST_F(SharesTest, WhatAnUnknownArbiterChargesIsNotKnown) {
  const JobId id = submit(10);
  arbiter_.silent = true;
  pass(seconds(2));
  EXPECT_FALSE(daemon_->shares()->held_by(id).charged.has_value());
}

// --- the watchdog's grades, each by its key
class WatchdogTest : public SharesTest {
 protected:
  WatchdogTest() : drains_(engine()), watch_({reactor_, engine(), tasks_, drains_, config_}) {
    id_ = submit(2);
    pass(seconds(1));
    EXPECT_TRUE(executes(id_));
  }

  api::GpuList seen(int64_t held, std::optional<int64_t> charged, uint32_t registered = 1) {
    api::GpuStatus gpu;
    gpu.sample_age = kSecond;
    api::SliceRow slice;
    slice.job = id_;
    slice.user = "ada";
    slice.kind = SliceKind::fraction;
    slice.memory = MiB(2048);
    if (charged) slice.memory_charged = MiB(*charged);
    if (charged) slice.processes = registered;
    gpu.slices.push_back(slice);
    api::GpuProcess process;
    process.pid = 5;
    process.job = id_;
    process.memory = MiB(held);
    if (held > 0) gpu.processes.push_back(process);
    return {{gpu}};
  }
  void look(const api::GpuList& gpus, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      watch_.look(gpus);
      pass(seconds(1));
    }
  }

  GpuDrains drains_;
  ShareWatch watch_;
  JobId id_;
};

TEST_F(WatchdogTest, AGpuOnWhichAJobIsOverItsPartGetsNoNewJob) {
  const auto gpu = [this] { return engine().scheduler().gpus().front(); };
  watch_.look(seen(4096, 2000));
  watch_.look(seen(4096, 2000));
  EXPECT_FALSE(gpu().drained) << "memory that comes and goes is no news";
  watch_.look(seen(4096, 2000));
  EXPECT_TRUE(gpu().drained);
  EXPECT_EQ(gpu().reason.find("held beyond a part: job "), 0U) << gpu().reason;
  EXPECT_NE(gpu().reason.find("holds 4G of GPU 0 and has 2G"), std::string::npos) << gpu().reason;
  ShareWatch later({reactor_, engine(), tasks_, drains_, config_});
  later.look(seen(4096, 2000));
  EXPECT_TRUE(gpu().drained) << "a daemon that starts anew keeps it so while it looks";
  later.look(seen(2048, 2000));
  EXPECT_FALSE(gpu().drained);
}

TEST_F(WatchdogTest, TheClockOfAGradeGoesOnOverARestartOfTheDaemon) {
  config_.watchdog.end_after = seconds(60);
  const std::string noted = "nonsense\n" + std::to_string(id_.value()) + " 0 " +
                            std::to_string(reactor_.clock().since_boot().count());
  pass(seconds(57));
  ShareWatch later({reactor_, engine(), tasks_, drains_, config_}, noted);
  for (int i = 0; i < 2; ++i) {
    later.look(seen(4096, 2000));
    pass(seconds(1));
  }
  EXPECT_EQ(job(id_).state, JobState::running);
  pass(seconds(1));
  later.look(seen(4096, 2000));
  EXPECT_EQ(job(id_).state, JobState::stopping) << "a minute has passed, though not in one run";
}

TEST_F(WatchdogTest, WhatIsOverIsNotedForTheNextRun) {
  const int64_t since = reactor_.clock().since_boot().count();
  const auto noted = [this] {
    pass(kMillisecond);
    const Result<std::string> note = engine().journal().read_note(kWatchdogNote);
    return note ? *note : "unreadable";
  };
  watch_.look(seen(4096, 2000));
  watch_.look(seen(4096, 2000));
  EXPECT_EQ(noted(), "") << "it is no news yet";
  watch_.look(seen(4096, 2000));
  EXPECT_EQ(noted(), std::to_string(id_.value()) + " 0 " + std::to_string(since) + "\n");
  watch_.look(seen(2048, 2000));
  EXPECT_EQ(noted(), "");
}

TEST_F(WatchdogTest, AnOperatorsDrainStaysAndWhoIsWithinItsPartClosesNothing) {
  const auto gpu = [this] { return engine().scheduler().gpus().front(); };
  for (int i = 0; i < 4; ++i) watch_.look(seen(2048, 200));
  EXPECT_FALSE(gpu().drained) << "it goes around the guard within its part";
  engine().record(GpuDrained{gpu().gpu->id, "root", "a new fan"});
  for (int i = 0; i < 4; ++i) watch_.look(seen(4096, 2000));
  watch_.look(seen(2048, 2000));
  EXPECT_TRUE(gpu().drained);
  EXPECT_EQ(gpu().reason, "a new fan");
}

TEST_F(WatchdogTest, ReportsAfterThreeLooksAndDoesNoMoreUnlessToldTo) {
  look(seen(3000, 1000), 2);
  EXPECT_EQ(watch_.note(id_), "");
  look(seen(3000, 1000), 100);
  EXPECT_NE(watch_.note(id_).find("holds 3000M of GPU 0 and has 2G"), std::string::npos) << watch_.note(id_);
  EXPECT_TRUE(executes(id_));
  EXPECT_TRUE(tasks_.frozen().empty());
}

TEST_F(WatchdogTest, PausesAndContinuesWhenItIsOver) {
  config_.watchdog.pause_after = seconds(8);
  look(seen(3000, 1000), 8);
  EXPECT_TRUE(tasks_.frozen().empty());
  look(seen(3000, 1000), 2);
  EXPECT_EQ(tasks_.frozen().size(), 1U);
  EXPECT_NE(watch_.note(id_).find("Is paused"), std::string::npos);
  look(seen(1000, 1000), 1);
  EXPECT_TRUE(tasks_.frozen().empty());
  EXPECT_EQ(watch_.note(id_), "");
}

TEST_F(WatchdogTest, EndsAfterItsTimeWithinTenSecondsOfTheClock) {
  config_.watchdog.end_after = seconds(5);
  look(seen(3000, 1000), 5);
  EXPECT_TRUE(executes(id_));
  look(seen(3000, 1000), 2);
  pass(seconds(40));
  EXPECT_EQ(job(id_).state, JobState::cancelled);
  EXPECT_NE(job(id_).history.back().reason.find("ended by the watchdog"), std::string::npos)
      << job(id_).history.back().reason;
}

TEST_F(WatchdogTest, NoAnswerOfTheDriverEndsNobody) {
  config_.watchdog.end_after = seconds(5);
  config_.watchdog.pause_after = seconds(4);
  look(seen(3000, 1000), 3);
  api::GpuList stale = seen(3000, 1000);
  stale.gpus[0].sample_age = seconds(30);
  look(stale, 100);
  api::GpuList gone = seen(0, 1000);
  gone.gpus[0].sample_age.reset();
  look(gone, 100);
  EXPECT_TRUE(executes(id_));
  EXPECT_TRUE(tasks_.frozen().empty());
}

TEST_F(WatchdogTest, FindsWhatGoesAroundTheGuardWithinThePart) {
  EXPECT_TRUE(over_shares(seen(1200, 1000)).empty()) << "drivers count a little more";
  const auto past = over_shares(seen(1800, 1000));
  ASSERT_EQ(past.size(), 1U);
  EXPECT_EQ(past[0].kind, OverShare::Kind::unguarded);
  EXPECT_EQ(over_shares(seen(400, 0, 0)).size(), 1U) << "a process that the guard does not know";
  EXPECT_TRUE(over_shares(seen(1800, std::nullopt)).empty()) << "the arbiter is silent: nothing is known";
  config_.watchdog.end_after = seconds(5);
  look(seen(1800, 1000), 20);
  EXPECT_TRUE(executes(id_)) << "reported alone, unless the policy says act";
  EXPECT_NE(watch_.note(id_).find("go around the guard"), std::string::npos);
  config_.watchdog.unguarded = Unguarded::ignore;
  look(seen(1800, 1000), 1);
  EXPECT_EQ(watch_.note(id_), "");
  config_.watchdog.unguarded = Unguarded::act;
  look(seen(1800, 1000), 10);
  pass(seconds(40));
  EXPECT_EQ(job(id_).state, JobState::cancelled);
}

}  // namespace
}  // namespace tranche::machine
