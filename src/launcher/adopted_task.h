// A task whose shepherd was lost. It goes on; the launcher itself now holds its time limit, obeys requests
// for it and reports its end: rightly if it became the launcher's child (the launcher is the subreaper above
// its shepherds), otherwise as `unknown`, never a guess. A task that had not been told to go is ended: it
// never executed.
#pragma once

#include <functional>

#include "launcher/launcher_host.h"
#include "launcher/packet.h"
#include "launcher/personal_task.h"
#include "launcher/time_limit.h"

namespace tranche::launcher {

// How a prepared process ends itself when its shepherd is lost before the word to go: nothing of the user has
// executed, so its status must not be taken for the command's. The last real-time signal, which nobody else
// uses.
inline constexpr int kNeverExecutedSignal = 64;

class AdoptedTask {
 public:
  // Called after the record has been written, for each change of state and once for tasks_gone.
  using OnChange = std::function<void(const wire::TaskRecord&)>;

  AdoptedTask(EventLoop& loop, const LauncherHost& host, const wire::TaskRecord& record, OnChange on_change);
  ~AdoptedTask();
  AdoptedTask(const AdoptedTask&) = delete;
  AdoptedTask& operator=(const AdoptedTask&) = delete;

  // First look at the state of things; may call on_change.
  void begin();
  const wire::TaskRecord& record() const { return record_; }
  int main_pid() const { return record_.task_pid; }
  // The launcher's waitpid met the main process.
  void on_main_reaped(int status);
  // Signal, Kill, Freeze, Thaw, SetLimits; everything else is answered with an error.
  wire::Reply handle(const Packet& packet);

 private:
  void open_main_process();
  void on_main_gone(bool known, int status);
  void end_task(wire::ExitCause cause, uint64_t grace_ns);
  void on_timer();
  void arm_timer();
  void check_gone();
  void change(wire::TaskState state);
  wire::TaskState state() const { return static_cast<wire::TaskState>(record_.state); }
  int apply(const Packet& packet, std::string& text);

  EventLoop& loop_;
  const LauncherHost& host_;
  wire::TaskRecord record_;
  OnChange on_change_;
  BootTimer timer_;
  TaskProcessesPointer processes_;  // null: they cannot be found any more
  isolation::FileDescriptor main_process_;
  TimeLimit time_limit_;
  wire::ExitCause ending_ = wire::ExitCause::none;
  uint64_t kill_at_ = 0;
  uint64_t look_at_ = 0;  // where nobody tells that the last one is gone
};

}  // namespace tranche::launcher
