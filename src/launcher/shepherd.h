// The shepherd: one process a task, forked by the launcher. It prepares and births the task, holds its time
// limit, reaps every descendant, carries the interactive client's bytes, and keeps the record. It needs
// neither launcher nor daemon once it lives; when it dies its task goes on.
//
// Record before report: what an event says is in the record file before the event is sent.
#pragma once

#include <memory>
#include <optional>

#include "launcher/arbiter_link.h"
#include "launcher/birth.h"
#include "launcher/client_stream.h"
#include "launcher/launcher_link.h"
#include "launcher/personal_task.h"
#include "launcher/task_files.h"
#include "launcher/time_limit.h"

namespace tranche::launcher {

class Shepherd {
 public:
  Shepherd(const LauncherHost& host, TaskPlan plan, isolation::FileDescriptor launcher_socket);
  // Serves until the task is gone and everyone has been told. Returns the exit status.
  int run();

 private:
  struct StageFailure {
    wire::StartStage stage;
    isolation::Failure failure;
  };

  // Birth (shepherd_birth.cc).
  void prepare();
  std::optional<StageFailure> build();
  isolation::Outcome<TaskFiles> make_client_files();
  bool on_birth_channel();  // false: nothing to read
  void on_prepared();
  void on_started();
  void fail_start(wire::StartStage stage, const isolation::Failure& failure);

  // Requests (shepherd_requests.cc).
  void on_packet(Packet& packet);
  void reply(uint64_t id, int status, std::string_view text = {});
  void on_go(uint64_t id);
  void on_signal(const Packet& packet);
  void on_kill(const Packet& packet);
  void on_freeze(uint64_t id, bool frozen);
  void on_set_limits(const Packet& packet);
  void on_set_gpu_memory(const Packet& packet);
  void on_attach(Packet& packet);

  // Life and end (shepherd.cc).
  void watch_signals();
  void reap();
  void on_main_ended(int status, uint64_t max_resident_kib);
  void signal_main(int signal);
  void signal_client_group(int signal);
  void end_task(wire::ExitCause cause, uint64_t grace_ns);
  void on_timer();
  void arm_timer();
  uint64_t limit_signal_at() const;  // 0: never, or it has been sent
  void send_limit_signal();
  void check_gone();
  void on_gone();
  void clear_limits();
  bool write_record();  // false: said on standard error
  bool has_ended() const;
  bool is_done() const;
  wire::TaskState state() const { return static_cast<wire::TaskState>(record_.state); }
  template <class Event>
  Event make_event(wire::LauncherKind kind) const {
    Event event = make_message<Event>(kind);
    event.key = record_.key;
    return event;
  }

  static constexpr uint64_t kRetryNs = 5'000'000;          // until a cgroup is seen empty or can be removed
  static constexpr uint64_t kLookAgainNs = 50'000'000;     // where nobody tells that the last one is gone
  static constexpr uint64_t kKillAgainNs = 1'000'000'000;  // for processes the kernel has not let go yet
  static constexpr uint64_t kLingerNs = 600'000'000'000;   // for a client that does not take its output

  const LauncherHost& host_;
  TaskPlan plan_;
  EventLoop loop_;
  wire::TaskRecord record_{};
  LauncherLink link_;
  BootTimer timer_;
  ClientStream client_;
  ArbiterLink arbiter_;
  LaunchBlock block_;
  TaskProcessesPointer processes_;
  isolation::FileDescriptor signals_;
  isolation::FileDescriptor birth_channel_;
  TaskFileEnds task_ends_;                  // until the child has them
  isolation::FileDescriptor main_process_;  // pidfd
  TimeLimit time_limit_;
  bool limit_signal_sent_ = false;
  bool has_driver_limits_ = false;                  // or may have: on the task's cgroup
  wire::ExitCause ending_ = wire::ExitCause::none;  // why we end it
  bool main_reaped_ = true;                         // no child yet, or waited for
  bool usage_is_final_ = false;                     // it was read when no process was left
  bool go_given_ = false;
  bool client_done_ = true;
  bool cgroup_removed_ = true;
  uint64_t kill_at_ = 0;
  uint64_t lost_client_at_ = 0;
  uint64_t retry_at_ = 0;
  uint64_t linger_until_ = 0;
};

// Called in the forked child. Never returns to the launcher's code.
[[noreturn]] void run_shepherd(const LauncherHost& host, TaskPlan plan,
                               isolation::FileDescriptor launcher_socket);

}  // namespace tranche::launcher
