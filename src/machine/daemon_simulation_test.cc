// The whole daemon in one process on virtual time: real journal, scheduler, job table and task runner over
// simulated processes and GPUs, with crashes of the daemon at any instant, lost launchers, reboots, GPUs that
// will not let go, fall off the bus or report XIDs, drivers that hang or do not know, logs of which a crash
// leaves a part, and clients that ask again with their key. One seed is one history; a failing one is printed
// and repeats with TRANCHE_SEED=N.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
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

// A disk that is full a few bytes behind the end of `file`, as long as this lives: what is written may be cut
// short, and then fails. It is the kernel that says so, to SQLite as it is.
class FullDisk {
 public:
  FullDisk(const std::string& file, Random& random) {
    std::signal(SIGXFSZ, SIG_IGN);
    std::error_code absent;
    const auto size = std::filesystem::file_size(file, absent);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit full = before_;
    full.rlim_cur = (absent ? 0 : size) + random.below(6000);
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

// What a crash in the middle of a write may leave: the database, and its log with a part of what was written.
struct TornWrite {
  std::string database;
  std::string log;
};

// A disk: work is done some time after it was asked for, and is lost if the daemon dies before. Dying between
// the write and the answer is the case that a restart must get right, with all of what was written, or some.
class SlowWorker final : public Worker {
 public:
  using Crash = std::function<void(std::optional<TornWrite>)>;
  // `crash` may be empty: it does not die. `is_full`: outlives this.
  SlowWorker(Reactor& reactor, Random& random, std::string database, const bool& is_full, Crash crash)
      : reactor_(reactor),
        random_(random),
        database_(std::move(database)),
        is_full_(is_full),
        crash_(std::move(crash)) {}

  Result<void> submit(Work work, Done done) override {
    const uint64_t id = ++last_;
    free_at_ = std::max(free_at_, reactor_.clock().since_boot()) + Duration(random_.between(0, 20'000'000));
    timers_[id] = reactor_.at(free_at_, [this, id, work = std::move(work), done = std::move(done)] {
      const Reactor::Handle self = std::move(timers_[id]);
      timers_.erase(id);
      if (crash_ && random_.chance(1, 20)) return crash_(write_in_part(work));
      std::optional<FullDisk> full;
      if (is_full_) full.emplace(database_ + "-wal", random_);
      const Result<void> result = work();
      full.reset();
      done(result);
    });
    return {};
  }

 private:
  static std::string content(const std::string& path) {
    auto text = read_file(path, 64 << 20);
    return text ? std::move(*text) : std::string();
  }
  std::optional<TornWrite> write_in_part(const Work& work) {
    const std::string log_path = database_ + "-wal";
    const TornWrite before{content(database_), content(log_path)};
    (void)work();
    TornWrite after{content(database_), content(log_path)};
    // The database itself is written only from a log that is on the disk.
    if (after.database != before.database || after.log == before.log || random_.chance(1, 3))
      return std::nullopt;
    size_t first = 0;
    while (first < before.log.size() && before.log[first] == after.log[first]) ++first;
    const size_t written = first + random_.below(after.log.size() - first + 1);
    std::string torn = after.log.substr(0, written);
    if (written < before.log.size()) torn += before.log.substr(written);
    return TornWrite{std::move(after.database), std::move(torn)};
  }

  Reactor& reactor_;
  Random& random_;
  const std::string database_;
  const bool& is_full_;
  Duration free_at_;
  uint64_t last_ = 0;
  std::map<uint64_t, Reactor::Handle> timers_;
  const Crash crash_;
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
  explicit World(uint64_t seed, bool fills_disk = false)
      : random_(seed),
        fills_disk_(fills_disk),
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
    disk_is_full_ = false;
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
  int torn_writes() const { return torn_writes_; }
  int refused() const { return refused_; }
  int repeats() const { return repeats_; }
  int repeats_known() const { return repeats_known_; }

 private:
  Engine& engine() { return daemon_->engine(); }

  static void put(const std::string& path, const std::string& content) {
    FILE* const file = std::fopen(path.c_str(), "wb");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(content.data(), 1, content.size(), file), content.size());
    std::fclose(file);
  }

  void start_daemon() {
    gpus_ = std::make_unique<SimulatedHost>(reactor_, SimulatedHost::board("h100-80", kGpus));
    for (uint32_t index = 0; index < kGpus; ++index)
      gpus_->set_ghost_memory(index, MiB(ghost_[index] ? 9000 : 0));
    for (uint32_t index = 0; index < kGpus; ++index) {
      if (lost_[index]) gpus_->set_health(index, Health::lost, "it is off the bus");
    }
    const auto dies = [this](std::optional<TornWrite> torn) {
      crashed_ = true;
      torn_ = std::move(torn);
      tasks_.connect(nullptr);
    };
    auto worker = std::make_unique<SlowWorker>(reactor_, random_, state_dir_ + "/journal.db", disk_is_full_,
                                               quiet_ ? SlowWorker::Crash() : SlowWorker::Crash(dies));
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
    if (const auto torn = std::exchange(torn_, std::nullopt)) {
      ++torn_writes_;
      std::filesystem::remove(state_dir_ + "/journal.db-shm");
      put(state_dir_ + "/journal.db", torn->database);
      put(state_dir_ + "/journal.db-wal", torn->log);
    }
    // Tasks go on meanwhile.
    reactor_.run_until(reactor_.clock().since_boot() + Duration(random_.between(0, 3'000'000'000)));
    crashed_ = false;
    start_daemon();
    reactor_.run_until(reactor_.clock().since_boot() + Duration(100'000'000));
    if (crashed_) return restart();
    ask_again();
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
    switch (random_.below(26)) {
      case 24:
      case 25:
        disk_is_full_ = random_.chance(1, 3) && fills_disk_;
        return;
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
    if (!may_submit()) return void(disk_is_full_ ? ++refused_ : 0);
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
    const std::string key = "client " + std::to_string(++keys_);
    attachment.idempotency = IdempotencyKey{caller.uid, key};
    unanswered_[key] = {job->spec, job->array, attachment.payload, attachment.request};
    send(key, id, std::move(attachment));
  }
  void send(const std::string& key, JobId id, Engine::Attachment attachment) {
    const Unanswered& asked = unanswered_.at(key);
    attachment.durable = [this, key, id] {
      acknowledged_.insert(id);
      job_of_key_[key] = id;
      unanswered_.erase(key);
    };
    engine().record(JobSubmitted{id, asked.spec, asked.array}, std::move(attachment));
  }

  // The client never heard whether its job was taken, and asks again with the same key: it is answered with
  // the job that the journal knows by it, or the job is taken now.
  void ask_again(const std::string& key) {
    if (!may_submit()) return;
    std::map<std::string, JobId> known;
    ASSERT_TRUE(engine().journal().read_idempotency(
        [&](const IdempotencyKey& stored, JobId job) { known[stored.key] = job; }));
    const Unanswered& asked = unanswered_.at(key);
    ++repeats_;
    if (const auto found = known.find(key); found != known.end()) {
      const JobRecord* const job = engine().jobs().find(found->second);
      ASSERT_NE(job, nullptr) << "the key of a submission is there without its job";
      EXPECT_EQ(job->spec->payload_hash, asked.spec.payload_hash);
      ++repeats_known_;
      acknowledged_.insert(job->id);
      job_of_key_[key] = job->id;
      unanswered_.erase(key);
      return;
    }
    Engine::Attachment attachment;
    attachment.payload = asked.payload;
    attachment.request = asked.request;
    attachment.idempotency = IdempotencyKey{asked.spec.owner.uid, key};
    send(key, engine().jobs().next_id(), std::move(attachment));
  }
  // All of them, with the journal at rest.
  void ask_again() {
    std::vector<std::string> keys;
    for (const auto& [key, asked] : unanswered_) keys.push_back(key);
    for (const std::string& key : keys) ask_again(key);
  }
  // As the API asks before it takes a job.
  bool may_submit() { return daemon_->may_submit() && engine().journal().trouble().empty(); }

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
    EXPECT_TRUE(unanswered_.empty()) << unanswered_.size() << " clients were never answered";
    std::set<JobId> of_clients;
    for (const auto& [key, job] : job_of_key_)
      EXPECT_TRUE(of_clients.insert(job).second) << "two clients have job " << job.value();
    for (uint64_t id = 1; id < engine().jobs().next_id().value(); ++id) {
      if (engine().jobs().find(JobId(id)) == nullptr) continue;
      EXPECT_TRUE(of_clients.contains(JobId(id))) << "job " << id << " was taken twice from one client";
    }
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
  const bool fills_disk_;
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
  bool disk_is_full_ = false;
  std::optional<TornWrite> torn_;
  int torn_writes_ = 0, refused_ = 0, repeats_ = 0, repeats_known_ = 0;
  std::set<JobId> acknowledged_;
  struct Unanswered {
    JobSpec spec;
    ArraySpec array;
    std::optional<StoredPayload> payload;
    RequestPointer request;
  };
  std::map<std::string, Unanswered> unanswered_;  // by key, of clients that wait for an answer
  std::map<std::string, JobId> job_of_key_;       // of those that have had one
  uint64_t keys_ = 0;
};

uint64_t first_seed() {
  const char* text = std::getenv("TRANCHE_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

int histories() {
  if (std::getenv("TRANCHE_SEED") != nullptr) return 1;
  return std::getenv("TRANCHE_LONG") != nullptr ? 20'000 : 60;
}

TEST(DaemonSimulation, NothingIsLostRunsTwiceOrOvercommits) {
  set_log_sink([](LogLevel, std::string_view) {});
  uint64_t events = 0;
  int crashes = 0, faults = 0, stopped = 0, elastic = 0, resized = 0;
  int torn = 0, repeats = 0, repeats_known = 0;
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
    torn += world.torn_writes();
    repeats += world.repeats();
    repeats_known += world.repeats_known();
    if (HasFailure()) break;
  }
  std::printf(
      "%d histories, %llu events, %d crashes of the daemon, %d faults of GPUs, %d tasks stopped for them, "
      "%d elastic jobs, %d tasks that joined one that ran\n",
      histories(), static_cast<unsigned long long>(events), crashes, faults, stopped, elastic, resized);
  std::printf("%d writes torn by a crash, %d submissions repeated, %d of those known\n", torn, repeats,
              repeats_known);
  if (histories() > 1) {
    EXPECT_GT(torn, 0);
    EXPECT_GT(repeats_known, 0);
    EXPECT_GT(repeats, repeats_known);
    EXPECT_GT(stopped, 0) << "no history lost a GPU under a job";
    EXPECT_GT(resized, 0) << "no elastic job ever grew";
  }
  set_log_sink({});
}

// The same with a disk that is full now and then, so that a long time lies between what happens and its
// durable row, in which launcher and daemon die.
TEST(DaemonSimulation, AFullDiskLosesNothing) {
  set_log_sink([](LogLevel, std::string_view) {});
  int refused = 0;
  for (int i = 0; i < histories() && !HasFailure(); ++i) {
    const uint64_t seed = first_seed() + static_cast<uint64_t>(i);
    SCOPED_TRACE("TRANCHE_SEED=" + std::to_string(seed));
    World world(seed, true);
    world.run(120);
    if (!HasFatalFailure()) world.finish();
    refused += world.refused();
  }
  std::printf("%d submissions refused on a full disk\n", refused);
  if (histories() > 1) {
    EXPECT_GT(refused, 0);
  }
  set_log_sink({});
}

TEST(DaemonSimulation, OneSeedIsOneHistory) {
  set_log_sink([](LogLevel, std::string_view) {});
  const bool only = std::getenv("TRANCHE_SEED") != nullptr;
  const uint64_t seeds = only ? 1 : std::getenv("TRANCHE_LONG") != nullptr ? 200 : 8;
  for (uint64_t seed = first_seed(); seed < first_seed() + seeds; ++seed) {
    World first(seed);
    first.run(80);
    World second(seed);
    second.run(80);
    EXPECT_EQ(first.events(), second.events()) << "TRANCHE_SEED=" << seed;
    EXPECT_EQ(first.state_hash(), second.state_hash()) << "TRANCHE_SEED=" << seed;
  }
  set_log_sink({});
}

}  // namespace
}  // namespace tranche::machine
