#include "machine/daemon.h"

#include "base/failpoint.h"
#include "linux/log.h"
#include "machine/fences.h"
#include "machine/state_lock.h"

namespace tranche::machine {
namespace {

constexpr const char* kBootIdNote = "boot_id";
constexpr size_t kNamesOneByOne = 5000;

}  // namespace

Daemon::Daemon(Parts parts) : parts_(std::move(parts)) {}

Result<std::unique_ptr<Daemon>> Daemon::create(Parts parts) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(parts)));
  TRY(daemon->recover());
  return daemon;
}

Result<void> Daemon::recover() {
  TRY_ASSIGN(state_lock_, lock_state(parts_.config.state_dir));
  TRY_ASSIGN(journal_, Journal::open(parts_.config.state_dir, parts_.reactor,
                                     std::move(parts_.journal_worker), parts_.config.journal_ballast));
  engine_ = std::make_unique<Engine>(parts_.reactor, *journal_);
  snapshots_ = std::make_unique<Snapshots>(parts_.reactor, *engine_, *journal_, parts_.config.snapshot_rows);
  TRY_ASSIGN(const EventSeq snapshot, snapshots_->load_newest());
  uint64_t rows = 0;
  TRY_ASSIGN(const Journal::TailCut cut, journal_->recover(snapshot, [&](RecordedStep step) -> Result<void> {
    engine_->restore(step);
    ++rows;
    return {};
  }));
  snapshots_->rows_restored(rows);
  if (cut.first.is_set()) {
    log(LogLevel::critical, "journal_tail_cut",
        {{"first", cut.first.value()},
         {"last", cut.last.value()},
         {"copy", cut.copy},
         {"damage", cut.damage}});
    TRY(journal_->forget_keys_from(engine_->jobs().next_id()));
  }
  TRY(find_names());
  TRY_ASSIGN(const std::string last_boot, journal_->read_note(kBootIdNote));
  // A new journal has no task of an earlier boot; from its first row on the note must be there.
  if (!engine_->last_seq().is_set()) TRY(journal_->write_note_now(kBootIdNote, parts_.boot_id));
  rebooted_ = !last_boot.empty() && last_boot != parts_.boot_id;
  log(LogLevel::info, "recovered",
      {{"snapshot", snapshot.value()},
       {"rows", rows},
       {"jobs", engine_->jobs().all().size()},
       {"rebooted", rebooted_}});
  failpoint("recovery.restored");
  engine_->resume();

  drains_ = std::make_unique<GpuDrains>(*engine_);
  gpus_ = std::make_unique<GpuManager>(GpuManager::Parts{parts_.reactor, *engine_, parts_.gpus, *drains_,
                                                         parts_.config.manage, rebooted_,
                                                         parts_.config.operator_recovery});
  sessions_ = std::make_unique<InteractiveSessions>(parts_.reactor, *engine_);
  releases_ = std::make_unique<ReleaseWatch>(parts_.reactor, *engine_, *gpus_, *drains_);
  if (parts_.arbiter != nullptr) {
    TRY_ASSIGN(const std::string watchdog, journal_->read_note(kWatchdogNote));
    shares_ = std::make_unique<Shares>(Shares::Parts{parts_.reactor, *engine_, parts_.tasks, *gpus_, *drains_,
                                                     *parts_.arbiter, parts_.config},
                                       rebooted_ ? std::string() : watchdog);
    shares_->on_open([this](const TaskKey& task) { runner_->go_again(task); });
  }
  runner_ = std::make_unique<TaskRunner>(
      TaskRunner::Parts{parts_.reactor, *engine_, parts_.tasks, *gpus_, *sessions_, *releases_, parts_.users,
                        parts_.config.task_processes_max, parts_.config.run_dir, shares_.get()});
  members_ = std::make_unique<Members>(*engine_, parts_.config.run_dir);
  strangers_ = std::make_unique<StrangerWatch>(
      StrangerWatch::Parts{parts_.reactor, *engine_, parts_.tasks, *gpus_, parts_.users,
                           parts_.config.scan_interval, &parts_.config.watchdog, parts_.config.personal});
  if (parts_.config.mode == DaemonMode::observe) TRY(prepare_to_observe());
  api_ = std::make_unique<ApiServer>(ApiServer::Parts{
      parts_.reactor, *engine_, *gpus_, parts_.tasks, *sessions_, parts_.users, parts_.config,
      [this] { return may_submit(); }, [this] { return reload(); }, shares_.get(), observation_.get()});
  // Without them nobody comes from outside; those on the machine itself need none.
  if (auto tokens = TokenStore::open(parts_.config.state_dir)) {
    tokens_ = std::make_unique<TokenStore>(std::move(*tokens));
    api_->set_tokens(*tokens_);
  } else {
    log(LogLevel::error, "tokens_unreadable", {{"error", tokens.error()}});
  }
  if (parts_.hook_worker) {
    hooks_ = std::make_unique<HookSet>(parts_.reactor, *engine_, parts_.config, parts_.hook_worker,
                                       [this] { return api_->view_source(); });
    api_->set_hooks(*hooks_);
  }
  TRY(journal_->read_idempotency([&](IdempotencyKey key, JobId job) { api_->remember(key, job); }));
  return {};
}

// Names of jobs that no snapshot tells: few are looked up one by one, many are all read.
Result<void> Daemon::find_names() {
  const std::vector<std::string> hashes = engine_->jobs().payloads_without_name();
  std::unordered_map<std::string, std::string> names;
  const auto take = [&](std::string hash, std::string name) {
    names.emplace(std::move(hash), std::move(name));
  };
  if (hashes.size() < kNamesOneByOne) {
    TRY(journal_->read_names(hashes, take));
  } else {
    TRY(journal_->read_names(take));
  }
  engine_->jobs().set_names(names);
  return {};
}

// Whoever only looks on cannot look after jobs.
Result<void> Daemon::prepare_to_observe() {
  if (const size_t live = engine_->jobs().live().size(); live > 0) {
    return fail(ErrorCode::conflict,
                "daemon.mode is \"observe\", and " + std::to_string(live) +
                    (live == 1 ? " job has" : " jobs have") +
                    " not ended: set it to \"manage\", let them end or cancel them, and then observe");
  }
  observation_ = std::make_unique<Observation>(
      Observation::Parts{parts_.reactor, *engine_, *gpus_, parts_.users, parts_.config.sample_interval});
  return observation_->load();
}

void Daemon::finish(std::function<void()> done) {
  if (observation_) observation_->note();
  snapshots_->finish(std::move(done));
}

void Daemon::start(std::function<void()> ready) {
  // An elastic job is told of a task that is taken from it before the task is.
  engine_->add_observer(*members_);
  // The runner before the rest: it prepares what a step decided before anybody else spends time on it.
  engine_->add_observer(*runner_);
  engine_->add_observer(*sessions_);
  engine_->add_observer(*api_);
  engine_->add_observer(*snapshots_);
  if (hooks_) hooks_->start(*journal_);
  // The boot is noted only after what it did to the tasks of the last one: a daemon that dies in between must
  // see the reboot again, or it would take what ran then for what never ran.
  runner_->on_reconciled([this] { journal_->append_note(kBootIdNote, parts_.boot_id); });
  members_->resume();
  runner_->resume(rebooted_);
  if (Policy policy = effective_policy(parts_.config, "", engine_->scheduler());
      policy != engine_->scheduler().policy())
    engine_->record(PolicyChanged{std::move(policy)});
  gpus_->discover(std::move(ready));
  if (observation_) return observation_->start();
  strangers_->start();
  if (shares_) shares_->start([this] { return api_->gpus_now(); });
}

Result<api::PolicySummary> Daemon::reload() {
  TRY_ASSIGN(DaemonConfig fresh, parts_.read_config());
  api::PolicySummary summary;
  summary.queues = static_cast<uint32_t>(fresh.policy.queues.size());
  Policy policy = effective_policy(fresh, gpus_->driver_version(), engine_->scheduler());
  summary.changed = policy != engine_->scheduler().policy();
  summary.sentences = explain_config(fresh);
  DaemonConfig others = fresh;
  others.policy = parts_.config.policy;
  others.operator_groups = parts_.config.operator_groups;
  others.operator_users = parts_.config.operator_users;
  others.users_share = parts_.config.users_share;
  others.share = parts_.config.share;
  others.watchdog = parts_.config.watchdog;
  if (others != parts_.config) {
    summary.sentences.push_back(
        "Changes outside [policy], [class], [queue], [share], [watchdog] and of the operators take effect "
        "when tranched is restarted.");
  }
  parts_.config.operator_groups = fresh.operator_groups;
  parts_.config.operator_users = fresh.operator_users;
  parts_.config.users_share = fresh.users_share;
  parts_.config.share = fresh.share;
  parts_.config.watchdog = fresh.watchdog;
  parts_.config.policy = std::move(fresh.policy);
  if (summary.changed) engine_->record(PolicyChanged{std::move(policy)});
  return summary;
}

}  // namespace tranche::machine
