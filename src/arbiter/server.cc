#include "arbiter/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tranche::arbiter {
namespace {

// A user's processes, viewers included; beyond it connections are closed at once.
constexpr uint32_t kMaxConnectionsOfUser = 8192;
constexpr size_t kMaxBoards = 4096;        // GPUs and MIG instances, gone ones included
constexpr size_t kMaxControlPeers = 8192;  // a shepherd a task, and the daemon

// The struct in a packet over zeroes: what a newer peer adds is ignored, what an older lacks reads 0.
template <class Message>
bool decode(const ReceivedPacket& packet, Message& message, size_t least = sizeof(Message)) {
  message = Message{};
  if (packet.size < static_cast<ssize_t>(least)) return false;
  std::memcpy(&message, packet.bytes, std::min(sizeof message, static_cast<size_t>(packet.size)));
  return true;
}

template <class Message>
Message reply_to(const tranche_guard_header& request, uint16_t kind) {
  Message message{};
  message.header = {sizeof message, TRANCHE_GUARD_VERSION, kind, request.id};
  return message;
}

// Root wrote it; read anew for each task, since the driver may be another by then.
uint64_t measured_context(const std::string& path, const uint8_t* uuid) {
  char text[16 * 1024];
  const OwnedFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t length = file ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (length <= 0) return 0;
  text[length] = '\0';
  char wanted[64] = "GPU-";
  size_t at = 4;
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    at += static_cast<size_t>(
        std::snprintf(wanted + at, sizeof wanted - at, "%s%02x", dash ? "-" : "", uuid[i]));
  }
  const char* line = std::strstr(text, wanted);
  return line == nullptr ? 0 : std::strtoull(line + at, nullptr, 10);
}

wire::UsageEntry usage_entry(const TaskLedger& ledger, uint32_t gpu, uint64_t id) {
  const Usage usage = ledger.usage(gpu);
  wire::UsageEntry entry{};
  entry.header = {sizeof entry, wire::kArbiterProtocolVersion,
                  static_cast<uint16_t>(wire::ArbiterKind::usage_entry), id};
  entry.key = ledger.key();
  std::memcpy(entry.uuid, ledger.uuid(gpu), sizeof entry.uuid);
  entry.limit_bytes = usage.limit;
  entry.charged_bytes = usage.charged;
  entry.granted_bytes = usage.granted;
  entry.denied = usage.denied;
  entry.processes = usage.processes;
  entry.gpu = gpu;
  entry.guarantee_bytes = usage.guarantee;
  entry.owed_bytes = usage.owed;
  entry.held_by_driver = ledger.is_held_by_driver() ? 1 : 0;
  entry.waits = usage.waits;
  return entry;
}

int32_t error_of(Lease lease) {
  switch (lease) {
    case Lease::granted:
      return 0;
    case Lease::wait:
      return EAGAIN;
    case Lease::denied:
      break;
  }
  return ENOMEM;
}

}  // namespace

struct Server::Connection {
  OwnedFile socket;
  Peer peer;
  int slot = -1;
};

struct Server::Task {
  Task(const wire::RegisterTask& request, std::unique_ptr<LeasePage> mapped, ReceivedPacket& packet)
      : ledger(request, std::move(mapped)),
        listener(std::move(packet.files[0])),
        page(std::move(packet.files[1])) {}

  TaskLedger ledger;
  OwnedFile listener;
  OwnedFile page;
  std::unordered_map<int, Connection> connections;
  std::unordered_map<uint32_t, OwnedFile> processes;  // pidfds by slot
};

Server::Server(OwnedFile control, uint32_t daemon_uid, std::string contexts_file, uint32_t registrar_uid)
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      control_(std::move(control)),
      daemon_uid_(daemon_uid),
      contexts_file_(std::move(contexts_file)),
      registrar_uid_(registrar_uid) {
  watch(control_.get(), [this](uint32_t) { accept_control(); });
}

Server::~Server() = default;

void Server::watch(int file, Callback callback) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = file;
  callbacks_[file] = std::make_shared<Callback>(std::move(callback));
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, file, &event) != 0) callbacks_.erase(file);
}

void Server::forget(int file) {
  if (callbacks_.erase(file) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, file, nullptr);
}

void Server::run_once(int timeout_ms) {
  // One at a time: a batch could hold an event of a descriptor that an earlier callback closed and reused.
  epoll_event event{};
  if (::epoll_wait(epoll_.get(), &event, 1, timeout_ms) != 1) return;
  const auto found = callbacks_.find(event.data.fd);
  if (found == callbacks_.end()) return;
  const std::shared_ptr<Callback> callback = found->second;
  (*callback)(event.events);
}

// --- shepherds and the daemon
// -------------------------------------------------------------------------------

void Server::accept_control() {
  OwnedFile socket(::accept4(control_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  const Peer peer = peer_of(socket.get());
  const bool known = peer.uid == 0 || peer.uid == daemon_uid_;
  if (!known || control_peers_.size() >= kMaxControlPeers) return;
  const int number = socket.get();
  control_peers_.emplace(number, std::pair(std::move(socket), peer.uid));
  watch(number, [this, number](uint32_t) { serve_control(number); });
}

void Server::serve_control(int socket) {
  ReceivedPacket packet;
  receive(socket, packet);
  if (packet.size == -1) return;
  bool alive = packet.size >= static_cast<ssize_t>(sizeof(wire::MessageHeader));
  if (alive) {
    wire::ArbiterReply reply{};
    wire::MessageHeader header;
    std::memcpy(&header, packet.bytes, sizeof header);
    if (header.kind == static_cast<uint16_t>(wire::ArbiterKind::usage)) {
      reply.entries = send_usage(socket, packet);
    } else {
      reply.status = serve_request(socket, control_peers_.at(socket).second, packet);
    }
    reply.header = {sizeof reply, wire::kArbiterProtocolVersion,
                    static_cast<uint16_t>(wire::ArbiterKind::reply), header.id};
    alive = send_packet(socket, &reply, sizeof reply);
  }
  if (alive) return;
  forget(socket);
  control_peers_.erase(socket);
}

int32_t Server::serve_request(int, uint32_t uid, ReceivedPacket& packet) {
  wire::MessageHeader header;
  std::memcpy(&header, packet.bytes, sizeof header);
  switch (static_cast<wire::ArbiterKind>(header.kind)) {
    case wire::ArbiterKind::register_task:
      return register_task(uid, packet);
    case wire::ArbiterKind::forget_task:
      return forget_task(packet);
    case wire::ArbiterKind::set_limit:
      return set_limit(packet);
    case wire::ArbiterKind::set_board:
      return set_board(packet);
    case wire::ArbiterKind::usage:
    case wire::ArbiterKind::reply:
    case wire::ArbiterKind::usage_entry:
      break;
  }
  return ENOSYS;
}

int32_t Server::register_task(uint32_t uid, ReceivedPacket& packet) {
  wire::RegisterTask request;
  if (uid != 0 && uid != registrar_uid_) return EPERM;
  if (!decode(packet, request, wire::kRegisterTaskFirstSize) || request.gpu_count == 0 ||
      request.gpu_count > wire::kMaxGpusPerTask) {
    return EINVAL;
  }
  const Key key{request.key.job, request.key.rank, request.key.attempt};
  if (tasks_.contains(key)) return 0;  // its shepherd lost the connection, not we the task
  std::unique_ptr<LeasePage> page = LeasePage::map(packet.files[1].get());
  if (!packet.files[0] || page == nullptr) return EINVAL;
  auto task = std::make_unique<Task>(request, std::move(page), packet);
  Task& added = *task;
  for (uint32_t gpu = 0; gpu < added.ledger.gpu_count(); ++gpu) {
    added.ledger.note_context(gpu, measured_context(contexts_file_, added.ledger.uuid(gpu)));
  }
  tasks_.emplace(key, std::move(task));
  for (const uint32_t slot : added.ledger.adopt()) {
    OwnedFile process = open_process(added.ledger.pid(slot));
    const bool same = process && start_ticks_of(added.ledger.pid(slot)) == added.ledger.start_ticks(slot);
    if (same) {
      watch_process(added, slot, std::move(process));
    } else {
      added.ledger.leave(slot);
    }
  }
  for (uint32_t gpu = 0; gpu < added.ledger.gpu_count(); ++gpu) join_board(added.ledger, gpu);
  watch(added.listener.get(), [this, &added](uint32_t) { accept_guard(added); });
  return 0;
}

int32_t Server::forget_task(const ReceivedPacket& packet) {
  wire::ForgetTask request;
  if (!decode(packet, request)) return EINVAL;
  end_task({request.key.job, request.key.rank, request.key.attempt});
  return 0;
}

int32_t Server::set_limit(const ReceivedPacket& packet) {
  wire::SetMemoryLimit request;
  if (!decode(packet, request, wire::kSetMemoryLimitFirstSize) || request.limit_bytes < TRANCHE_GUARD_UNIT ||
      request.guarantee_bytes > request.limit_bytes) {
    return EINVAL;
  }
  const auto found = tasks_.find({request.key.job, request.key.rank, request.key.attempt});
  if (found == tasks_.end()) return ESRCH;
  const int gpu = found->second->ledger.find(request.uuid);
  if (gpu < 0) return ENODEV;
  found->second->ledger.set_limit(static_cast<uint32_t>(gpu), request.limit_bytes, request.guarantee_bytes);
  return 0;
}

// A task with the whole GPU is not counted, and nobody shares with it.
void Server::join_board(TaskLedger& ledger, uint32_t gpu) {
  if (ledger.limit(gpu) == 0) return;
  Uuid uuid;
  std::memcpy(uuid.data(), ledger.uuid(gpu), uuid.size());
  ledger.join(gpu, boards_[uuid]);
}

int32_t Server::set_board(const ReceivedPacket& packet) {
  wire::SetBoard request;
  if (!decode(packet, request)) return EINVAL;
  Uuid uuid;
  std::memcpy(uuid.data(), request.uuid, uuid.size());
  if (!boards_.contains(uuid) && boards_.size() >= kMaxBoards) return EAGAIN;
  boards_[uuid].set(request.usable_bytes, request.elsewhere_bytes);
  return 0;
}

uint32_t Server::send_usage(int socket, const ReceivedPacket& packet) {
  wire::UsageRequest request;
  if (!decode(packet, request, sizeof(wire::MessageHeader))) return 0;
  // What was given back since is taken first, so that nobody is told to give what it has given.
  for (auto& [uuid, board] : boards_) board.settle();
  const Key after{request.after.job, request.after.rank, request.after.attempt};
  uint32_t sent = 0;
  for (auto task = tasks_.lower_bound(after); task != tasks_.end(); ++task) {
    const uint32_t first = task->first == after ? request.after_gpu + 1 : 0;
    for (uint32_t gpu = first; gpu < task->second->ledger.gpu_count(); ++gpu) {
      if (sent == wire::kUsagePage) return sent;
      const wire::UsageEntry entry = usage_entry(task->second->ledger, gpu, request.header.id);
      if (!send_packet(socket, &entry, sizeof entry)) return sent;
      ++sent;
    }
  }
  return sent;
}

void Server::end_task(Key key) {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  Task& task = *found->second;
  forget(task.listener.get());
  while (!task.connections.empty()) drop(task, task.connections.begin()->first);
  for (const auto& [slot, process] : task.processes) forget(process.get());
  tasks_.erase(found);
}

// --- guards
// -------------------------------------------------------------------------------------------------

void Server::accept_guard(Task& task) {
  OwnedFile socket(::accept4(task.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  uint32_t& count = connections_of_user_[task.ledger.uid()];
  if (count >= kMaxConnectionsOfUser) return;
  Connection connection{std::move(socket), {}, -1};
  connection.peer = peer_of(connection.socket.get());
  if (!connection.peer.process) return;
  ++count;
  const int number = connection.socket.get();
  task.connections.emplace(number, std::move(connection));
  watch(number, [this, &task, number](uint32_t) { serve_guard(task, number); });
}

void Server::drop(Task& task, int socket) {
  const auto found = task.connections.find(socket);
  forget(socket);
  if (found->second.slot >= 0) task.ledger.keep_used_only(static_cast<uint32_t>(found->second.slot));
  task.connections.erase(found);
  if (--connections_of_user_[task.ledger.uid()] == 0) connections_of_user_.erase(task.ledger.uid());
}

void Server::serve_guard(Task& task, int socket) {
  ReceivedPacket packet;
  receive(socket, packet);
  if (packet.size == -1) return;
  const auto found = task.connections.find(socket);
  if (packet.size <= 0 || !answer(task, found->second, packet)) drop(task, socket);
}

// False: not a message of this protocol, or its answer was not taken; the connection ends.
bool Server::answer(Task& task, Connection& connection, const ReceivedPacket& packet) {
  tranche_guard_header header;
  if (!decode(packet, header)) return false;
  if (header.kind == TRANCHE_GUARD_HELLO) return welcome(task, connection, packet);
  if (header.kind == TRANCHE_GUARD_PIDS) return answer_pids(task, connection, header.id);
  return answer_lease(task, connection, packet);
}

bool Server::welcome(Task& task, Connection& connection, const ReceivedPacket& packet) {
  tranche_guard_hello hello;
  if (!decode(packet, hello) || connection.slot >= 0) return false;
  auto reply = reply_to<tranche_guard_welcome>(hello.header, TRANCHE_GUARD_WELCOME);
  const bool viewer = (hello.flags & TRANCHE_GUARD_VIEWER) != 0;
  if (!viewer) {
    const uint32_t before = hello.slot - 1;
    if (hello.slot != 0 && task.ledger.resume(before, connection.peer.pid, hello.image)) {
      connection.slot = static_cast<int>(before);
    } else {
      connection.slot =
          task.ledger.enter(connection.peer.pid, hello.image, start_ticks_of(connection.peer.pid));
    }
    if (connection.slot < 0) reply.status = EAGAIN;
  }
  if (connection.slot >= 0) {
    const auto slot = static_cast<uint32_t>(connection.slot);
    watch_process(task, slot, std::move(connection.peer.process));
    reply.slot = slot + 1;
  }
  reply.pid = connection.peer.pid;
  reply.gpu_count = task.ledger.gpu_count();
  for (uint32_t gpu = 0; gpu < reply.gpu_count; ++gpu) {
    std::memcpy(reply.gpus[gpu].uuid, task.ledger.uuid(gpu), sizeof reply.gpus[gpu].uuid);
    reply.gpus[gpu].limit_bytes = task.ledger.usage(gpu).limit;
    reply.gpus[gpu].context_bytes = task.ledger.context_bytes(gpu);
  }
  return send_packet(connection.socket.get(), &reply, sizeof reply, reply.slot != 0 ? task.page.get() : -1);
}

// LEASE, USAGE and CONTEXT: the three about one GPU.
bool Server::answer_lease(Task& task, const Connection& connection, const ReceivedPacket& packet) {
  tranche_guard_gpu_request request;
  if (!decode(packet, request) || request.gpu >= task.ledger.gpu_count()) return false;
  auto reply = reply_to<tranche_guard_answer>(request.header, TRANCHE_GUARD_ANSWER);
  if (request.header.kind == TRANCHE_GUARD_LEASE) {
    tranche_guard_lease lease;
    if (!decode(packet, lease) || connection.slot < 0) return false;
    const auto slot = static_cast<uint32_t>(connection.slot);
    // Gone when its process said hello as a newer image; another process may have it by now.
    if (!task.ledger.has_slot(slot) || task.ledger.pid(slot) != connection.peer.pid) return false;
    reply.status = error_of(task.ledger.lease(slot, request.gpu, lease.need_bytes));
  } else if (request.header.kind == TRANCHE_GUARD_CONTEXT) {
    tranche_guard_context context;
    if (!decode(packet, context)) return false;
    task.ledger.note_context(request.gpu, context.bytes);
  } else if (request.header.kind != TRANCHE_GUARD_USAGE) {
    return false;
  }
  const Usage usage = task.ledger.usage(request.gpu);
  reply.processes = usage.processes;
  reply.limit_bytes = usage.limit;
  reply.charged_bytes = usage.charged;
  reply.available_bytes = usage.available;
  return send_packet(connection.socket.get(), &reply, sizeof reply);
}

bool Server::answer_pids(const Task& task, const Connection& connection, uint64_t id) {
  auto reply = reply_to<tranche_guard_pid_list>({0, 0, 0, id}, TRANCHE_GUARD_PID_LIST);
  const std::vector<int32_t> pids = task.ledger.pids();
  reply.count = static_cast<uint32_t>(std::min<size_t>(pids.size(), TRANCHE_GUARD_MAX_PROCESSES));
  std::copy_n(pids.begin(), reply.count, reply.pids);
  return send_packet(connection.socket.get(), &reply, sizeof reply);
}

void Server::watch_process(Task& task, uint32_t slot, OwnedFile process) {
  const auto known = task.processes.find(slot);
  if (known != task.processes.end()) forget(known->second.get());
  const int number = process.get();
  task.processes[slot] = std::move(process);
  watch(number, [this, &task, slot](uint32_t) { on_process_gone(task, slot); });
}

// The process is a zombie or less: its files are closed, so the driver holds nothing for it.
void Server::on_process_gone(Task& task, uint32_t slot) {
  forget(task.processes.at(slot).get());
  task.processes.erase(slot);
  std::vector<int> sockets;
  for (const auto& [socket, connection] : task.connections) {
    if (connection.slot == static_cast<int>(slot)) sockets.push_back(socket);
  }
  for (const int socket : sockets) drop(task, socket);
  task.ledger.leave(slot);
}

}  // namespace tranche::arbiter
