// The life of tasks on this machine: carries out Start and Stop decisions through the root side, and turns
// what becomes of them into events.
//
// A task is prepared as soon as it is decided on and goes when the decision is durable, so that it runs at
// most once per attempt, whatever dies in between. After a restart, reconcile() compares what the log says
// with what the root side has.
//
// Threading: the reactor's thread.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "machine/gpu_manager.h"
#include "machine/interactive_sessions.h"
#include "machine/release_watch.h"
#include "machine/shares.h"
#include "machine/task_host.h"
#include "machine/user_directory.h"

namespace tranche::machine {

class TaskRunner final : public StepObserver, public TaskListener {
 public:
  struct Parts {
    Reactor& reactor;
    Engine& engine;
    TaskHost& host;
    GpuManager& gpus;
    InteractiveSessions& sessions;
    ReleaseWatch& releases;
    UserDirectory& users;
    uint32_t task_processes_max;
    std::string run_dir;
    Shares* shares = nullptr;  // says when a task with a part may execute; null: at once
  };
  explicit TaskRunner(Parts parts) : parts_(parts) {}

  // `rebooted`: the machine's boot id differs from that of the last run, so nothing can be running and no
  // record of the last boot is left.
  void resume(bool rebooted);
  // Whether the root side's list was seen: before, an id that a lost submission was given might be in use
  // there, with another user's command prepared under it.
  bool has_reconciled() const { return has_reconciled_; }
  // Called once, when everything that the root side's first list led to has been recorded.
  void on_reconciled(std::function<void()> reconciled) { on_reconciled_ = std::move(reconciled); }

  // A task that Shares held back may go.
  void go_again(const TaskKey& task);

  // StepObserver
  void on_step(const JournalRow& row) override;
  void on_durable(const JournalRow& row) override;

  // TaskListener
  void on_connected() override;
  void on_disconnected() override {}
  void on_prepared(const TaskKey& task) override;
  void on_started(const TaskKey& task, int32_t pid) override;
  void on_start_failed(const TaskKey& task, const StartFailure& failure) override;
  void on_exited(const TaskKey& task, const TaskEnd& end) override;
  void on_all_gone(const TaskKey& task) override;

 private:
  // What the daemon knows of a task between its Start and the release of its last slice. After a restart it
  // is rebuilt from the log and the root side's list.
  struct Live {
    std::vector<Slice> slices;
    bool sent = false;     // start() was called in this run of the daemon, or the root side has it
    bool durable = false;  // its Start is on disk
    bool prepared = false;
    bool may_go = false;  // nobody has to give back first what it was promised
    bool went = false;
    bool started = false;   // TaskStarted is recorded
    bool stopping = false;  // a Stop is recorded
    bool ended = false;     // TaskExited or TaskStartFailed is recorded
    bool has_end = false;
    TaskEnd end;
  };

  void send_start(const TaskKey& task);
  void send_start_with(const TaskKey& task, const RequestPointer& request);
  Result<LaunchPlan> make_plan(const TaskKey& task, const Live& live, const RequestPointer& request);
  void set_time_limits(JobId job);
  Duration time_limit_of(const TaskKey& task, const JobRecord& job) const;
  void set_gpu_memory(JobId job);
  bool gang_can_meet(const TaskKey& task) const;
  void refuse_start(const TaskKey& task, const std::string& reason, bool retry = false);
  void try_go(const TaskKey& task, Live& live);
  void stop(const TaskKey& task);
  void record_end(const TaskKey& task, Live& live);
  void forget_if_settled(const TaskKey& task);
  void forget_when_durable(const TaskKey& task);

  void restore_holders();
  void restore_live_tasks();
  void reconcile(const std::vector<TaskRecord>& records);
  bool is_stale(const TaskRecord& record) const;
  void end_if_stale(const TaskRecord& record);
  void reconcile_task(const TaskKey& task, Live& live, const TaskRecord* record);
  void settle_lost(const TaskKey& task, Live& live);

  Live* find(const TaskKey& task);

  Parts parts_;
  std::map<TaskKey, Live> live_;
  std::set<TaskKey> stale_;      // keys whose old record at the root side must go before a start may use them
  std::set<TaskKey> to_forget_;  // their end is recorded; the root side's record goes once that is durable
  bool rebooted_ = false;
  bool reconciled_ = false;      // the list of this connection was seen
  bool has_reconciled_ = false;  // one was, in this life of the daemon
  std::function<void()> on_reconciled_;
};

}  // namespace tranche::machine
