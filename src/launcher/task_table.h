// The launcher's tasks: each with its shepherd's connection and process, or adopted when the shepherd was
// lost.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "launcher/adopted_task.h"

namespace tranche::launcher {

class TaskTable {
 public:
  // `to_daemon` gets events and replies, as bytes of one packet.
  using ToDaemon = std::function<void(std::string_view)>;

  TaskTable(EventLoop& loop, const LauncherHost& host, ToDaemon to_daemon);

  // Takes up what an earlier launcher left: records whose shepherds live are waited for, others adopted.
  // Removes empty cgroups without a record, and shared folders of jobs that have no task. Call after the
  // shepherds' socket listens.
  void restore();

  bool contains(const wire::TaskKey& key) const { return tasks_.contains(order(key)); }
  bool has_task_of(uint64_t job) const;
  size_t size() const { return tasks_.size(); }
  // What is known of every task, from its record or, before its shepherd has written one, from its Start.
  std::vector<wire::TaskRecord> list() const;

  // A shepherd that was just forked; `record` is what is known of it.
  void add(const wire::TaskRecord& record, isolation::FileDescriptor socket);
  // A shepherd of an earlier launcher says hello on a socket of `peer_pid`. Not believed if it is not who the
  // record names; one without a record yet was forked just before that launcher died.
  void on_hello(const wire::TaskRecord& record, int peer_pid, isolation::FileDescriptor socket);

  // Passes a request of the daemon to the task's shepherd, which answers; or answers itself.
  void forward(Packet& packet, const wire::TaskKey& key);
  // Removes the task's record and cgroup. An errno: EBUSY while a process of it is left.
  int forget(const wire::TaskKey& key);
  void on_reaped(int pid, int status);
  // Answers to a former daemon's requests are for nobody.
  void drop_pending();

 private:
  using Key = std::tuple<uint64_t, uint32_t, uint32_t>;
  struct Task {
    wire::TaskRecord known{};  // as last told to the daemon: state, tasks_gone; and who the shepherd is
    std::unique_ptr<PacketConnection> shepherd;
    isolation::FileDescriptor shepherd_process;  // pidfd; none once it has ended
    std::unique_ptr<AdoptedTask> adopted;
    std::vector<uint64_t> pending;  // requests that the shepherd has not answered
  };

  static Key order(const wire::TaskKey& key) { return {key.job, key.rank, key.attempt}; }
  void watch_process(Task& task);
  void connect(Task& task, isolation::FileDescriptor socket);
  void on_shepherd_packet(Task& task, Packet& packet);
  void on_shepherd_ended(Key key);
  void settle(Task& task);
  void fail_pending(Task& task);
  void tell_changes(Task& task, const wire::TaskRecord& record);
  void answer(uint64_t id, int status, std::string_view text);
  void remove_unused_job_space(uint64_t job);
  void sweep_left_cgroups();

  EventLoop& loop_;
  const LauncherHost& host_;
  ToDaemon to_daemon_;
  std::map<Key, std::unique_ptr<Task>> tasks_;
};

}  // namespace tranche::launcher
