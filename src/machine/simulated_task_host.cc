#include "machine/simulated_task_host.h"

#include <algorithm>
#include <csignal>

#include "base/assert.h"

namespace tranche::machine {

SimulatedTaskHost::SimulatedTaskHost(Reactor& reactor, Choose choose)
    : reactor_(reactor), choose_(std::move(choose)) {}

void SimulatedTaskHost::connect(TaskListener* listener) { listener_ = listener; }

void SimulatedTaskHost::lose_everything() { tasks_.clear(); }

// As the real host: never from inside a call, and not at all to a daemon that is gone by then.
template <class Tell>
void SimulatedTaskHost::tell(Tell tell) {
  TaskListener* const listener = listener_;
  if (listener == nullptr || deaf_) return;
  reactor_.post([this, listener, tell] {
    if (listener_ == listener) tell(*listener);
  });
}

void SimulatedTaskHost::after(Task& task, Duration delay, void (SimulatedTaskHost::*step)(Task&)) {
  const TaskKey key = task.record.task;
  task.next = reactor_.at(reactor_.clock().since_boot() + delay, [this, key, step] {
    const auto found = tasks_.find(key);
    if (found == tasks_.end()) return;
    // The step may arm the next one; the handle of this one must outlive the call.
    const Reactor::Handle current = std::move(found->second.next);
    (this->*step)(found->second);
  });
}

void SimulatedTaskHost::start(const LaunchPlan& plan, UniqueFd) {
  if (deaf_) return;
  TRANCHE_ASSERT(!tasks_.contains(plan.task));
  Task& task = tasks_[plan.task];
  task.record.task = plan.task;
  task.record.gpu_minors = plan.gpu_minors;
  std::sort(task.record.gpu_minors.begin(), task.record.gpu_minors.end());
  task.record.time_limit = plan.time_limit;
  task.plan = plan;
  task.behaviour = choose_(plan);
  after(task, task.behaviour.prepare_time, &SimulatedTaskHost::prepared);
}

void SimulatedTaskHost::prepared(Task& task) {
  const TaskKey key = task.record.task;
  if (task.behaviour.fails_to_start) {
    task.record.state = TaskRecord::State::start_failed;
    task.record.all_gone = true;
    task.record.failure = {true, false, "no such directory", "its directory cannot be entered", 0};
    return tell([key, failure = task.record.failure](TaskListener& to) {
      to.on_start_failed(key, failure);
      to.on_all_gone(key);
    });
  }
  task.record.state = TaskRecord::State::prepared;
  tell([key](TaskListener& to) { to.on_prepared(key); });
}

void SimulatedTaskHost::go(const TaskKey& key) {
  if (deaf_) return;
  const auto found = tasks_.find(key);
  if (found == tasks_.end() || found->second.record.state != TaskRecord::State::prepared) return;
  Task& task = found->second;
  ++executions_[key];
  task.record.state = TaskRecord::State::running;
  task.record.pid = 1000 + static_cast<int32_t>(executions_.size());
  tell([key, pid = task.record.pid](TaskListener& to) { to.on_started(key, pid); });
  task.went = reactor_.clock().since_boot();
  run_on(task);
}

// To its end or its limit, whichever comes first.
void SimulatedTaskHost::run_on(Task& task) {
  const Duration passed = reactor_.clock().since_boot() - task.went;
  if (task.plan.time_limit < task.behaviour.run_time) {
    after(task, std::max(task.plan.time_limit - passed, Duration{}), &SimulatedTaskHost::limit_reached);
  } else {
    after(task, std::max(task.behaviour.run_time - passed, Duration{}), &SimulatedTaskHost::run_ended);
  }
}

void SimulatedTaskHost::set_time_limit(const TaskKey& key, Duration limit) {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  Task& task = found->second;
  task.record.time_limit = task.plan.time_limit = limit;
  const bool runs = task.record.state == TaskRecord::State::running && !task.stopping;
  if (runs) run_on(task);
}

void SimulatedTaskHost::run_ended(Task& task) { end(task, ExitCause::exited, task.behaviour.code, 0); }
void SimulatedTaskHost::limit_reached(Task& task) { end(task, ExitCause::time_limit, 0, SIGTERM); }

void SimulatedTaskHost::kill(const TaskKey& key, Duration grace) {
  if (deaf_) return;
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  Task& task = found->second;
  if (task.record.state == TaskRecord::State::preparing || task.record.state == TaskRecord::State::prepared) {
    task.record.state = TaskRecord::State::start_failed;
    task.record.all_gone = true;
    task.record.failure = {false, true, "cancelled", "cancelled before it started", 0};
    task.next.reset();
    return tell([key, failure = task.record.failure](TaskListener& to) {
      to.on_start_failed(key, failure);
      to.on_all_gone(key);
    });
  }
  if (task.record.state != TaskRecord::State::running) return;
  task.stopping = true;
  const Duration delay = task.behaviour.ignores_term ? grace : Duration{};
  const TaskKey copy = key;
  task.next = reactor_.at(reactor_.clock().since_boot() + delay, [this, copy] {
    const auto task_now = tasks_.find(copy);
    if (task_now == tasks_.end()) return;
    const Reactor::Handle current = std::move(task_now->second.next);
    end(task_now->second, ExitCause::killed, 0, SIGTERM);
  });
}

void SimulatedTaskHost::end(Task& task, ExitCause cause, int32_t code, int32_t signal) {
  const TaskKey key = task.record.task;
  task.record.state = TaskRecord::State::exited;
  task.record.end.cause = cause;
  task.record.end.code = code;
  task.record.end.signal = signal;
  tell([key, ended = task.record.end](TaskListener& to) { to.on_exited(key, ended); });
  after(task, task.behaviour.linger_time, &SimulatedTaskHost::all_gone);
}

void SimulatedTaskHost::all_gone(Task& task) {
  const TaskKey key = task.record.task;
  task.record.all_gone = true;
  tell([key](TaskListener& to) { to.on_all_gone(key); });
}

void SimulatedTaskHost::forget(const TaskKey& key) {
  if (deaf_) return;
  const auto found = tasks_.find(key);
  if (found != tasks_.end() && found->second.record.all_gone) tasks_.erase(found);
}

// It is only noted: a test does not let frozen tasks end.
void SimulatedTaskHost::freeze(const TaskKey& task, bool frozen) {
  if (deaf_) return;
  frozen ? static_cast<void>(frozen_.insert(task)) : static_cast<void>(frozen_.erase(task));
}

void SimulatedTaskHost::attach(const TaskKey&, UniqueFd, std::function<void(Result<void>)> done) {
  reactor_.post([done = std::move(done)] { done({}); });
}

void SimulatedTaskHost::exec(const LaunchPlan&, UniqueFd, std::function<void(Result<void>)> done) {
  reactor_.post([done = std::move(done)] { done({}); });
}

void SimulatedTaskHost::list(Listed listed) {
  std::vector<TaskRecord> records;
  for (const auto& [key, task] : tasks_) records.push_back(task.record);
  TaskListener* const listener = listener_;
  reactor_.post([this, listener, listed = std::move(listed), records = std::move(records)] {
    if (listener_ == listener) listed(records);
  });
}

void SimulatedTaskHost::scan(const std::vector<uint32_t>& gpu_minors, Scanned scanned) {
  std::vector<NodeHolder> found;
  const auto add = [&](const NodeHolder& holder) {
    if (std::find(gpu_minors.begin(), gpu_minors.end(), holder.gpu_minor) != gpu_minors.end())
      found.push_back(holder);
  };
  for (const auto& [task, minors] : running()) {
    for (const uint32_t minor : minors) add({tasks_.at(task).record.pid, 2001, minor, task, "train"});
  }
  for (const NodeHolder& stranger : strangers_) add(stranger);
  TaskListener* const listener = listener_;
  reactor_.post([this, listener, scanned = std::move(scanned), found = std::move(found)] {
    if (listener_ == listener) scanned(found);
  });
}

std::map<TaskKey, std::vector<uint32_t>> SimulatedTaskHost::running() const {
  std::map<TaskKey, std::vector<uint32_t>> running;
  for (const auto& [key, task] : tasks_) {
    const bool exists = task.record.state == TaskRecord::State::running ||
                        (task.record.state == TaskRecord::State::exited && !task.record.all_gone);
    if (exists) running[key] = task.plan.gpu_minors;
  }
  return running;
}

}  // namespace tranche::machine
