// The whole daemon in one process on virtual time: real journal, scheduler, job table and task runner over
// simulated processes and GPUs, with crashes of the daemon at any instant, lost launchers, reboots, GPUs that
// will not let go, fall off the bus or report XIDs, and drivers that hang or do not know. One seed is one
// history; a failing one is printed and repeats with TRANCHE_SEED=N.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/manual_reactor.h"
#include "base/random.h"
#include "gpu/simulated_host.h"
#include "linux/digest.h"
#include "linux/files.h"
#include "linux/log.h"
#include "machine/admission.h"
#include "machine/daemon.h"
#include "machine/members.h"
#include "machine/simulated_task_host.h"
#include "machine/verify_journal.h"

namespace tranche::machine {
namespace {

constexpr uint32_t kGpus = 4;
constexpr Time kStart{1'800'000'000'000'000'000};

// A disk: work is done some time after it was asked for, and is lost if the daemon dies before.
class SlowWorker final : public Worker {
 public:
  SlowWorker(Reactor& reactor, Random& random) : reactor_(reactor), random_(random) {}

  Result<void> submit(Work work, Done done) override {
    const uint64_t id = ++last_;
    free_at_ = std::max(free_at_, reactor_.clock().since_boot()) + Duration(random_.between(0, 20'000'000));
    timers_[id] = reactor_.at(free_at_, [this, id, work = std::move(work), done = std::move(done)] {
      const Reactor::Handle self = std::move(timers_[id]);
      timers_.erase(id);
      // Dying between the write and the answer is the case that a restart must get right.
      const Result<void> result = work();
      if (crash_after_write_ && random_.chance(1, 20)) return crash_after_write_();
      done(result);
    });
    return {};
  }
  void crash_after_write(Reactor::Callback crash) { crash_after_write_ = std::move(crash); }

 private:
  Reactor& reactor_;
  Random& random_;
  Duration free_at_;
  uint64_t last_ = 0;
  std::map<uint64_t, Reactor::Handle> timers_;
  Reactor::Callback crash_after_write_;
};

class SimulatedUsers final : public UserDirectory {
 public:
  using UserDirectory::UserDirectory;

 protected:
  std::optional<UserRecord> look_up(uint32_t uid) override {
    const std::string name = "user" + std::to_string(uid);
    return UserRecord{name, uid, "/home/" + name, "/bin/sh"};
  }
};

class World : private StepObserver {
 public:
  explicit World(uint64_t seed)
      : random_(seed),
        reactor_(kStart),
        users_(reactor_.clock()),
        tasks_(reactor_, [this](const LaunchPlan&) { return behaviour(); }) {
    char folder[] = "/dev/shm/tranche-simulation-XXXXXX";
    state_dir_ = ::mkdtemp(folder);
    config_.state_dir = config_.run_dir = state_dir_;
    config_.journal_ballast = MiB(1);
    config_.policy.minimum_runtime = kSecond;
    config_.snapshot_rows = static_cast<uint32_t>(random_.between(5, 60));
    config_.policy.users_share_gpu = random_.chance(1, 2);
    start_daemon();
  }
  ~World() {
    stop_daemon();
    if (std::getenv("KEEP"))
      std::filesystem::copy(
          state_dir_, "/tmp/kept",
          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    std::filesystem::remove_all(state_dir_);
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      act();
      reactor_.run_until(reactor_.clock().since_boot() + Duration(random_.exponential(200'000'000)));
      if (crashed_) restart();
      check_now();
    }
  }

  // Ends all faults, lets everything finish, and checks what must then be true.
  void finish() {
    for (uint32_t index = 0; index < kGpus; ++index) ghost_[index] = lost_[index] = false;
    quiet_ = true;
    restart();
    for (uint32_t index = 1; index <= kGpus; ++index) {
      engine().record(GpuUndrained{GpuId(index), "tranche"});
      daemon_->gpus().absolve(GpuId(index));
    }
    for (const JobId id : engine().scheduler().live_jobs()) {
      if (engine().scheduler().job(id)->state == JobState::held) engine().record(JobReleased{id, "test"});
    }
    for (int i = 0; i < 400 && !engine().scheduler().live_jobs().empty(); ++i) {
      reactor_.run_until(reactor_.clock().since_boot() + Duration(10 * kSecond.count()));
      check_now();
    }
    reactor_.run_until(reactor_.clock().since_boot() + Duration(30 * kSecond.count()));
    check_end();
  }

  uint64_t events() { return engine().last_seq().value(); }
  uint64_t state_hash() { return engine().scheduler().state_hash(); }
  int crashes() const { return crashes_; }
  int stopped_for_a_lost_gpu() const { return stopped_for_a_lost_gpu_; }
  int faults() const { return faults_; }
  int elastic_jobs() const { return elastic_jobs_; }
  int resized() const { return resized_; }

 private:
  Engine& engine() { return daemon_->engine(); }

  void start_daemon() {
    gpus_ = std::make_unique<SimulatedHost>(reactor_, SimulatedHost::board("h100-80", kGpus));
    for (uint32_t index = 0; index < kGpus; ++index)
      gpus_->set_ghost_memory(index, MiB(ghost_[index] ? 9000 : 0));
    for (uint32_t index = 0; index < kGpus; ++index) {
      if (lost_[index]) gpus_->set_health(index, Health::lost, "it is off the bus");
    }
    auto worker = std::make_unique<SlowWorker>(reactor_, random_);
    if (!quiet_)
      worker->crash_after_write([this] {
        crashed_ = true;
        tasks_.connect(nullptr);
      });
    auto created =
        Daemon::create({reactor_, *gpus_, tasks_, users_, config_, "boot " + std::to_string(boots_),
                        std::move(worker), [this]() -> Result<DaemonConfig> { return config_; }});
    ASSERT_TRUE(created) << created.error().message();
    daemon_ = std::move(*created);
    engine().add_observer(*this);
    daemon_->start([] {});
    tasks_.connect(&daemon_->listener());
    daemon_->listener().on_connected();
  }

  void stop_daemon() {
    tasks_.connect(nullptr);
    daemon_.reset();
    gpus_.reset();
  }

  // Nobody is ended for a GPU but one that was really lost: not for one that is silent, has failed, of which
  // nothing is known, or whose neighbour is lost.
  void on_step(const JournalRow& row) override {
    for (const Decision& decision : row.decisions) {
      if (const auto* start = std::get_if<Start>(&decision); start != nullptr && start->task.rank > 0) {
        const JobRecord* const job = engine().jobs().find(start->task.job);
        resized_ += job->spec->elastic && job->tasks.front().started.is_set() ? 1 : 0;
      }
      const auto* const stop = std::get_if<Stop>(&decision);
      if (stop == nullptr || stop->reason != StopReason::node_failed) continue;
      const JobRecord* const job = engine().jobs().find(stop->task.job);
      ASSERT_NE(job, nullptr);
      bool had_lost_one = false;
      for (const TaskEntry& task : job->tasks) {
        for (const Slice& slice : task.slices) had_lost_one |= lost_[slice.gpu.value() - 1];
      }
      EXPECT_TRUE(had_lost_one) << "job " << job->id.value() << " was stopped for a GPU that is not lost";
      ++stopped_for_a_lost_gpu_;
    }
  }
  void on_durable(const JournalRow&) override {}

  void restart() {
    ++crashes_;
    stop_daemon();
    // Tasks go on meanwhile.
    reactor_.run_until(reactor_.clock().since_boot() + Duration(random_.between(0, 3'000'000'000)));
    crashed_ = false;
    start_daemon();
    reactor_.run_until(reactor_.clock().since_boot() + Duration(100'000'000));
    if (crashed_) restart();
  }

  SimulatedTaskHost::Behaviour behaviour() {
    SimulatedTaskHost::Behaviour behaviour;
    behaviour.run_time = Duration(random_.exponential(3'000'000'000));
    behaviour.code = random_.chance(1, 5) ? 1 : 0;
    behaviour.fails_to_start = random_.chance(1, 15);
    behaviour.ignores_term = random_.chance(1, 4);
    behaviour.linger_time = Duration(random_.between(0, 200'000'000));
    return behaviour;
  }

  void act() {
    switch (random_.below(24)) {
      case 0:
        return restart();
      case 1:
        tasks_.lose_everything();
        ++boots_;
        return restart();
      case 2: {
        const auto index = static_cast<uint32_t>(random_.below(kGpus));
        ghost_[index] = !ghost_[index];
        return gpus_->set_ghost_memory(index, MiB(ghost_[index] ? 9000 : 0));
      }
      case 3:
        return gpus_->set_hanging(static_cast<uint32_t>(random_.below(kGpus)), random_.chance(1, 2));
      case 7:
      case 8:
      case 9:
        return break_something();
      case 4:
      case 5:
        return change_some_job();
      case 6: {
        // The launcher dies, with what it has received and not passed on, and comes back.
        tasks_.set_deaf(true);
        reactor_.run_until(reactor_.clock().since_boot() + Duration(random_.between(0, 50'000'000)));
        tasks_.set_deaf(false);
        if (crashed_) return;
        tasks_.connect(nullptr);
        daemon_->listener().on_disconnected();
        tasks_.connect(&daemon_->listener());
        return daemon_->listener().on_connected();
      }
      default:
        return submit();
    }
  }

  // What the driver may say of a GPU, or not say.
  void break_something() {
    ++faults_;
    const auto index = static_cast<uint32_t>(random_.below(kGpus));
    switch (random_.below(6)) {
      case 0:
        lost_[index] = !lost_[index];
        return gpus_->set_health(index, lost_[index] ? Health::lost : Health::ok,
                                 lost_[index] ? "it is off the bus" : "");
      case 1: {
        // Errors of programs, notes, rows to be remapped, and what asks for a reset.
        constexpr uint64_t kCodes[] = {13, 31, 37, 43, 63, 48, 94, 95, 119};
        if (!lost_[index]) gpus_->report_xid(index, kCodes[random_.below(std::size(kCodes))]);
        return;
      }
      case 2:
        return gpus_->set_process_list_known(index, random_.chance(1, 2));
      case 3:
        return gpus_->set_memory_known(index, random_.chance(1, 2));
      case 4:
        return gpus_->set_all_hanging(random_.chance(1, 3));
      default:
        // An operator opens it again.
        return daemon_->gpus().absolve(GpuId(index + 1));
    }
  }

  void submit() {
    if (!daemon_->may_submit()) return;
    api::SubmitRequest request;
    request.argv = {"train"};
    request.directory = "/home";
    request.time_limit = Duration(random_.between(1, 8) * kSecond.count());
    request.grace = Duration(random_.between(0, 2) * kSecond.count());
    request.held = random_.chance(1, 20);
    request.requeue = random_.chance(1, 2);
    GpuRequest gpu;
    gpu.count = static_cast<uint32_t>(random_.below(kGpus) + (random_.chance(1, 8) ? 0 : 1));
    if (gpu.count > kGpus) gpu.count = kGpus;
    if (gpu.count > 0 && random_.chance(1, 2)) {
      gpu.kind = SliceKind::fraction;
      gpu.count = 1;
      gpu.compute = MilliGpu(random_.between(1, 9) * 100);
    }
    request.gpu = gpu;
    if (gpu.count == 1 && random_.chance(1, 5)) request.tasks = api::TaskCount{2, 2};
    if (gpu.count == 1 && random_.chance(1, 4)) {
      request.tasks = api::TaskCount{1, static_cast<uint32_t>(random_.between(2, kGpus))};
      request.elastic = true;
      ++elastic_jobs_;
    } else if (gpu.count > 0 && gpu.kind == SliceKind::whole && !request.tasks && random_.chance(1, 5)) {
      gpu.count_max = gpu.count + 2;
      gpu.topology = random_.chance(1, 2) ? GpuTopology::nvlink : GpuTopology::any;
      request.gpu = gpu;
    }
    const Caller caller{static_cast<uint32_t>(2001 + random_.below(3)), 100, "", false};
    Caller named = caller;
    named.user = users_.name(caller.uid);
    auto job = admit(request, named, engine().scheduler().policy(), false);
    ASSERT_TRUE(job) << job.error().message();
    if (!engine().scheduler().check(job->spec, job->array)) return;
    const std::string content = api::encode(request);
    job->spec.payload_hash = sha256_hex(content);
    Engine::Attachment attachment;
    attachment.payload = StoredPayload{job->spec.payload_hash, "train", content};
    attachment.request = std::make_shared<const api::SubmitRequest>(std::move(request));
    const JobId id = engine().jobs().next_id();
    attachment.durable = [this, id] { acknowledged_.insert(id); };
    engine().record(JobSubmitted{id, job->spec, job->array}, std::move(attachment));
  }

  void change_some_job() {
    const auto live = engine().scheduler().live_jobs();
    if (live.empty()) return;
    const JobId id = live[random_.below(live.size())];
    const JobState state = engine().scheduler().job(id)->state;
    if (state == JobState::held) return engine().record(JobReleased{id, "test"});
    if (state == JobState::pending && random_.chance(1, 2)) return engine().record(JobHeld{id, "test"});
    engine().record(JobCancelled{id, "test"});
  }

  // What must hold at every instant: processes that exist do not share a GPU that one of them holds whole.
  void check_now() {
    std::map<uint32_t, int64_t> promised;
    for (const auto& [task, minors] : tasks_.running()) {
      const JobRecord* job = engine().jobs().find(task.job);
      ASSERT_NE(job, nullptr) << "a process of a job that nobody knows";
      for (const uint32_t minor : minors) {
        const GpuRequest& gpu = job->spec->task.gpu;
        promised[minor] += gpu.kind == SliceKind::whole ? 1000 : gpu.compute.count();
      }
    }
    for (const auto& [minor, milli] : promised)
      EXPECT_LE(milli, 1000) << "GPU " << minor << " is over-committed";
    for (const auto& view : engine().scheduler().gpus()) {
      if (view.health != Health::lost) continue;
      for (const TaskKey& task : view.tasks) {
        const auto job = engine().scheduler().job(task.job);
        // An elastic job goes on without a task that it has lost already, whose memory is not seen to be
        // free.
        const JobRecord* record = engine().jobs().find(task.job);
        const bool is_there =
            record == nullptr || !record->spec->elastic ||
            std::any_of(record->tasks.begin(), record->tasks.end(), [&](const TaskEntry& entry) {
              return entry.key == task && !entry.ended.is_set() && entry.state != JobState::stopping;
            });
        EXPECT_FALSE(is_there && job && job->state == JobState::running)
            << "job " << task.job.value() << " goes on though its GPU is lost";
      }
    }
    check_members();
    for (const auto& [task, times] : tasks_.executions()) {
      EXPECT_EQ(times, 1) << "task of job " << task.job.value() << " ran " << times
                          << " times in one attempt";
    }
  }

  // What the tasks of an elastic job read of one another: a later statement has a higher number, and no
  // number stands for two statements, whatever died in between.
  void check_members() {
    for (const JobId id : engine().scheduler().live_jobs()) {
      const auto text = read_file(members_file(config_.run_dir, id), 4096);
      if (!text) continue;
      ++members_read_;
      const size_t at = text->find("GENERATION=");
      ASSERT_NE(at, std::string::npos) << *text;
      const uint64_t generation = std::stoull(text->substr(at + 11));
      const auto [known, is_new] = members_.try_emplace(id, generation, *text);
      if (is_new) continue;
      EXPECT_GE(generation, known->second.first) << *text;
      if (generation == known->second.first) {
        EXPECT_EQ(*text, known->second.second);
      }
      known->second = {generation, *text};
    }
  }

  void check_end() {
    for (const auto& [id, told] : members_) {
      EXPECT_FALSE(std::filesystem::exists(members_file(config_.run_dir, id)))
          << "of job " << id.value() << ", which has ended";
    }
    for (const JobId id : acknowledged_) {
      const JobRecord* job = engine().jobs().find(id);
      ASSERT_NE(job, nullptr) << "job " << id.value() << " was acknowledged and is lost";
      EXPECT_TRUE(is_final(job->state))
          << "job " << id.value() << " is " << to_string(job->state) << ": "
          << (engine().scheduler().why(id) ? engine().scheduler().why(id)->reason : "");
    }
    EXPECT_TRUE(tasks_.running().empty());
    EXPECT_EQ(tasks_.records(), 0u) << "records of ended tasks were not forgotten";
    for (const auto& view : engine().scheduler().gpus()) {
      for (const TaskKey& task : view.tasks) {
        const JobRecord* job = engine().jobs().find(task.job);
        ADD_FAILURE() << "GPU " << view.gpu->index << " (" << to_string(view.health) << ", "
                      << (view.drained ? "drained" : "not drained") << " " << view.reason
                      << ") is held by job " << task.job.value() << " attempt " << task.attempt
                      << ", which is " << to_string(job->state);
      }
    }
    const auto verdict = verify_journal(state_dir_);
    ASSERT_TRUE(verdict) << verdict.error().message();
    EXPECT_TRUE(verdict->holds()) << "recomputing the journal gives other decisions";
    EXPECT_EQ(verdict->state_hash_restored, engine().scheduler().state_hash());
  }

  Random random_;
  ManualReactor reactor_;
  SimulatedUsers users_;
  SimulatedTaskHost tasks_;
  std::unique_ptr<SimulatedHost> gpus_;
  DaemonConfig config_;
  std::string state_dir_;
  std::unique_ptr<Daemon> daemon_;
  bool ghost_[kGpus] = {}, lost_[kGpus] = {};
  int stopped_for_a_lost_gpu_ = 0, faults_ = 0, elastic_jobs_ = 0, resized_ = 0;
  uint64_t members_read_ = 0;
  std::map<JobId, std::pair<uint64_t, std::string>> members_;  // what was said last, by job
  int boots_ = 1;
  int crashes_ = 0;
  bool crashed_ = false;
  bool quiet_ = false;
  std::set<JobId> acknowledged_;
};

uint64_t first_seed() {
  const char* text = std::getenv("TRANCHE_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

int histories() { return std::getenv("TRANCHE_SEED") != nullptr ? 1 : 40; }

TEST(DaemonSimulation, NothingIsLostRunsTwiceOrOvercommits) {
  set_log_sink([](LogLevel, std::string_view) {});
  uint64_t events = 0;
  int crashes = 0, faults = 0, stopped = 0, elastic = 0, resized = 0;
  for (int i = 0; i < histories(); ++i) {
    const uint64_t seed = first_seed() + static_cast<uint64_t>(i);
    SCOPED_TRACE("TRANCHE_SEED=" + std::to_string(seed));
    World world(seed);
    world.run(120);
    if (!HasFatalFailure()) world.finish();
    events += world.events();
    crashes += world.crashes();
    faults += world.faults();
    stopped += world.stopped_for_a_lost_gpu();
    elastic += world.elastic_jobs();
    resized += world.resized();
    if (HasFailure()) break;
  }
  std::printf(
      "%d histories, %llu events, %d crashes of the daemon, %d faults of GPUs, %d tasks stopped for them, "
      "%d elastic jobs, %d tasks that joined one that ran\n",
      histories(), static_cast<unsigned long long>(events), crashes, faults, stopped, elastic, resized);
  if (histories() > 1) {
    EXPECT_GT(stopped, 0) << "no history lost a GPU under a job";
    EXPECT_GT(resized, 0) << "no elastic job ever grew";
  }
  set_log_sink({});
}

TEST(DaemonSimulation, OneSeedIsOneHistory) {
  set_log_sink([](LogLevel, std::string_view) {});
  World first(first_seed());
  first.run(80);
  World second(first_seed());
  second.run(80);
  EXPECT_EQ(first.events(), second.events());
  EXPECT_EQ(first.state_hash(), second.state_hash());
  set_log_sink({});
}

}  // namespace
}  // namespace tranche::machine
