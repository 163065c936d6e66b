// The arbiter's server: shepherds and the daemon on its control socket, guards on the sockets of their tasks.
//
// One thread, one packet of one peer at a time, and no call that waits: a peer that floods, stops reading or
// is stopped costs the others a turn of the loop at most. The ledger forgets a process when its pidfd says
// that it is dead, by when the kernel has closed its files, the driver's among them; a closed connection
// alone frees nothing.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "arbiter/ledger.h"
#include "arbiter/socket.h"

namespace tranche::arbiter {

class Server {
 public:
  // `control` is a listening socket; `daemon_uid` may ask and set limits, root may register tasks too.
  // `contexts_file`: a line "GPU-<uuid> <bytes>" for each GPU, what one context was measured to take there;
  // may be missing. `registrar_uid`: who may register tasks beside root; without root, the user that all of
  // it belongs to.
  Server(OwnedFile control, uint32_t daemon_uid, std::string contexts_file = "", uint32_t registrar_uid = 0);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Handles one event, or waits `timeout_ms` for one (-1: for ever).
  void run_once(int timeout_ms);

 private:
  struct Task;
  struct Connection;
  using Key = std::tuple<uint64_t, uint32_t, uint32_t>;
  using Callback = std::function<void(uint32_t events)>;
  using Uuid = std::array<uint8_t, 16>;

  void watch(int file, Callback callback);
  void forget(int file);

  void accept_control();
  void serve_control(int socket);
  int32_t serve_request(int socket, uint32_t uid, ReceivedPacket& packet);
  int32_t register_task(uint32_t uid, ReceivedPacket& packet);
  int32_t set_limit(const ReceivedPacket& packet);
  int32_t forget_task(const ReceivedPacket& packet);
  int32_t set_board(const ReceivedPacket& packet);
  uint32_t send_usage(int socket, const ReceivedPacket& packet);

  void accept_guard(Task& task);
  void serve_guard(Task& task, int socket);
  bool answer(Task& task, Connection& connection, const ReceivedPacket& packet);
  bool welcome(Task& task, Connection& connection, const ReceivedPacket& packet);
  bool answer_lease(Task& task, const Connection& connection, const ReceivedPacket& packet);
  bool answer_pids(const Task& task, const Connection& connection, uint64_t id);
  void drop(Task& task, int socket);
  void watch_process(Task& task, uint32_t slot, OwnedFile process);
  void on_process_gone(Task& task, uint32_t slot);
  void end_task(Key key);
  void join_board(TaskLedger& ledger, uint32_t gpu);

  OwnedFile epoll_;
  OwnedFile control_;
  uint32_t daemon_uid_;
  std::string contexts_file_;
  uint32_t registrar_uid_;
  std::unordered_map<int, std::shared_ptr<Callback>> callbacks_;
  std::unordered_map<int, std::pair<OwnedFile, uint32_t>> control_peers_;
  std::map<Uuid, Board> boards_;  // outlive the tasks
  std::map<Key, std::unique_ptr<Task>> tasks_;
  std::unordered_map<uint32_t, uint32_t> connections_of_user_;
};

}  // namespace tranche::arbiter
