// A TaskHost without processes: tasks live as long as a test says, on the reactor's virtual time.
//
// It keeps its tasks while a daemon is destroyed and made anew, as the launcher does, and can lose its
// connection or all its tasks (a reboot). It checks what the real one guarantees: a task is started once per
// attempt, and nothing goes that was not prepared.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "machine/task_host.h"

namespace tranche::machine {

class SimulatedTaskHost final : public TaskHost {
 public:
  // What a task will do once it goes.
  struct Behaviour {
    Duration prepare_time{kMillisecond.count()};
    Duration run_time = kSecond;
    int32_t code = 0;
    bool fails_to_start = false;                 // its own fault
    bool ignores_term = false;                   // lives on until the grace is over
    Duration linger_time{kMillisecond.count()};  // from its exit until all its processes are gone
  };
  using Choose = std::function<Behaviour(const LaunchPlan& plan)>;

  SimulatedTaskHost(Reactor& reactor, Choose choose);

  // The daemon that hears of tasks from now on; null while there is none.
  void connect(TaskListener* listener);
  // What is asked from now on is lost, as what a dying launcher has received and not passed on.
  void set_deaf(bool deaf) { deaf_ = deaf; }
  // Every task and record is gone, as after a reboot.
  void lose_everything();

  bool is_connected() const override { return listener_ != nullptr; }
  void start(const LaunchPlan& plan, UniqueFd client) override;
  void go(const TaskKey& task) override;
  void kill(const TaskKey& task, Duration grace) override;
  void forget(const TaskKey& task) override;
  void attach(const TaskKey& task, UniqueFd client, std::function<void(Result<void>)> done) override;
  void exec(const LaunchPlan& plan, UniqueFd client, std::function<void(Result<void>)> done) override;
  void list(Listed listed) override;
  void scan(const std::vector<uint32_t>& gpu_minors, Scanned scanned) override;
  void set_time_limit(const TaskKey& task, Duration limit) override;
  void freeze(const TaskKey& task, bool frozen) override;
  void set_gpu_memory(const TaskKey& task, const std::vector<MemoryShare>& shares) override {
    const auto found = tasks_.find(task);
    if (found != tasks_.end()) found->second.plan.memory_shares = shares;
  }
  void notify(const TaskKey& task, int32_t signal) override { notices_.push_back({task, signal}); }
  bool ports_are_free(uint16_t, uint16_t) override { return true; }

  // How often each task has executed, over the whole history; the proof that none ran twice.
  const std::map<TaskKey, int>& executions() const { return executions_; }
  // Tasks whose processes exist now, with the GPU minors that they hold.
  std::map<TaskKey, std::vector<uint32_t>> running() const;
  const std::set<TaskKey>& frozen() const { return frozen_; }
  const std::vector<std::pair<TaskKey, int32_t>>& notices() const { return notices_; }
  size_t records() const { return tasks_.size(); }
  // Processes outside of any job, as scan() finds them.
  std::vector<NodeHolder>& strangers() { return strangers_; }

 private:
  struct Task {
    TaskRecord record;
    LaunchPlan plan;
    Behaviour behaviour;
    bool stopping = false;
    bool go_came = false;  // while it was being prepared
    Duration went;         // when, since boot
    Reactor::Handle next;  // what happens to it next
  };

  void after(Task& task, Duration delay, void (SimulatedTaskHost::*step)(Task&));
  void prepared(Task& task);
  void run_on(Task& task);
  void run_ended(Task& task);
  void limit_reached(Task& task);
  void end(Task& task, ExitCause cause, int32_t code, int32_t signal);
  void all_gone(Task& task);
  template <class Tell>
  void tell(Tell tell);

  Reactor& reactor_;
  Choose choose_;
  TaskListener* listener_ = nullptr;
  std::map<TaskKey, Task> tasks_;
  std::map<TaskKey, int> executions_;
  std::vector<NodeHolder> strangers_;
  std::set<TaskKey> frozen_;
  std::vector<std::pair<TaskKey, int32_t>> notices_;
  bool deaf_ = false;
};

}  // namespace tranche::machine
