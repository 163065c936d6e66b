// The daemon as an object: everything behind the seams, put together and brought back from its journal.
//
// With a ManualReactor, a SimulatedHost and a simulated task host the whole of it runs in one process on
// virtual time. Construction order, each part using those before it:
//   journal, engine (recovered), snapshots, gpu manager, sessions, releases, shares, task runner, stranger
//   watch, API
// Threading: the reactor's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "machine/api_server.h"
#include "machine/engine.h"
#include "machine/gpu_manager.h"
#include "machine/hook_set.h"
#include "machine/interactive_sessions.h"
#include "machine/journal.h"
#include "machine/members.h"
#include "machine/observation.h"
#include "machine/release_watch.h"
#include "machine/shares.h"
#include "machine/snapshots.h"
#include "machine/stranger_watch.h"
#include "machine/task_runner.h"
#include "machine/user_directory.h"

namespace tranche::machine {

class Daemon {
 public:
  struct Parts {
    Reactor& reactor;
    GpuHost& gpus;
    TaskHost& tasks;
    UserDirectory& users;
    DaemonConfig config;
    std::string boot_id;
    std::unique_ptr<Worker> journal_worker;  // one piece of work at a time, so that one failure is one
    // Reads the configuration files again; for reload.
    std::function<Result<DaemonConfig>()> read_config;
    MemoryArbiter* arbiter = nullptr;  // null: parts of GPUs are not looked after
    // For deliveries to hooks, one each; empty: hooks of the configuration are not told.
    HookSet::MakeWorker hook_worker{};
  };

  // Opens the journal and restores from it.
  static Result<std::unique_ptr<Daemon>> create(Parts parts);

  // Takes up what was running, asks the inventory; `ready` once both are under way and clients may come.
  // The task host's listener is listener(); open it after this.
  void start(std::function<void()> ready);

  TaskListener& listener() { return *runner_; }
  ApiServer& api() { return *api_; }
  bool may_submit() const { return runner_->has_reconciled(); }
  Engine& engine() { return *engine_; }
  const Shares* shares() const { return shares_.get(); }                 // null without an arbiter
  const Observation* observation() const { return observation_.get(); }  // null: jobs are managed
  GpuManager& gpus() { return *gpus_; }

  // A clean stop: `done` when a snapshot is on the disk, if one is worth it. Nothing else is stopped.
  void finish(std::function<void()> done);

  // The configuration was changed on disk: a new policy enters as one event; what needs a restart is named.
  Result<api::PolicySummary> reload();

 private:
  explicit Daemon(Parts parts);
  Result<void> recover();
  Result<void> find_names();
  Result<void> prepare_to_observe();

  Parts parts_;
  bool rebooted_ = false;
  UniqueFd state_lock_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Snapshots> snapshots_;
  std::unique_ptr<GpuDrains> drains_;
  std::unique_ptr<GpuManager> gpus_;
  std::unique_ptr<InteractiveSessions> sessions_;
  std::unique_ptr<ReleaseWatch> releases_;
  std::unique_ptr<Shares> shares_;
  std::unique_ptr<Members> members_;
  std::unique_ptr<TaskRunner> runner_;
  std::unique_ptr<StrangerWatch> strangers_;
  std::unique_ptr<Observation> observation_;  // null: jobs are managed
  std::unique_ptr<ApiServer> api_;
  std::unique_ptr<HookSet> hooks_;
  std::unique_ptr<TokenStore> tokens_;
};

}  // namespace tranche::machine
