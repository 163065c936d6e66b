// The launcher: root's side of the daemon's socket. Checks what the daemon asks, forks shepherds, passes
// messages between daemon and shepherds, and survives neither being there. One thread; nothing in it waits.
#pragma once

#include <memory>
#include <set>
#include <unordered_map>

#include "isolation/device_filter.h"
#include "isolation/identity.h"
#include "launcher/helper.h"
#include "launcher/task_table.h"

namespace tranche::launcher {

class Launcher {
 public:
  explicit Launcher(const LauncherHost& host);
  // Listens on both sockets and takes up running tasks.
  isolation::Outcome<void> open();
  // Until SIGTERM or SIGINT. Tasks go on.
  void run();

 private:
  isolation::Outcome<isolation::FileDescriptor> listen_at(const char* name, uint32_t uid, uint32_t gid);
  void watch_signals();
  void reap();
  void accept_daemon();
  void accept_shepherd();
  void on_shepherd_hello(uint64_t serial, int peer_pid, Packet& packet);
  void to_daemon(std::string_view bytes, isolation::FileDescriptor file = {});
  void reply(uint64_t id, int status, std::string_view text = {}, uint32_t entries = 0);

  // launcher_requests.cc
  void on_request(Packet& packet);
  void on_start(Packet& packet);
  isolation::Outcome<isolation::Identity> find_user(uint32_t uid);
  isolation::Outcome<TaskPlan> plan_start(Packet& packet);
  isolation::Outcome<void> start_shepherd(TaskPlan plan);
  void on_open_as_user(const Packet& packet);
  void on_scan(const Packet& packet);
  void on_list(uint64_t id);
  void on_task_request(Packet& packet);
  void on_exec(Packet& packet);
  isolation::Outcome<void> start_exec(Packet& packet);

  const LauncherHost& host_;
  EventLoop loop_;
  isolation::UserDirectory users_;
  TaskTable tasks_;
  HelperSet helpers_;
  isolation::DeviceFilters device_filters_;
  isolation::FileDescriptor signals_;
  isolation::FileDescriptor daemon_listener_;
  isolation::FileDescriptor shepherd_listener_;
  std::unique_ptr<PacketConnection> daemon_;
  std::unordered_map<uint64_t, std::unique_ptr<PacketConnection>> newcomers_;  // shepherds before their hello
  uint64_t next_newcomer_ = 1;
  std::set<int> exec_sessions_;  // pids of those that this launcher has forked
  bool ended_ = false;
};

}  // namespace tranche::launcher
